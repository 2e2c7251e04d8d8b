"""
Recognise sequences of digits
=============================

Single handwritten digits with strong noise are hard to recognise. If some digits follow others more
often, a chain learns these transitions and uses the neighbouring digits.
"""

# %%
# Data
# ----
#
# The digits of scikit-learn, of 8 x 8 pixels, with noise. In a sequence ("word"), a digit is followed by
# the next larger one, the one after that, or itself. Training and test words use different images.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def make_words(images, labels, n_words, rng):
    """Make words of 4 to 9 digits from randomly chosen images."""
    X, Y = [], []
    for length in rng.integers(4, 10, size=n_words):
        steps = rng.choice([0, 1, 2], p=[0.1, 0.6, 0.3], size=length)
        Y.append((rng.integers(10) + np.cumsum(steps)) % 10)
        X.append(np.stack([images[rng.choice(np.flatnonzero(labels == y))] for y in Y[-1]]))
    return [x + rng.normal(scale=0.45, size=x.shape) for x in X], Y


rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
known, new, known_labels, new_labels = train_test_split(images / 16, labels, test_size=0.5, random_state=0)
X_train, Y_train = make_words(known, known_labels, 150, rng)
X_test, Y_test = make_words(new, new_labels, 200, rng)

# %%
# Independent model
# -----------------
#
# Without messages along the chain, the model is logistic regression.

from skcrf import ChainCRFClassifier
from skcrf.inference import BP
from skcrf.metrics import sequence_accuracy_score

alone = ChainCRFClassifier(inference=BP(max_iter=0), loss="univariate_logistic", alpha=0.003)
alone.fit(X_train, Y_train)

# %%
# Chain CRF
# ---------
#
# By default a chain is fitted by maximum likelihood with exact inference. ``decoding="mpm"`` returns the
# most probable digit at each position, which maximises the accuracy of digits expected by the model;
# ``decoding="map"`` returns the most probable word (Viterbi algorithm).

chain = ChainCRFClassifier(alpha=0.003).fit(X_train, Y_train)

print(f"{'':<14}{'digits':>8}{'words':>8}")
for name, model in [
    ("independent", alone),
    ("chain, mpm", chain),
    ("chain, map", ChainCRFClassifier(decoding="map", alpha=0.003).fit(X_train, Y_train)),
]:
    words = sequence_accuracy_score(Y_test, model.predict(X_test))
    print(f"{name:<14}{model.score(X_test, Y_test):8.3f}{words:8.3f}")

# %%
# Predictions and weights
# -----------------------
#
# Some test words with the predicted digits below each image; wrong ones are red.

import matplotlib.pyplot as plt
from matplotlib.colors import CenteredNorm

figure, axes = plt.subplots(4, 9, figsize=(8, 4.5), layout="constrained")
read_alone, read_chain = alone.predict(X_test), chain.predict(X_test)
longest = [i for i, y in enumerate(Y_test) if len(y) == 9]
for row, i in zip(axes, longest[:4], strict=True):
    for axis, x, truth, *answers in zip(row, X_test[i], Y_test[i], read_alone[i], read_chain[i], strict=True):
        axis.imshow(x.reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
        for place, label in zip((0.25, 0.75), answers, strict=True):
            colour = "black" if label == truth else "tab:red"
            axis.text(place, -0.08, label, transform=axis.transAxes, ha="center", va="top", color=colour)
figure.suptitle("Predictions of the independent model (left) and of the chain (right); wrong ones in red")

# %%
# The weights of pairs of digits: the possible transitions have the largest weights.

weights, axis = plt.subplots(layout="constrained")
picture = axis.imshow(chain.edge_coef_[0], cmap="RdBu_r", norm=CenteredNorm())
axis.set(xticks=range(10), yticks=range(10), xlabel="next digit", ylabel="digit")
weights.colorbar(picture, label="weight")

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("chain_digits.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"words: {picture}")
# sphinx_gallery_end_ignore

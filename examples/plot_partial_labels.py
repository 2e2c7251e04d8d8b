"""
Learn from few labels
=====================

Most pixels of a training image may have no label. Losses differ in what they do with these: the marginal
structured SVM ("marginal_hinge") and the hidden CRF ("likelihood") sum over what they might be, the latent
structured SVM ("latent_hinge") takes the best guess for the truth, and "univariate_logistic" judges the
labelled pixels alone. The setting is that of Ping (2016, Figure 4.5), with fewer images.
"""

# %%
# The data
# --------
#
# An image of 20 x 40 pixels with five labels, seen through Gaussian noise of variance 5. The feature of a
# pixel is its intensity, beside an intercept. Labels are hidden at random: of 95 % missing ones, 40 an image
# are left.

import numpy as np

rows, columns = np.mgrid[:20, :40]
truth = np.where(columns < 20, 1, 2) + np.where(rows < 10, 0, 2)
truth[np.hypot(rows - 9.5, columns - 19.5) < 6] = 5
rng = np.random.default_rng(0)


def observe(n_images):
    """Make noisy images, with one feature a pixel."""
    return [(truth + rng.normal(scale=np.sqrt(5), size=truth.shape))[..., None] - 3 for _ in range(n_images)]


X_train, X_test = observe(5), observe(5)
Y_test = [truth] * len(X_test)
chances = [rng.random(truth.shape) for _ in X_train]


def labelled(missing):
    """Hide labels of a fraction of the pixels; those that are hidden stay so when more are."""
    return [np.ma.masked_array(truth, chance < missing) for chance in chances]


# %%
# Fit
# ---
#
# Settings are the same for all fractions. A few others were tried on these very images, so that the
# accuracies below are not those of settings that were fixed blindly; what is predicted, and where the
# likelihood starts, was chosen on other draws. The ridge is that of C = 1 in the thesis: 1 by the number of
# training labels. Messages are tree-reweighted, also where they maximise: on a lattice that is coupled so
# strongly, those of belief propagation miss the best labels, and a margin loss sees no fault where no wrong
# labels are found. The log_z of the likelihood is a bound where messages converge, so there they do.
#
# Where labels are hidden, losses have more than one minimum: all start from the model of
# "univariate_logistic". Optimizer "cccp" would keep the weights of the least training error, those of this
# start included; here it keeps the last, so that what is seen of a margin loss is its own.
#
# All pixels are to be predicted, while "marginal_hinge" learns to find the best labels of some, with the
# others summed out. Where most are missing, that is near to finding the best label of each by itself: so
# here the label of the largest marginal is predicted, by ``decoding="mpm"``. Its default is the most probable
# label image, unless there are hidden variables.

import warnings

from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.optimizers import CCCP

margin = {"optimizer": CCCP(inner_iter=30, best="last"), "max_iter": 3}
choices = {
    "univariate_logistic": {"max_iter": 40},
    "likelihood": {"max_iter": 40, "inference": TRW(max_iter=100, tol=1e-3)},
    "marginal_hinge": {**margin, "decoding": "mpm"},
    "latent_hinge": margin,
}
fractions = [0.1, 0.5, 0.8, 0.95]
scores, pictures, start = {loss: [] for loss in choices}, {}, None
for missing in fractions:
    Y_train = labelled(missing)
    alpha = 1 / sum(y.count() for y in Y_train)
    for loss, chosen in choices.items():
        model = GridCRFClassifier(loss=loss, symmetric=True, alpha=alpha, tol=1e-3, n_jobs=2)
        model.set_params(**chosen)
        if loss != "univariate_logistic":
            model.set_params(init=start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a few iterations do here
            model.fit(X_train, Y_train)
            scores[loss].append(model.score(X_test, Y_test))
            pictures[loss] = model.predict(X_test[:1])[0]  # those of the last fraction stay
        start = model if loss == "univariate_logistic" else start
    print(f"{missing:.0%} missing:", ", ".join(f"{loss} {found[-1]:.3f}" for loss, found in scores.items()))

# %%
# How many labels it takes
# ------------------------
#
# On the right is what the models predict from one of the test images after 95 % of the training labels were
# hidden. This is one draw of the noise, with five training images: the next one has another order. In the
# mean of four draws (seeds 0 to 3 above) accuracies are, in the order of the legend,
#
# - .92, .94, .93 and .91 with 10 % of the labels missing,
# - .92, .94, .93 and .92 with 50 %,
# - .92, .94, .93 and .93 with 80 %,
# - .88, .91, .85 and .87 with 95 %,
#
# with standard errors of .01 to .02, and .04 to .06 in the last line, where one of the draws is bad for all.
# With ten training images, as in the thesis, these are, in the mean of four further draws with standard
# errors of about .01,
#
# - .92, .93, .93 and .92 with 10 %,
# - .92, .93, .94 and .93 with 50 %,
# - .92, .94, .94 and .93 with 80 %,
# - .92, .94, .92 and .89 with 95 %.
#
# So with ten images four labels of five can be missing before it costs anything. With 95 % missing the latent
# structured SVM has lost, as in the thesis, though not if it keeps the weights of the least training error:
# then it is at .92. That the marginal structured SVM is the best throughout is not seen: it is as good as the
# hidden CRF up to 50 %, within errors, and behind it by .007 with 80 % and .017 with 95 %, where standard
# errors of the difference are .002 and .006.
#
# Two choices can decide more than the loss does. With its default decoding, the most probable label image,
# the marginal structured SVM is at .93, .93, .93 and .87 on the same images: from few labels it learns what
# each is with the others summed out, and not which images of labels are the best as a whole. And from the
# model without edges, margin losses do not find their way where few labels have neighbours that are known.
# Then, on four other draws, the latent structured SVM ended at .92, .85, .62 and .38 from the first fraction
# to the last, after eight iterations of CCCP, and the marginal one at .34 with 95 %, after four: its training
# loss was still above that of zero weights.

import matplotlib.pyplot as plt

layout = [["curves", "truth", "image"], ["curves", "marginal_hinge", "latent_hinge"]]
layout += [["curves", "likelihood", "univariate_logistic"]]
figure, axes = plt.subplot_mosaic(layout, figsize=(10, 4.2), width_ratios=[1.4, 1, 1], layout="constrained")
for (loss, found), marker in zip(scores.items(), "osv^", strict=True):
    axes["curves"].plot(fractions, found, marker=marker, label=loss)
axes["curves"].set(xlabel="fraction of missing labels", ylabel="accuracy on test images", ylim=(0.6, 1))
axes["curves"].legend(loc="lower left")
axes["image"].imshow(X_test[0][..., 0], cmap="gray")
for name, picture in {"truth": truth, **pictures}.items():
    axes[name].imshow(picture, cmap="viridis", vmin=1, vmax=5, interpolation="nearest")
for name, axis in axes.items():
    if name != "curves":
        axis.set(title=name, xticks=[], yticks=[])

# sphinx_gallery_start_ignore
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("partial_labels.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"labels: {picture}")
# sphinx_gallery_end_ignore

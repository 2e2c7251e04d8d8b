"""
Denoise binary images
=====================

A picture in black and white, so noisy that a pixel alone says next to nothing. Its neighbours know more. This
example fits one model twice, without and with edges between neighbours, and puts the errors side by side.

Run as a script, it shows a progress bar, prints both errors and leaves a picture in the current folder.
"""

# %%
# The data
# --------
#
# Smooth shapes, with the noise of Domke (2013). At this level, whoever looks at one pixel at a time is
# wrong 43 times in 100: little better than a coin. The images to learn from are few and small; those to
# predict are larger, for the weights of a field do not care about size.

from skcrf.datasets import make_binary_denoising

X_train, Y_train = make_binary_denoising(n_images=10, shape=(32, 32), noise=1.25, random_state=0)
X_test, Y_test = make_binary_denoising(n_images=12, shape=(64, 96), noise=1.25, random_state=2)

# %%
# Without neighbours
# ------------------
#
# Belief propagation that may send no message is the independent model: logistic regression on pixels. This
# is the baseline that a field has to beat.

from skcrf import GridCRFClassifier
from skcrf.inference import BP, TRW

independent = GridCRFClassifier(inference=BP(max_iter=0)).fit(X_train, Y_train)

# %%
# With neighbours
# ---------------
#
# Ten iterations of tree-reweighted belief propagation, and weights that are fitted so that *the marginals
# after these ten iterations* predict the labels well. scikit-learn's progress bar counts the steps of the
# optimizer.

from sklearn.callback import ProgressBar

crf = GridCRFClassifier(inference=TRW(max_iter=10), loss="univariate_logistic", tol=2e-3, n_jobs=2)
crf.set_callbacks(ProgressBar()).fit(X_train, Y_train)

for name, model in [("independent model", independent), ("CRF", crf)]:
    print(f"{name:<18} test error {1 - model.score(X_test, Y_test):.3f}")

# %%
# What they believe
# -----------------
#
# The independent model is unsure of everything. The field is sure inside the shapes and unsure along their
# borders: its marginals know where errors are to be expected.

import matplotlib.pyplot as plt

from skcrf.plotting import LossCurveDisplay, MarginalsDisplay

figure = plt.figure(figsize=(10, 4.6), layout="constrained")
halves = figure.subfigures(2, 1)
for half, name, model in zip(halves, ["Independent model", "CRF"], [independent, crf], strict=True):
    display = MarginalsDisplay.from_estimator(model, X_test, Y_test, n_images=1, fig=half)
    display.legend_.remove()  # the colours are those of the bar
    half.suptitle(name, fontweight="bold")

# %%
# How the fit went
# ----------------
#
# It starts from the independent model. The objective is the mean loss of a pixel plus a small ridge
# penalty.

LossCurveDisplay.from_estimator(crf, name="CRF")

# sphinx_gallery_start_ignore
# On a page of the gallery the figures are there to see; on its own the script leaves a picture.
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("binary_denoising.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"marginals: {picture}")
# sphinx_gallery_end_ignore

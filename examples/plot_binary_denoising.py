"""
Denoise binary images
=====================

This example denoises binary images with strong noise. It fits the same model without and with edges
between neighbouring pixels and compares the test errors.

Run as a script, it shows a progress bar, prints both errors and saves a figure in the current folder.
"""

# %%
# Data
# ----
#
# Smooth shapes with the noise of Domke (2013). At this noise level, a classifier of single pixels has an
# error of 43 %. The training images are few and small. The test images are larger: the weights of a
# random field do not depend on the size of the images.

from skcrf.datasets import make_binary_denoising

X_train, Y_train = make_binary_denoising(n_images=10, shape=(32, 32), noise=1.25, random_state=0)
X_test, Y_test = make_binary_denoising(n_images=12, shape=(64, 96), noise=1.25, random_state=2)

# %%
# Independent model
# -----------------
#
# Belief propagation without iterations gives the independent model, a logistic regression on pixels. It
# is the baseline.

from skcrf import GridCRFClassifier
from skcrf.inference import BP, TRW

independent = GridCRFClassifier(inference=BP(max_iter=0)).fit(X_train, Y_train)

# %%
# Conditional random field
# ------------------------
#
# Inference is ten iterations of tree-reweighted belief propagation. The weights are fitted so that *the
# marginals after these ten iterations* predict the labels well. The progress bar of scikit-learn counts
# the steps of the optimizer.

from sklearn.callback import ProgressBar

crf = GridCRFClassifier(inference=TRW(max_iter=10), loss="univariate_logistic", tol=2e-3, n_jobs=2)
crf.set_callbacks(ProgressBar()).fit(X_train, Y_train)

for name, model in [("independent model", independent), ("CRF", crf)]:
    print(f"{name:<18} test error {1 - model.score(X_test, Y_test):.3f}")

# %%
# Marginals
# ---------
#
# The marginals of the independent model are uncertain everywhere. Those of the CRF are certain inside the
# shapes and uncertain along their boundaries, where errors are to be expected.

import matplotlib.pyplot as plt

from skcrf.plotting import LossCurveDisplay, MarginalsDisplay

figure = plt.figure(figsize=(10, 4.6), layout="constrained")
halves = figure.subfigures(2, 1)
for half, name, model in zip(halves, ["Independent model", "CRF"], [independent, crf], strict=True):
    display = MarginalsDisplay.from_estimator(model, X_test, Y_test, n_images=1, fig=half)
    display.legend_.remove()  # the colour bar shows the same colours
    half.suptitle(name, fontweight="bold")

# %%
# Loss curve
# ----------
#
# The fit starts from the independent model. The objective is the mean loss per pixel plus a small ridge
# penalty.

LossCurveDisplay.from_estimator(crf, name="CRF")

# sphinx_gallery_start_ignore
# Save the figure, unless the gallery shows it.
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("binary_denoising.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"marginals: {picture}")
# sphinx_gallery_end_ignore

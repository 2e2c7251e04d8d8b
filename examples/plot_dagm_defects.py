"""
Detect defects from coarse labels
=================================

Defects are often labelled coarsely, by an ellipse around each of them. This example learns from such
ellipses, with directed models and with a random field. It also draws exact samples from a directed model
and computes exact probabilities of labels.

Run as a script, it prints the results and saves a figure in the current folder.
"""

# %%
# Data
# ----
#
# Textures with scratches and blots. The features of a pixel are the absolute responses of filters of
# several widths, as some defects are bright and some dark.

import numpy as np
from scipy import ndimage

from skcrf.datasets import make_texture_defects


def filtered(X):
    """Smooth at several scales and take absolute values."""
    widths = (0.7, 1.0, 1.5, 2.5)
    smooth = [np.abs(ndimage.gaussian_filter(X, (0, width, width), mode="constant")) for width in widths]
    return np.stack([image / image.std() for image in smooth], axis=-1)


X_train, weak, _ = make_texture_defects(n_images=10, shape=(56, 56), contrast=2.0, random_state=0)
X_test, _, Y_test = make_texture_defects(n_images=10, shape=(56, 56), contrast=2.0, random_state=1)

# %%
# Hidden labels
# -------------
#
# Pixels outside the ellipses are labelled 0, pixels near their centres 1. All other labels are hidden.


def read(ellipses):
    """Label the centres 1 and the outside 0, and mask all other pixels."""
    hidden = ellipses == 1
    for i in np.flatnonzero(hidden.any(axis=(1, 2))):
        depth = ndimage.distance_transform_edt(np.pad(ellipses[i], 1))[1:-1, 1:-1]
        hidden[i] &= depth <= 0.75 * depth.max()
    return np.ma.masked_array(ellipses, hidden)


Y_train = read(weak)
print(f"{(Y_train == 1).sum()} pixels labelled as defects, {Y_train.mask.sum()} hidden")

# %%
# Four models
# -----------
#
# In the directed model (DAGM) the label of a pixel depends on its features and on the labels above and to
# the left. If all labels were known, its likelihood would be a logistic regression; hidden labels are
# summed out (EM). The same model can be fitted by the univariate logistic loss of its marginals, as the
# random field is. The model without edges is the baseline.

from sklearn.metrics import average_precision_score

from skcrf import GridCRFClassifier, GridDAGMClassifier
from skcrf.inference import BP

models = {
    "independent": GridCRFClassifier(inference=BP(max_iter=0)),
    "DAGM, likelihood": GridDAGMClassifier(inference=BP(max_iter=5), max_iter=30, tol=1e-3),
    "DAGM, marginals": GridDAGMClassifier(inference=BP(max_iter=2), loss="univariate_logistic"),
    "CRF, marginals": GridCRFClassifier(),
}
marginals = {}
for name, model in models.items():
    model.set_params(n_jobs=2).fit(filtered(X_train), Y_train)
    marginals[name] = model.predict_proba(filtered(X_test))[..., 1]
    precision = average_precision_score(Y_test.ravel(), marginals[name].ravel())
    print(f"{name:<18} average precision {precision:.2f}")

# %%
# The random field uses the neighbours on all sides and is slightly better. The marginals of the directed
# model depend only on the pixels above and to the left, so that detected defects are smeared down and to
# the right.
#
# Samples and probabilities
# -------------------------
#
# A directed model draws label images exactly, every pixel after its parents. It also computes the
# probability of any label image, without approximating a partition function.

directed = models["DAGM, marginals"]
shown = 3
seen = filtered(X_test[[shown]])
samples = directed.sample(seen, n_samples=200, random_state=0)[0]
truth, nothing = directed.log_likelihood(np.repeat(seen, 2, axis=0), [Y_test[shown], 0 * Y_test[shown]])
print(f"log-probability of the true labels {truth:.1f}, of no defect at all {nothing:.1f}")

# %%
# Marginals and samples
# ---------------------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
for axis, (title, image, options) in zip(
    axes.ravel(),
    [
        ("Image, true defect", X_test[shown], {"cmap": "gray", "vmin": -3, "vmax": 3}),
        *((name, P[shown], {"cmap": "magma", "vmin": 0, "vmax": 1}) for name, P in marginals.items()),
        ("One sample", samples[0], {"cmap": "magma", "vmin": 0, "vmax": 1}),
        ("Another sample", samples[1], {"cmap": "magma", "vmin": 0, "vmax": 1}),
        ("Mean of 200 samples", samples.mean(axis=0), {"cmap": "magma", "vmin": 0, "vmax": 1}),
    ],
    strict=True,
):
    axis.imshow(image, **options)
    axis.contour(Y_test[shown], [0.5], colors="tab:cyan", linewidths=1)
    axis.set_title(title, fontsize=10)
    axis.set_axis_off()

# sphinx_gallery_start_ignore
# Save the figure, unless the gallery shows it.
import sys
from pathlib import Path

if "sphinx_gallery" not in sys.modules:
    picture = Path("dagm_defects.png").resolve()
    figure.savefig(picture, dpi=80)
    print(f"marginals and samples: {picture}")
# sphinx_gallery_end_ignore

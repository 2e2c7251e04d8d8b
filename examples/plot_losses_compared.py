"""
Compare losses
==============

This example fits the same model with the losses of Domke (2013) to the denoising problem of section 8.2
of that paper, on small images.
"""

# %%
# Fits
# ----
#
# Univariate and clique losses are functions of the marginals. The likelihood and surrogate EM use the
# partition function. Pseudolikelihoods and piecewise training do not call the inference.

import time

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import BP, TRW

X_train, Y_train = make_binary_denoising(n_images=6, shape=(32, 32), noise=1.25, random_state=0)
X_test, Y_test = make_binary_denoising(n_images=8, shape=(48, 64), noise=1.25, random_state=1)

losses = ["univariate_logistic", "univariate_quadratic", "smoothed_classification"]
losses += ["clique_logistic", "clique_quadratic", "clique_smoothed"]
losses += ["likelihood", "em", "pseudolikelihood", "patch_pseudolikelihood", "piecewise"]
models, seconds = {}, {}
for name in losses:
    start = time.perf_counter()
    models[name] = GridCRFClassifier(inference=TRW(max_iter=20), loss=name, tol=3e-3).fit(X_train, Y_train)
    seconds[name] = time.perf_counter() - start
models["independent"] = GridCRFClassifier(inference=BP(max_iter=0)).fit(X_train, Y_train)

errors = {name: 1 - model.score(X_test, Y_test) for name, model in models.items()}
for name, error in sorted(errors.items(), key=lambda item: item[1]):
    print(f"{name:<26} test error {error:.3f}   {seconds.get(name, 0):5.1f} s")

# %%
# Errors
# ------
#
# Marginal-based losses have similar errors, and so has the likelihood, as the model suits such smooth
# shapes. On photographs the likelihood is worse (Table 1 of Domke, and ``benchmarks/denoising.py``).
#
# Pseudolikelihoods are trained with the true labels of the neighbours, which are not available in
# prediction, and overestimate the couplings: whole images can become one colour. Piecewise training
# counts the influence of neighbours several times. With strong noise both can be worse than the model
# without edges (grey); with less noise, ``noise=5``, they are as good as the others.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
names = sorted(errors, key=errors.get, reverse=True)
colours = ["0.6" if name == "independent" else "C0" for name in names]
bars = axes.barh(names, [100 * errors[name] for name in names], color=colours)
axes.bar_label(bars, fmt="%.1f", padding=3)
axes.set(xlabel="test error in %", xlim=(0, 60))
axes.spines[["top", "right"]].set_visible(False)

# %%
# Marginals
# ---------
#
# Marginals of three of the models on the same image.

from skcrf.plotting import MarginalsDisplay

chosen = ["univariate_logistic", "likelihood", "pseudolikelihood"]
figure = plt.figure(figsize=(9, 6.5), layout="constrained")
for part, name in zip(figure.subfigures(3, 1), chosen, strict=True):
    MarginalsDisplay.from_estimator(models[name], X_test, Y_test, n_images=1, fig=part).legend_.remove()
    part.suptitle(name, fontweight="bold")

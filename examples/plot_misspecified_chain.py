"""
Losses under model misspecification
===================================

If the model is right, all losses have similar errors. If it is wrong, marginal-based losses are more
accurate than the likelihood. This is a small version of Figure 1 of Domke (2013), on chains, where
inference is exact.
"""

# %%
# Data
# ----
#
# The labels form a chain, and so do the observations; each label is also connected to the observation at
# its position. All parameters are drawn at random. Sequences are drawn exactly, by a backward and a
# forward pass.

import numpy as np

LENGTH = 20
LABEL, SEEN = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])  # the four states of a position


def draw_chains(n_chains, rng):
    """Draw a model, then labels and observations from it, both of shape (n_chains, LENGTH)."""

    def agree(a, b):
        return np.where(a == b, 1.0, -1.0)

    bias, (label_label, seen_seen, label_seen) = rng.uniform(-1, 1, size=2), rng.uniform(-1, 1, size=3)
    node = np.exp(bias[LABEL] + label_seen * agree(LABEL, SEEN))
    pair = np.exp(label_label * agree(LABEL[:, None], LABEL) + seen_seen * agree(SEEN[:, None], SEEN))
    ahead = np.ones((LENGTH, 4))  # backward messages
    for i in range(LENGTH - 2, -1, -1):
        ahead[i] = pair @ (node * ahead[i + 1])
        ahead[i] /= ahead[i].sum()
    first = node * ahead[0]
    states = [rng.choice(4, size=n_chains, p=first / first.sum())]
    for i in range(1, LENGTH):
        step = pair * node * ahead[i]
        chance = (step / step.sum(axis=1, keepdims=True)).cumsum(axis=1)[states[-1]]
        states.append((chance < rng.random((n_chains, 1))).sum(axis=1))
    states = np.stack(states, axis=1)
    return LABEL[states], SEEN[states]


# %%
# Fits
# ----
#
# The labels are shifted along the chain, so that the model, in which a label depends on the observation
# at its position, is wrong; more so for larger shifts. A sequence is an image of one row, on which
# ``inference="tree"`` is exact.

from skcrf import GridCRFClassifier

LOSSES = ["likelihood", "clique_logistic", "univariate_logistic"]
SHIFTS = [0, 1, 2, 3, 4]
errors = np.empty((5, len(SHIFTS), len(LOSSES)))
for trial in range(len(errors)):
    labels, seen = draw_chains(400, np.random.default_rng(trial))
    X = seen[:, None, :, None].astype(float)
    for s, shift in enumerate(SHIFTS):
        Y = np.roll(labels, shift, axis=1)[:, None]
        for n, loss in enumerate(LOSSES):
            crf = GridCRFClassifier(inference="tree", loss=loss, alpha=1e-5, tol=1e-3)
            errors[trial, s, n] = 1 - crf.fit(X[:80], Y[:80]).score(X[80:], Y[80:])

# %%
# Errors
# ------
#
# Without a shift all three losses have the same error. With a shift all errors increase, and the
# likelihood, which fits the whole distribution, becomes worse than the marginal-based losses.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for n, (loss, marker) in enumerate(zip(LOSSES, "sd^", strict=True)):
    axes.plot(SHIFTS, 100 * errors[..., n].mean(axis=0), marker=marker, label=loss)
axes.set(
    xlabel="shift of the labels", ylabel="test error in %", xticks=SHIFTS, title="Mean of five random models"
)
axes.legend(frameon=False)

for loss, mean in zip(LOSSES, errors.mean(axis=0).T, strict=True):
    print(f"{loss:<20}", "  ".join(f"{error:.3f}" for error in mean))

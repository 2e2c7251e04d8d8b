"""
Losses for a model that is wrong
================================

Where the model is right, it hardly matters by which loss it is fitted. Where it is wrong, as models of real
data are, losses of the marginals lose less than the likelihood. This is Figure 1 of Domke (2013) in small:
chains, on which inference is exact, so that nothing but the loss and the model is to blame.
"""

# %%
# The data
# --------
#
# Labels ``x`` form a chain, and so do the observations ``y``; each label also talks to the observation at
# its place. All parameters are drawn at random. Sequences are drawn exactly, from the last position to the
# first and back.

import numpy as np

LENGTH = 20
LABEL, SEEN = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])  # the four states of a place


def draw_chains(n_chains, rng):
    """Draw labels and observations, both (n_chains, LENGTH), from a model that is drawn first."""

    def agree(a, b):
        return np.where(a == b, 1.0, -1.0)

    bias, (label_label, seen_seen, label_seen) = rng.uniform(-1, 1, size=2), rng.uniform(-1, 1, size=3)
    node = np.exp(bias[LABEL] + label_seen * agree(LABEL, SEEN))
    pair = np.exp(label_label * agree(LABEL[:, None], LABEL) + seen_seen * agree(SEEN[:, None], SEEN))
    ahead = np.ones((LENGTH, 4))  # what the places behind say of a state
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
# After drawing, the labels are shifted along the chain, so that a label no longer belongs to the
# observation at its place: the model, a chain of labels that each look at one observation, is wrong, and
# the more so the larger the shift. A sequence is an image of one row, and ``inference="tree"`` is exact on
# it.

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
# Without a shift all three agree. With it, everybody gets worse, and the likelihood, which wants the whole
# distribution to be right, gets worse than the losses that ask for marginals alone.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for n, (loss, marker) in enumerate(zip(LOSSES, "sd^", strict=True)):
    axes.plot(SHIFTS, 100 * errors[..., n].mean(axis=0), marker=marker, label=loss)
axes.set(
    xlabel="shift of the labels", ylabel="test error, %", xticks=SHIFTS, title="Mean of five random models"
)
axes.legend(frameon=False)

for loss, mean in zip(LOSSES, errors.mean(axis=0).T, strict=True):
    print(f"{loss:<20}", "  ".join(f"{error:.3f}" for error in mean))

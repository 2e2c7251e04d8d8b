"""Definitions of all losses, slow and obvious, and the graphs and inferences that each supports."""

import itertools
import zlib

import fields
import methods
import numpy as np
import pytest
import reference

from skcrf.gradients import GRADIENTS
from skcrf.graph import clamp
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES

#: Inferences that are combined with every loss; enumeration is slow, and the same as "exact".
COMBINED = {name: cls for name, cls in methods.LEARNING.items() if name != "bruteforce"}

TRUNCATED = {"max_iter": 2}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}


def wrapped(cls, **parameters):
    """Build an inference with those of the parameters that it has, wrapped by back-propagation."""
    return GRADIENTS["backprop"]().wrap(methods.build(cls, **parameters))


def takes(loss, graph):
    """Return whether a loss claims to support a graph."""
    lattices = (graph.shapes[:, 0] > 0) | (np.diff(graph.edge_ptr) == 0)
    graphs = LOSSES[loss].graphs
    return graphs == "any" or (graph.layout == "pairwise" and (graphs == "pairwise" or lattices.all()))


def calls_inference(loss):
    """Return whether a loss claims to call the inference."""
    return bool(LOSSES[loss]().needs | LOSSES[loss]().tasks)


def able(loss, cls):
    """Return whether an inference claims the tasks and the derivatives that a loss needs."""
    return LOSSES[loss]().tasks <= cls.tasks and LOSSES[loss]().needs <= cls.differentiates


def hidden_share(loss, hidden):
    """Return the share of hidden labels, 0 for losses that do not support them."""
    return hidden if LOSSES[loss]().takes_hidden_labels else 0.0


def cases(*titles):
    """List every loss with every inference on every supported graph; losses without inference once."""
    return [
        pytest.param(loss, cls, fields.ALL[title], id=f"{loss}-{name}-{title}")
        for loss in LOSSES
        for name, cls in (COMBINED if calls_inference(loss) else {"exact": INFERENCE["exact"]}).items()
        for title in titles
        if methods.supported(cls, {title: fields.ALL[title]})
        if takes(loss, fields.ALL[title])
        if able(loss, cls)
    ]


def cases_by_method(*titles):
    """List every loss with every inference and a dict of the graphs of `cases`."""
    found = {}
    for case, (loss, cls, graph) in ((case.id, case.values) for case in cases(*titles)):
        found.setdefault((loss, cls), {})[case.rsplit("-", 1)[1]] = graph
    return [
        pytest.param(loss, cls, graphs, id=f"{loss}-{cls.__name__}") for (loss, cls), graphs in found.items()
    ]


def by_example(graph, terms):
    """Sum (node, value) pairs over examples."""
    total = np.zeros(graph.n_examples)
    for node, value in terms:
        total[np.searchsorted(graph.node_ptr, node, side="right") - 1] += value
    return total


# ---------------------------------------------------------------------------------------- definitions


def logistic(p, right):
    return -np.log(p[right])


def quadratic(p, right):
    return sum((p[x] - (x == right)) ** 2 for x in range(len(p)))


def smoothed(p, right):
    others = [p[x] for x in range(len(p)) if x != right]
    return 1 / (1 + np.exp(-15.0 * (max(others) - p[right]))) if others else 0.0


def univariate(pointwise):
    def value(graph, mu, edge_mu, y):
        return by_example(graph, [(i, pointwise(mu[i], y[i])) for i in range(graph.n_nodes) if y[i] >= 0])

    return value


def clique(pointwise):
    def value(graph, mu, edge_mu, y):
        terms, scopes = [], reference.links(graph)[0]
        for e, scope in enumerate(scopes):
            known = [s for s, i in enumerate(scope) if y[i] >= 0]
            if known:
                joint = reference.joint_of(graph, edge_mu, e)
                joint = joint.sum(axis=tuple(s for s in range(len(scope)) if s not in known))
                right = np.ravel_multi_index([y[scope[s]] for s in known], joint.shape)
                terms.append((scope[0], pointwise(joint.ravel(), right)))
        for i in set(range(graph.n_nodes)) - {i for scope in scopes for i in scope}:
            if y[i] >= 0:
                terms.append((i, pointwise(mu[i], y[i])))
        return by_example(graph, terms)

    return value


def likelihood_of(graph, theta, y, nodes):
    """Compute minus log p(labels of some nodes | labels of all others) by enumeration.

    Hidden labels are summed out among the nodes, and left out among the others.
    """
    cards = reference.cards_of(graph, theta)
    allowed = [range(cards[i]) if i in nodes else [y[i]] for i in range(graph.n_nodes)]
    free, agreeing = [], []
    for x in itertools.product(*allowed):
        score = sum(theta.unary[i, x[i]] for i in nodes)
        for e, scope in enumerate(reference.links(graph)[0]):
            if nodes & set(scope) and all(x[i] >= 0 for i in scope):
                score += reference.table_of(graph, theta, e)[tuple(x[i] for i in scope)]
        free.append(score)
        if all(y[i] < 0 or x[i] == y[i] for i in nodes):
            agreeing.append(score)
    return reference.logsumexp(np.array(free)) - reference.logsumexp(np.array(agreeing))


def pseudolikelihood(graph, theta, y):
    return by_example(
        graph, [(i, likelihood_of(graph, theta, y, {i})) for i in range(graph.n_nodes) if y[i] >= 0]
    )


def patch_pseudolikelihood(graph, theta, y, size=2):
    terms = []
    for (height, width), first, last in zip(
        graph.shapes, graph.node_ptr[:-1], graph.node_ptr[1:], strict=True
    ):
        patches = {}
        for node in range(first, last):
            row, column = divmod(node - first, width) if height > 0 else (node, 0)
            patches.setdefault((row // size, column // size), set()).add(node)
        for nodes in patches.values():
            if any(y[i] >= 0 for i in nodes):
                terms.append((first, likelihood_of(graph, theta, y, nodes)))
    return by_example(graph, terms)


def piecewise(graph, theta, y, pieces="cliques"):
    scopes = reference.links(graph)[0]
    degree = np.bincount([i for scope in scopes for i in scope], minlength=graph.n_nodes)
    terms = []
    for e, scope in enumerate(scopes):
        if all(y[i] < 0 for i in scope):
            continue
        table, free, agreeing = reference.table_of(graph, theta, e), [], []
        for x in itertools.product(*map(range, table.shape)):
            score = table[x]
            if pieces == "shared":
                score += sum(theta.unary[i, a] / degree[i] for i, a in zip(scope, x, strict=True))
            free.append(score)
            if all(y[i] in (-1, a) for i, a in zip(scope, x, strict=True)):
                agreeing.append(score)
        value = reference.logsumexp(np.array(free)) - reference.logsumexp(np.array(agreeing))
        terms.append((scope[0], value))
    for i in range(graph.n_nodes):
        if y[i] >= 0 and (pieces == "cliques" or degree[i] == 0):
            terms.append((i, reference.logsumexp(theta.unary[i]) - theta.unary[i, y[i]]))
    return by_example(graph, terms)


def mean_field_beside(inference):
    """Build mean field with the iterations of an inference; converged if that does not iterate."""
    return methods.build(INFERENCE["mean_field"], **{"max_iter": 1000, "tol": 1e-8} | inference.get_params())


def difference(clamped):
    """Define log_z of the inference minus log_z of a second inference with the labels clamped."""

    def value(inference, graph, theta, y):
        labelled = by_example(graph, enumerate(y >= 0))
        log_z = inference.forward(graph, theta).log_z
        return (labelled > 0) * (log_z - clamped(inference).forward(graph, clamp(theta, y)).log_z)

    return value


def costs(theta, y, cost=1.0):
    """Add costs of wrong states to the potentials: one cost, one per node, or a table of right and wrong."""
    unary = theta.unary.copy()
    for i in np.flatnonzero(y >= 0):
        own = cost[y[i]] if np.ndim(cost) == 2 else np.full(unary.shape[1], np.resize(cost, len(y))[i])
        unary[i] += [0.0 if x == y[i] else own[x] for x in range(unary.shape[1])]
    return theta._replace(unary=unary)


def margin(eps_y, eps_h):
    """Define P16 Eq 4.6 at temperatures 0 and 1; examples without hidden nodes have one temperature."""

    def value(inference, graph, theta, y):
        hidden = by_example(graph, enumerate(y < 0))
        known = inference.forward(graph, costs(theta, y), eps_y).log_z
        if (hidden > 0).any():
            tau = eps_y if eps_y == eps_h else np.where(y >= 0, eps_y, eps_h)
            some = inference.forward(graph, costs(theta, y), tau).log_z
            known = np.where(hidden > 0, some, known)
        clamped = inference.forward(graph, clamp(theta, y), eps_h).log_z
        return (by_example(graph, enumerate(y >= 0)) > 0) * (known - clamped)

    return value


def soft_max(values, eps):
    """Compute eps log sum exp(values / eps), the maximum at temperature 0."""
    values = np.array(values)
    if eps == 0 or values.max() == -np.inf:
        return values.max()
    return eps * reference.logsumexp(values / eps)


def unified(graph, theta, y, eps_y, eps_h, cost=1.0):
    """Compute P16 Eq 4.6 by enumeration: the outer sum is over labels, the inner over hidden labels."""
    answers = []
    for example, part in enumerate(reference.parts(graph, costs(theta, y, cost))):
        labels = y[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        x = reference.configurations(part)
        score, groups = reference.scores(part, x), {}
        for row, value in zip(x, score, strict=True):
            groups.setdefault(tuple(row[labels >= 0]), []).append(value)
        inner = {key: soft_max(values, eps_h) for key, values in groups.items()}
        right = inner[tuple(labels[labels >= 0])]  # correct labels have no cost
        answers.append(soft_max(list(inner.values()), eps_y) - right if (labels >= 0).any() else 0.0)
    return np.array(answers)


def score_of(graph, theta, x):
    """Compute the score of a configuration, per example."""
    rows = (x[first:last] for first, last in itertools.pairwise(graph.node_ptr))
    each = zip(reference.parts(graph, theta), rows, strict=True)
    return np.array([reference.scores(part, row[None])[0] for part, row in each])


def contrastive_divergence(graph, theta, y, random_state=0):
    """Compare the labels with a sample that starts from them; all examples have the index 0."""
    own = [np.append(y[first:last].astype(np.int64), 0) for first, last in itertools.pairwise(graph.node_ptr)]
    free, hidden = ([zlib.crc32(labels, seed) for labels in own] for seed in (random_state, random_state + 1))
    right = INFERENCE["gibbs"]().sample(graph, clamp(theta, y), init=y, seeds=hidden)
    x = INFERENCE["gibbs"]().sample(graph, theta, init=right, seeds=free)
    labelled = by_example(graph, enumerate(y >= 0)) > 0
    return np.where(labelled, score_of(graph, theta, x) - score_of(graph, theta, right), 0.0)


def largest_marginals(marginals):
    """Define the score of the largest marginals minus the same with the labels clamped."""

    def best(graph, theta, mu):
        return score_of(graph, theta, mu.argmax(axis=1))

    def value(inference, graph, theta, y):
        labelled, clamped = by_example(graph, enumerate(y >= 0)) > 0, clamp(theta, y)
        free = best(graph, theta, marginals(inference, graph, theta))
        return np.where(labelled, free - best(graph, theta, marginals(inference, graph, clamped)), 0.0)

    return value


def inferred_marginals(inference, graph, theta):
    return inference.forward(graph, theta).mu


#: Losses of the marginals.
OF_MARGINALS = {
    "univariate_logistic": univariate(logistic),
    "univariate_quadratic": univariate(quadratic),
    "smoothed_classification": univariate(smoothed),
    "clique_logistic": clique(logistic),
    "clique_quadratic": clique(quadratic),
    "clique_smoothed": clique(smoothed),
}
#: Losses that are differences of log-partition functions.
OF_LOG_Z = {
    "likelihood": difference(lambda inference: inference),
    "em": difference(mean_field_beside),
    "hinge": margin(0.0, 0.0),
    "latent_hinge": margin(0.0, 0.0),
    "marginal_hinge": margin(0.0, 1.0),
    "unified": margin(1.0, 1.0),
}
#: Max-margin losses and their temperatures.
TEMPERATURES = {
    "hinge": (0.0, 0.0),
    "latent_hinge": (0.0, 0.0),
    "marginal_hinge": (0.0, 1.0),
    "unified": (1.0, 1.0),
}
#: Losses of the configuration with the largest marginals.
OF_LARGEST_MARGINALS = {"maximum_marginal": largest_marginals(inferred_marginals)}
#: Losses that compare the labels with one configuration, so that they may be negative.
OF_ONE_CONFIGURATION = {"contrastive_divergence", "maximum_marginal"}
#: Losses that call no inference.
OF_THETA = {
    "contrastive_divergence": contrastive_divergence,
    "pseudolikelihood": pseudolikelihood,
    "patch_pseudolikelihood": patch_pseudolikelihood,
    "piecewise": piecewise,
}


def defined(loss, inference, graph, theta, y):
    """Compute a loss by its definition, with the beliefs of an inference."""
    if loss in OF_THETA:
        return OF_THETA[loss](graph, theta, y)
    if loss in OF_LOG_Z | OF_LARGEST_MARGINALS:
        return (OF_LOG_Z | OF_LARGEST_MARGINALS)[loss](inference, graph, theta, y)
    beliefs = inference.forward(graph, theta, edges=True)
    return OF_MARGINALS[loss](graph, beliefs.mu, beliefs.edge_mu, y)


def exact(loss, graph, theta, y):
    """Compute a loss with exact inference by enumeration."""
    if loss in OF_THETA:
        return OF_THETA[loss](graph, theta, y)
    if loss in TEMPERATURES:
        return unified(graph, theta, y, *TEMPERATURES[loss])
    if loss in OF_LOG_Z:
        return -reference.log_probability(graph, theta, y)
    if loss in OF_LARGEST_MARGINALS:
        return largest_marginals(lambda _, *field: reference.marginals(*field)[0])(None, graph, theta, y)
    return OF_MARGINALS[loss](graph, *reference.marginals(graph, theta), y)

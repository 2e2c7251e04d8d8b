"""What every loss is, slow and obvious, and which of them take what."""

import itertools
import zlib

import numpy as np
import pytest
import reference
import zoo

from skcrf.gradients import GRADIENTS
from skcrf.graph import clamp
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES
from skcrf.training.learning import serves

TRUNCATED = {"max_iter": 2}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}


def wrapped(cls, **parameters):
    return GRADIENTS["backprop"]().wrap(zoo.build(cls, **parameters))


def takes(loss, graph):
    """Whether a loss claims to take a graph."""
    drawn = (graph.shapes[:, 0] > 0) | (np.diff(graph.edge_ptr) == 0)
    kind = LOSSES[loss].graphs
    return kind == "any" or (graph.layout == "pairwise" and (kind == "pairwise" or drawn.all()))


def able(loss, cls):
    """Whether an inference claims the tasks that a loss asks for."""
    return serves(cls, LOSSES[loss]())


def hides(loss, hidden):
    """The share of hidden labels that a loss claims to take."""
    return hidden if LOSSES[loss].hidden_labels else 0.0


def cases(*titles):
    """Every loss with every inference on every graph that neither refuses; with one where it calls none."""
    return [
        pytest.param(loss, cls, zoo.ALL[title], id=f"{loss}-{name}-{title}")
        for loss in LOSSES
        for name, cls in zoo.LEARNING.items()
        for title in titles
        if zoo.asked(cls, {title: zoo.ALL[title]})
        if takes(loss, zoo.ALL[title]) and (LOSSES[loss].needs or name == "bruteforce")
        if able(loss, cls)
    ]


def asked(*titles):
    """Every loss with every inference, and a dict of the graphs of `cases`."""
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


def univariate(judge):
    def value(graph, mu, edge_mu, y):
        return by_example(graph, [(i, judge(mu[i], y[i])) for i in range(graph.n_nodes) if y[i] >= 0])

    return value


def clique(judge):
    def value(graph, mu, edge_mu, y):
        terms, scopes = [], reference.links(graph)[0]
        for e, scope in enumerate(scopes):
            known = [s for s, i in enumerate(scope) if y[i] >= 0]
            if known:
                joint = reference.joint_of(graph, edge_mu, e)
                joint = joint.sum(axis=tuple(s for s in range(len(scope)) if s not in known))
                right = np.ravel_multi_index([y[scope[s]] for s in known], joint.shape)
                terms.append((scope[0], judge(joint.ravel(), right)))
        for i in set(range(graph.n_nodes)) - {i for scope in scopes for i in scope}:
            if y[i] >= 0:
                terms.append((i, judge(mu[i], y[i])))
        return by_example(graph, terms)

    return value


def likelihood_of(graph, theta, y, nodes):
    """Minus log p(labels of some nodes | labels of all others), hidden others left out, by enumeration.

    The hidden ones among the nodes are summed out.
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
    """Mean field with the iterations of an inference; to convergence beside one that has none."""
    return zoo.build(INFERENCE["mean_field"], **{"max_iter": 1000, "tol": 1e-8} | inference.get_params())


def difference(clamped):
    """log_z of the inference minus log_z with the labels clamped, by the one that stands beside it."""

    def value(inference, graph, theta, y):
        labelled = by_example(graph, enumerate(y >= 0))
        log_z = inference.forward(graph, theta).log_z
        return (labelled > 0) * (log_z - clamped(inference).forward(graph, clamp(theta, y)).log_z)

    return value


def costs(theta, y, cost=1.0):
    """Potentials with what each state costs at labelled nodes: by nodes, or by right and wrong ones."""
    unary = theta.unary.copy()
    for i in np.flatnonzero(y >= 0):
        own = cost[y[i]] if np.ndim(cost) == 2 else np.full(unary.shape[1], np.resize(cost, len(y))[i])
        unary[i] += [0.0 if x == y[i] else own[x] for x in range(unary.shape[1])]
    return theta._replace(unary=unary)


def margin(eps_y, eps_h):
    """P16 Eq 4.6 at temperatures 0 and 1, by an inference; examples without hidden nodes have one of them."""

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
    """The largest value at temperature 0, else eps log sum exp(values / eps); -inf where all are."""
    values = np.array(values)
    if eps == 0 or values.max() == -np.inf:
        return values.max()
    return eps * reference.logsumexp(values / eps)


def unified(graph, theta, y, eps_y, eps_h, cost=1.0):
    """P16 Eq 4.6 by enumeration: labels outside, hidden labels inside."""
    answers = []
    for example, part in enumerate(reference.parts(graph, costs(theta, y, cost))):
        labels = y[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        x = reference.configurations(part)
        score, groups = reference.scores(part, x), {}
        for row, value in zip(x, score, strict=True):
            groups.setdefault(tuple(row[labels >= 0]), []).append(value)
        inner = {key: soft_max(values, eps_h) for key, values in groups.items()}
        right = inner[tuple(labels[labels >= 0])]  # what is right costs nothing
        answers.append(soft_max(list(inner.values()), eps_y) - right if (labels >= 0).any() else 0.0)
    return np.array(answers)


def score_of(graph, theta, x):
    """The score of a configuration, of each example."""
    rows = (x[first:last] for first, last in itertools.pairwise(graph.node_ptr))
    each = zip(reference.parts(graph, theta), rows, strict=True)
    return np.array([reference.scores(part, row[None])[0] for part, row in each])


def contrastive_divergence(graph, theta, y, random_state=0):
    """What a sweep of the sampler makes of the labels, seeded by these; all examples have the number 0."""
    own = [np.append(y[first:last].astype(np.int64), 0) for first, last in itertools.pairwise(graph.node_ptr)]
    free, hidden = ([zlib.crc32(labels, seed) for labels in own] for seed in (random_state, random_state + 1))
    right = INFERENCE["gibbs"]().sample(graph, clamp(theta, y), init=y, seeds=hidden)
    x = INFERENCE["gibbs"]().sample(graph, theta, init=right, seeds=free)
    labelled = by_example(graph, enumerate(y >= 0)) > 0
    return np.where(labelled, score_of(graph, theta, x) - score_of(graph, theta, right), 0.0)


def rounded(marginals):
    """The score where marginals are largest, minus that with the labels clamped."""

    def best(graph, theta, mu):
        return score_of(graph, theta, mu.argmax(axis=1))

    def value(inference, graph, theta, y):
        labelled, clamped = by_example(graph, enumerate(y >= 0)) > 0, clamp(theta, y)
        free = best(graph, theta, marginals(inference, graph, theta))
        return np.where(labelled, free - best(graph, theta, marginals(inference, graph, clamped)), 0.0)

    return value


#: The losses that are functions of the marginals.
OF_MARGINALS = {
    "univariate_logistic": univariate(logistic),
    "univariate_quadratic": univariate(quadratic),
    "smoothed_classification": univariate(smoothed),
    "clique_logistic": clique(logistic),
    "clique_quadratic": clique(quadratic),
    "clique_smoothed": clique(smoothed),
}
#: The losses that are differences of log-partition functions.
OF_LOG_Z = {
    "likelihood": difference(lambda inference: inference),
    "em": difference(mean_field_beside),
    "hinge": margin(0.0, 0.0),
    "latent_hinge": margin(0.0, 0.0),
    "marginal_hinge": margin(0.0, 1.0),
    "unified": margin(1.0, 1.0),
}
#: Those of them that have costs: their temperatures.
TEMPERATURES = {
    "hinge": (0.0, 0.0),
    "latent_hinge": (0.0, 0.0),
    "marginal_hinge": (0.0, 1.0),
    "unified": (1.0, 1.0),
}
#: The losses that read a configuration off the marginals.
OF_ROUNDED = {"maximum_marginal": rounded(lambda inference, graph, theta: inference.forward(graph, theta).mu)}
#: The losses that ask no inference.
OF_THETA = {
    "contrastive_divergence": contrastive_divergence,
    "pseudolikelihood": pseudolikelihood,
    "patch_pseudolikelihood": patch_pseudolikelihood,
    "piecewise": piecewise,
}


def defined(loss, inference, graph, theta, y):
    """The value of a loss by its definition, with what an inference says."""
    if loss in OF_THETA:
        return OF_THETA[loss](graph, theta, y)
    if loss in OF_LOG_Z | OF_ROUNDED:
        return (OF_LOG_Z | OF_ROUNDED)[loss](inference, graph, theta, y)
    beliefs = inference.forward(graph, theta, edges=True)
    return OF_MARGINALS[loss](graph, beliefs.mu, beliefs.edge_mu, y)


def exact(loss, graph, theta, y):
    """The value of a loss by enumeration, where its inference is exact."""
    if loss in OF_THETA:
        return OF_THETA[loss](graph, theta, y)
    if loss in TEMPERATURES:
        return unified(graph, theta, y, *TEMPERATURES[loss])
    if loss in OF_LOG_Z:
        return -reference.log_probability(graph, theta, y)
    if loss in OF_ROUNDED:
        return rounded(lambda _, *field: reference.marginals(*field)[0])(None, graph, theta, y)
    return OF_MARGINALS[loss](graph, *reference.marginals(graph, theta), y)

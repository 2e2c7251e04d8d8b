"""Enumeration of all configurations."""

from math import prod
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._examples import ExampleError
from skcrf.graph import FactorGraph, Potentials, as_factors, canonical, sum_by_table
from skcrf.inference._base import BaseInference, Beliefs, check_possible


class _State(NamedTuple):
    graph: FactorGraph
    tables: tuple  # shape of the tables of potentials
    p: list  # probability of each configuration of each example


class BruteForce(BaseInference):
    """Enumerate every configuration: exact on any graph that is small enough.

    Where some nodes are maximised and others summed out (`tau` is an array), the answer is the marginal MAP:
    the states of the maximised nodes that make the sum over the others largest, and beliefs given these.

    Parameters
    ----------
    max_states : int, default=2**20
        Number of configurations of an example beyond which to refuse.

    See Also
    --------
    Tree : Exact on forests of any size.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import BruteForce
    >>> graph = lattice(2, 2)
    >>> theta = Potentials(np.zeros((4, 2)), np.stack([np.eye(2), np.eye(2)]))
    >>> BruteForce().forward(graph, theta).log_z.round(3)
    array([5.298])
    """

    _parameter_constraints = {"max_states": [Interval(Integral, 1, None, closed="left")]}

    tasks = frozenset({"sum", "max", "mixed"})
    layouts = frozenset({"pairwise", "factor"})
    exact_on = "any"

    def __init__(self, max_states=2**20):
        self.max_states = max_states

    def forward(self, graph, theta, tau=1.0, *, edges=False, tape=False):
        self.task_of(graph, tau)
        theta, n_states = canonical(theta), theta.unary.shape[1]
        maximised = np.broadcast_to(np.asarray(tau) == 0, graph.n_nodes)
        if graph.layout == "pairwise":
            graph, pairs = as_factors(graph, n_states), (graph.n_edges, n_states, n_states)
        else:
            pairs = (graph.belief_ptr[-1],)
        flat = theta.tables.reshape(-1)
        log_z, p = np.empty(graph.n_examples), []
        for example in range(graph.n_examples):
            nodes, factors, x = self._configurations(graph, example)
            scores = theta.unary[np.arange(nodes.start, nodes.stop)[:, None], x].sum(axis=0)
            for factor in range(factors.start, factors.stop):
                table = graph.entry_ptr[graph.edge_table[factor]]
                scores += flat[table + _entries(graph, factor, nodes, x)]
            top = scores.max()
            check_possible(graph, (graph.node_example != example) | (top > -np.inf))
            own = maximised[nodes]
            scores[~_best(scores - top, x[own], graph.cards[nodes][own].tolist())] = -np.inf
            # The best choice need not hold the best configuration.
            top = scores.max()
            weight = np.exp(scores - top)
            log_z[example] = top + np.log(weight.sum())
            p.append(weight / weight.sum())
        mu, factor_mu = self._expectation(graph, n_states, p)
        mu[maximised] = mu[maximised] > 0  # no rounding where there is one state
        once = np.ones(graph.n_examples, dtype=np.int64)
        state = _State(graph, theta.tables.shape, p)
        edge_mu = factor_mu.reshape(pairs) if edges else None
        return Beliefs(mu, edge_mu, log_z, once, once.astype(bool), state)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, shape, p = beliefs.state
        # d mu is the covariance of the statistics with their sum weighted by d_mu, and d log_z their mean.
        weights = []
        for example in range(graph.n_examples):
            nodes, factors, x = self._configurations(graph, example)
            value = np.zeros(x.shape[1])
            if d_mu is not None:
                value += d_mu[np.arange(nodes.start, nodes.stop)[:, None], x].sum(axis=0)
            if d_edge_mu is not None:
                flat = d_edge_mu.reshape(-1)
                for factor in range(factors.start, factors.stop):
                    value += flat[graph.belief_ptr[factor] + _entries(graph, factor, nodes, x)]
            value -= p[example] @ value
            weights.append(p[example] * (value + (0.0 if d_log_z is None else d_log_z[example])))
        d_unary, d_factors = self._expectation(graph, beliefs.mu.shape[1], weights)
        return Potentials(d_unary, sum_by_table(graph, d_factors).reshape(shape))

    def _configurations(self, graph, example):
        """Return the example's nodes, factors, and configurations (n_nodes, n_configurations)."""
        nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
        factors = slice(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        cards = graph.cards[nodes].tolist()
        n_states = prod(cards)
        if n_states > self.max_states:
            powers = " * ".join(f"{card}**{cards.count(card)}" for card in sorted(set(cards)))
            raise ExampleError(
                f"BruteForce would enumerate {powers} configurations of {{example}}, "
                f"more than max_states={self.max_states}.",
                example,
            )
        return nodes, factors, np.arange(n_states) // _places(cards) % np.reshape(cards, (-1, 1))

    def _expectation(self, graph, n_states, weights):
        """Sum the statistics of all configurations with the given weights."""
        mu, factor_mu = np.zeros((graph.n_nodes, n_states)), np.zeros(graph.belief_ptr[-1])
        for example, weight in enumerate(weights):
            nodes, factors, x = self._configurations(graph, example)
            for node, states in enumerate(x, start=nodes.start):
                mu[node] = np.bincount(states, weights=weight, minlength=n_states)
            for factor in range(factors.start, factors.stop):
                own = slice(graph.belief_ptr[factor], graph.belief_ptr[factor + 1])
                entries = _entries(graph, factor, nodes, x)
                factor_mu[own] = np.bincount(entries, weights=weight, minlength=own.stop - own.start)
        return mu, factor_mu


def _entries(graph, factor, nodes, x):
    """The entry of a factor's table in each configuration."""
    links = slice(graph.scope_ptr[factor], graph.scope_ptr[factor + 1])
    return graph.stride[links] @ x[graph.scope[links] - nodes.start]


def _places(cards):
    """What one more in the state of each node adds to the number of a configuration, (n_nodes, 1)."""
    return np.cumprod([1, *cards], dtype=np.int64)[:-1, None]


def _best(scores, x, cards):
    """Which configurations have those states of the maximised nodes, x, for which all together weigh most."""
    choice = (_places(cards) * x).sum(axis=0)
    top = np.full(prod(cards), -np.inf)
    np.maximum.at(top, choice, scores)
    finite = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        total = finite + np.log(np.bincount(choice, weights=np.exp(scores - finite[choice])))
    return choice == np.argmax(total)

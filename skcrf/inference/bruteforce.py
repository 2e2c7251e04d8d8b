"""Enumeration of all configurations."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.graph import Graph, Potentials, canonical
from skcrf.inference._base import BaseInference, Beliefs, check_possible


class _State(NamedTuple):
    graph: Graph
    theta: Potentials
    p: list  # probability of each configuration of each example


class BruteForce(BaseInference):
    """Enumerate every configuration: exact on any graph that is small enough.

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

    tasks = frozenset({"sum", "max"})
    exact_on = "any"

    def __init__(self, max_states=2**20):
        self.max_states = max_states

    def forward(self, graph, theta, tau=1.0, *, edges=False, tape=False):
        maximise = self.task_of(graph, tau) == "max"
        theta = canonical(theta)
        log_z, p = np.empty(graph.n_examples), []
        for example in range(graph.n_examples):
            nodes, pairs, x = self._configurations(graph, theta, example)
            scores = theta.unary[np.arange(nodes.start, nodes.stop)[:, None], x].sum(axis=0)
            i, j = graph.edges[pairs].T - nodes.start
            scores += theta.tables[graph.edge_table[pairs, None], x[i], x[j]].sum(axis=0)
            top = scores.max()
            check_possible(graph, (graph.node_example != example) | (top > -np.inf))
            best = np.arange(len(scores)) == np.argmax(scores)
            weight = best if maximise else np.exp(scores - top)
            log_z[example] = top if maximise else top + np.log(weight.sum())
            p.append(weight / weight.sum())
        mu, edge_mu = self._expectation(graph, theta, p)
        once = np.ones(graph.n_examples, dtype=np.int64)
        state = _State(graph, theta, p)
        return Beliefs(mu, edge_mu if edges else None, log_z, once, once.astype(bool), state)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, theta, p = beliefs.state
        # d mu is the covariance of the statistics with their sum weighted by d_mu, and d log_z their mean.
        weights = []
        for example in range(graph.n_examples):
            nodes, pairs, x = self._configurations(graph, theta, example)
            value = np.zeros(x.shape[1])
            if d_mu is not None:
                value += d_mu[np.arange(nodes.start, nodes.stop)[:, None], x].sum(axis=0)
            if d_edge_mu is not None:
                i, j = graph.edges[pairs].T - nodes.start
                value += d_edge_mu[np.arange(pairs.start, pairs.stop)[:, None], x[i], x[j]].sum(axis=0)
            value -= p[example] @ value
            weights.append(p[example] * (value + (0.0 if d_log_z is None else d_log_z[example])))
        d_unary, d_edges = self._expectation(graph, theta, weights)
        d_tables = np.zeros_like(theta.tables)
        np.add.at(d_tables, graph.edge_table, d_edges)
        return Potentials(d_unary, d_tables)

    def _configurations(self, graph, theta, example):
        """Return the example's nodes, edges, and configurations (n_nodes, n_configurations)."""
        nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
        pairs = slice(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        n_states, n_nodes = theta.unary.shape[1], int(nodes.stop - nodes.start)
        if n_states**n_nodes > self.max_states:
            raise ValueError(
                f"BruteForce would enumerate {n_states}**{n_nodes} configurations of example {example}, "
                f"more than max_states={self.max_states}."
            )
        place = n_states ** np.arange(n_nodes)[:, None]
        return nodes, pairs, np.arange(n_states**n_nodes) // place % n_states

    def _expectation(self, graph, theta, weights):
        """Sum the statistics of all configurations with the given weights."""
        n_states = theta.unary.shape[1]
        mu = np.zeros_like(theta.unary)
        edge_mu = np.zeros((graph.n_edges, n_states, n_states))
        for example, weight in enumerate(weights):
            nodes, pairs, x = self._configurations(graph, theta, example)
            for node, states in enumerate(x, start=nodes.start):
                mu[node] = np.bincount(states, weights=weight, minlength=n_states)
            for edge in range(pairs.start, pairs.stop):
                i, j = graph.edges[edge] - nodes.start
                both = np.bincount(x[i] * n_states + x[j], weights=weight, minlength=n_states**2)
                edge_mu[edge] = both.reshape(n_states, n_states)
        return mu, edge_mu

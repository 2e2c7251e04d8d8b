"""Inference by enumeration of all configurations."""

from math import prod
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.graph import ExampleError, FactorGraph, Potentials, canonical, sum_by_table
from skcrf.inference._base import (
    BaseInference,
    Beliefs,
    check_numbers,
    check_possible,
    elimination_groups,
)
from skcrf.inference._engine import as_factor_problem


class _State(NamedTuple):
    graph: FactorGraph
    table_shape: tuple
    p: list  # the probability of each configuration, per example
    stages: list  # the stages of elimination, per example


class BruteForce(BaseInference):
    """Exact inference by enumeration of all configurations, on tiny graphs.

    Where some nodes are maximised and others summed out (`tau` is an array), the result is the marginal MAP:
    the states of the maximised nodes with the largest sum over the others, and beliefs given these states.
    Temperatures between 0 and 1 and `inner` are used as in `Exact`.

    Parameters
    ----------
    max_states : int, default=2**20
        Maximum number of configurations of an example.

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

    tasks = frozenset({"sum", "max", "mixed", "tempered"})
    layouts = frozenset({"pairwise", "factor"})
    exact_on = "any"

    def __init__(self, max_states=2**20):
        self.max_states = max_states

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        task, tau = self.task_of(graph, tau)
        rank, temperature = elimination_groups(graph, tau, inner)
        theta, n_states = canonical(theta), theta.unary.shape[1]
        check_numbers(graph, theta)
        table_shape = theta.tables.shape
        graph, theta = as_factor_problem(graph, theta)
        log_z, p, stages = np.empty(graph.n_examples), [], []
        for example in range(graph.n_examples):
            nodes, factors, x = self._configurations(graph, example)
            scores = theta.unary[np.arange(nodes.start, nodes.stop)[:, None], x].sum(axis=0)
            for factor in range(factors.start, factors.stop):
                table = graph.entry_ptr[graph.edge_table[factor]]
                scores += theta.tables[table + _entries(graph, factor, nodes, x)]
            check_possible(graph, (graph.node_example != example) | (scores.max() > -np.inf))
            log_z[example], p_example, stages_example = _eliminate(
                graph.cards[nodes], rank[nodes], temperature, x, scores
            )
            p.append(p_example)
            stages.append(stages_example)
        mu, factor_mu = self._expectation(graph, n_states, p)
        if inner is None:  # maximised nodes come last, and their marginals are one-hot without rounding
            maximised = np.broadcast_to(tau == 0, graph.n_nodes)
            mu[maximised] = mu[maximised] > 0
        ones = np.ones(graph.n_examples, dtype=np.int64)
        return Beliefs(
            mu=mu,
            edge_mu=factor_mu.reshape(-1, *table_shape[1:]) if edges else None,
            log_z=log_z,
            n_iter=ones,
            converged=ones.astype(bool),
            state=_State(graph, table_shape, p, stages),
            bound=log_z if task == "max" else None,
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, table_shape, p, stages = beliefs.state
        # Marginals are the derivative of log_z, so their Jacobian is symmetric: compute the change along
        # d_mu.
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
            change = _eliminate_vjp(stages[example], value)
            weights.append(p[example] * (change + (0.0 if d_log_z is None else d_log_z[example])))
        d_unary, d_factors = self._expectation(graph, beliefs.mu.shape[1], weights)
        return Potentials(d_unary, sum_by_table(graph, d_factors).reshape(table_shape))

    def _configurations(self, graph, example):
        """Return the example's nodes, factors, and configurations (n_nodes, n_configurations)."""
        nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
        factors = slice(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        cards = graph.cards[nodes].tolist()
        n_configurations = prod(cards)
        if n_configurations > self.max_states:
            powers = " * ".join(f"{card}**{cards.count(card)}" for card in sorted(set(cards)))
            able = self._names_of(lambda one: one.exact_on == "any" and type(one) is not type(self))
            raise ExampleError(
                f"max_states must be at least {powers} for BruteForce, the number of configurations of "
                f"{{example}}, got {self.max_states}. Increase max_states, or use one of {able}.",
                example,
            )
        return (
            nodes,
            factors,
            np.arange(n_configurations) // _place_values(cards) % np.reshape(cards, (-1, 1)),
        )

    def _expectation(self, graph, n_states, weights):
        """Sum the indicators of node and factor states over all configurations with the given weights."""
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
    """Compute the entry of a factor's table in each configuration."""
    links = slice(graph.scope_ptr[factor], graph.scope_ptr[factor + 1])
    return graph.stride[links] @ x[graph.scope[links] - nodes.start]


def _place_values(cards):
    """Compute by how much the index of a configuration grows per state of each node, (n_nodes, 1)."""
    return np.cumprod([1, *cards], dtype=np.int64)[:-1, None]


class _Stage(NamedTuple):
    """Elimination of one group of nodes.

    `before` is the index of the remaining nodes' states per configuration, and `after` that of the nodes that
    remain afterwards per value of `before`.
    """

    tau: float
    before: np.ndarray
    after: np.ndarray
    conditional: np.ndarray  # distribution of the states before, given those after


def _eliminate(cards, rank, temperature, x, scores):
    """Compute log_z, the probability of each configuration, and the stages: P16 Eq 4.6 and Eq 4.9."""
    before, value, p, stages = np.arange(len(scores)), scores, np.ones(len(scores)), []
    for group in np.unique(rank):
        tau, remains = temperature[group], rank > group
        index = (_place_values(cards[remains].tolist()) * x[remains]).sum(axis=0)
        after = np.empty(len(value), dtype=np.int64)
        after[before] = index
        top = np.full(after.max() + 1, -np.inf)
        np.maximum.at(top, after, value)
        finite = np.where(top > -np.inf, top, 0.0)
        if tau > 0:
            weight = np.exp((value - finite[after]) / tau)
        else:
            place = np.where(value == top[after], np.arange(len(value)), len(value))
            best = np.full(len(top), len(value))
            np.minimum.at(best, after, place)
            weight = (place == best[after]) * 1.0
        total = np.bincount(after, weights=weight)
        total[total == 0] = 1.0
        stages.append(_Stage(tau, before, after, weight / total[after]))
        p *= stages[-1].conditional[before]
        before, value = index, top + tau * np.log(total)
    return value[0], p, stages


def _eliminate_vjp(stages, value):
    """Compute the change of each configuration's log-probability as scores change by `value`."""
    change = np.zeros(len(value))
    for tau, before, after, conditional in stages:
        mean = np.bincount(after, weights=conditional * value)
        if tau > 0:
            change += ((value - mean[after]) / tau)[before]
        value = mean
    return change

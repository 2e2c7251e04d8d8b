"""Exact inference on graphs of small induced width."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import empty, kernel_array
from skcrf.graph import ExampleError, FactorGraph, Graph, Potentials, canonical
from skcrf.inference._base import (
    BaseInference,
    Beliefs,
    check_numbers,
    check_possible,
    elimination_groups,
)
from skcrf.inference._engine import as_factor_problem
from skcrf.inference._junction.propagate import Offsets, pass_messages, pass_messages_vjp
from skcrf.inference._junction.tree import Structure, junction_tree


class _State(NamedTuple):
    graph: Graph | FactorGraph
    shapes: tuple  # of unary potentials, tables and edge marginals
    trees: list  # pairs of a junction tree and the examples that it is for
    offsets: Offsets
    temperature: np.ndarray  # of each elimination group
    tables: np.ndarray
    seps: np.ndarray


class Exact(BaseInference):
    """Exact inference on a junction tree.

    Nodes are eliminated in an order that connects few of them (min-fill). Time and memory grow as the number
    of states to the power of the induced width plus one: a chain has width 1, a lattice about that of its
    shorter side. Nodes with a single possible state, such as nodes with known labels, are left out and reduce
    the width.

    With a temperature of 0 at some nodes, the result is the marginal MAP: the states of these nodes with the
    largest sum over all other nodes, which are eliminated first, and the marginals of the others given these
    states. With temperatures between 0 and 1, sums are power sums (P16 Eq 4.6): a node is eliminated by
    ``tau log sum exp(. / tau)``. Nodes with higher temperatures are eliminated first, or the nodes in
    `inner`. Beliefs are the derivative of `log_z` (P16 Eq 4.9).

    Parameters
    ----------
    max_memory : float, default=2**31
        Maximum memory of the tables of one example, in bytes; a derivative needs as much again.

    See Also
    --------
    Tree : Exact and faster on pairwise forests.
    BruteForce : Exact on tiny graphs.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import Exact
    >>> graph = lattice(3, 100)
    >>> theta = Potentials(np.zeros((300, 2)), np.stack([np.eye(2), np.eye(2)]))
    >>> Exact().forward(graph, theta).log_z.round(3)
    array([528.128])
    """

    _parameter_constraints = {"max_memory": [Interval(Real, 0, None, closed="left")]}

    tasks = frozenset({"sum", "max", "mixed", "tempered"})
    layouts = frozenset({"pairwise", "factor"})
    exact_on = "any"

    def __init__(self, max_memory=2**31):
        self.max_memory = max_memory

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        task, tau = self.task_of(graph, tau)
        theta = canonical(theta)
        check_numbers(graph, theta)
        factors, _ = as_factor_problem(graph, theta)
        rank, temperature = elimination_groups(graph, tau, inner)
        group, fixed_state = _groups(theta, rank)
        trees = self._trees(factors, group)
        offsets = _offsets(factors, theta, fixed_state, trees)
        tables, seps = (empty(size) for size in _sizes(trees))
        n_unary, n_beliefs = theta.unary.size, int(factors.belief_ptr[-1])
        mu, log_z = np.zeros(n_unary + edges * n_beliefs), np.empty(graph.n_examples)
        flat = np.concatenate([theta.unary.ravel(), theta.tables.ravel()])
        for tree, examples in trees:
            pass_messages(tree, offsets, examples, temperature, flat, tables, seps, log_z, mu)
        check_possible(graph, np.isfinite(log_z)[graph.node_example])
        shapes = theta.unary.shape, theta.tables.shape, (n_beliefs,)
        ones = np.ones(graph.n_examples, dtype=np.int64)
        return Beliefs(
            mu=mu[:n_unary].reshape(theta.unary.shape),
            edge_mu=mu[n_unary:].reshape(-1, *theta.tables.shape[1:]) if edges else None,
            log_z=log_z,
            n_iter=ones,
            converged=ones.astype(bool),
            state=_State(graph, shapes, trees, offsets, temperature, tables, seps),
            bound=log_z if task == "max" else None,
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, (unary, table, edge), trees, offsets, temperature, tables, seps = beliefs.state
        d_mu, d_edge_mu, d_log_z = (
            np.zeros(shape) if value is None else np.asarray(value, dtype=np.float64)
            for value, shape in ((d_mu, unary), (d_edge_mu, edge), (d_log_z, graph.n_examples))
        )
        n_unary = d_mu.size
        d_beliefs = np.concatenate([d_mu.ravel(), d_edge_mu.ravel()])
        d_theta = np.zeros(n_unary + int(np.prod(table)))
        for tree, examples in trees:
            pass_messages_vjp(
                tree, offsets, examples, temperature, tables, seps, d_beliefs, kernel_array(d_log_z), d_theta
            )
        return Potentials(d_theta[:n_unary].reshape(unary), d_theta[n_unary:].reshape(table))

    def _trees(self, graph, group):
        """Plan a junction tree for each structure, and list it with the examples of this structure."""
        by_structure = {}
        for example in range(graph.n_examples):
            by_structure.setdefault(_structure(graph, group, example), []).append(example)
        trees = []
        for structure, examples in by_structure.items():
            tree, cost = junction_tree(structure, float(self.max_memory))
            if tree is None:
                least = "" if cost.is_whole else "at least "
                able = self._names_of(lambda one: one.tol is not None and {"sum", "max"} <= one.tasks)
                raise ExampleError(
                    f"max_memory must be at least {cost.n_bytes:.4g} bytes for Exact on {{example}}, got "
                    f"{self.max_memory:.4g}: the induced width is {least}{cost.width}, and the largest table "
                    f"has 2**{cost.log2_largest:.4g} entries. Increase max_memory, or use one of {able}.",
                    examples[0],
                )
            trees.append((tree, np.array(examples)))
        return trees


def induced_cost(graph, theta, tau=1.0, *, max_memory=2**31):
    """Estimate the cost of exact inference on the first example of a batch.

    Parameters
    ----------
    graph : FactorGraph
        Structure.
    theta : Potentials
        Potentials, of which only forbidden states matter.
    tau : float or ndarray of shape (n_nodes,), default=1.0
        Temperature.
    max_memory : float, default=2**31
        Maximum memory in bytes; more orders of elimination are tried to stay below it.

    Returns
    -------
    cost : Cost
        The induced width, log2 of the number of entries of the largest table, and the bytes of all tables.
    """
    group, _ = _groups(theta, elimination_groups(graph, tau, None)[0])
    return junction_tree(_structure(graph, group, 0), float(max_memory))[1]


def _groups(theta, rank):
    """Compute the elimination group of each node, -1 where one state is possible, and that state or 0."""
    possible = theta.unary > -np.inf
    is_fixed = np.count_nonzero(possible, axis=1) == 1
    return np.where(is_fixed, -1, rank), np.where(is_fixed, possible.argmax(axis=1), 0)


def _structure(graph, group, example):
    nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
    first, end = graph.edge_ptr[example], graph.edge_ptr[example + 1]
    scope_ptr = graph.scope_ptr[first : end + 1]
    links = slice(scope_ptr[0], scope_ptr[-1])
    fields = (
        graph.cards[nodes],
        group[nodes],
        scope_ptr - scope_ptr[0],
        graph.scope[links] - nodes.start,
        graph.stride[links],
        graph.shapes[example],
    )
    return Structure(*(field.tobytes() for field in fields))


def _offsets(graph, theta, fixed_state, trees):
    n_states, steps = theta.unary.shape[1], fixed_state[graph.scope] * graph.stride
    before = np.concatenate([[0], np.cumsum(steps)])
    factors = before[graph.scope_ptr[1:]] - before[graph.scope_ptr[:-1]]
    nodes, factors = n_states * np.arange(graph.n_nodes) + fixed_state, factors + theta.unary.size
    sizes = np.zeros((2, graph.n_examples), dtype=np.int64)
    for tree, examples in trees:
        sizes[:, examples] = [[tree.table_ptr[-1]], [tree.sep_ptr[-1]]]
    return Offsets(
        node_ptr=graph.node_ptr,
        edge_ptr=graph.edge_ptr,
        theta=np.concatenate([nodes, factors + graph.entry_ptr[graph.edge_table]]),
        mu=np.concatenate([nodes, factors + graph.belief_ptr[:-1]]),
        tables=np.cumsum(sizes[0]) - sizes[0],
        seps=np.cumsum(sizes[1]) - sizes[1],
    )


def _sizes(trees):
    """Compute the number of entries of the tables and of the separators of all examples."""
    return (
        sum(int(tree.table_ptr[-1]) * len(examples) for tree, examples in trees),
        sum(int(tree.sep_ptr[-1]) * len(examples) for tree, examples in trees),
    )

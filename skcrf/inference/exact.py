"""Exact inference on any graph that is narrow enough."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf import _scratch
from skcrf._numerics import kernel_array
from skcrf.graph import ExampleError, FactorGraph, Graph, Potentials, as_factors, canonical
from skcrf.inference._base import (
    BaseInference,
    Beliefs,
    check_numbers,
    check_possible,
    elimination_groups,
)
from skcrf.inference._junction.propagate import Places, pass_messages, pass_messages_vjp
from skcrf.inference._junction.tree import Structure, junction_tree


class _State(NamedTuple):
    graph: Graph | FactorGraph
    shapes: tuple  # of unary potentials, of tables and of the marginals of edges
    groups: list  # junction trees, and the examples of each
    places: Places
    temperature: np.ndarray  # of each kind of nodes
    tables: np.ndarray
    seps: np.ndarray


class Exact(BaseInference):
    """Pass messages along a junction tree: exact on any graph that is narrow enough.

    Nodes are eliminated in an order that joins few of them (min-fill). Time and memory grow as the number of
    states to the power of the induced width plus one: a chain has width 1, a lattice about that of its
    shorter side. Nodes of which the unary potentials leave one state, as those of known labels, take no part
    and make the graph narrower.

    At a temperature of 0 at some nodes it tells the marginal MAP: the states of these that have the largest
    sum over all others, which are eliminated first, and the marginals of the others given these states. At
    temperatures between 0 and 1 sums are of powers (P16 Eq 4.6): a node is eliminated by
    ``tau log sum exp(. / tau)``, those of higher temperatures first, or those first that `inner` names.
    Beliefs are the derivative of `log_z` (P16 Eq 4.9).

    Parameters
    ----------
    max_memory : float, default=2**31
        Bytes that the tables of an example may take; a derivative takes as much again.

    See Also
    --------
    Tree : Exact on forests of two-node factors, and faster there.
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

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, inner=None):
        task, tau = self.task_of(graph, tau)
        theta = canonical(theta)
        check_numbers(graph, theta)
        factors = graph if isinstance(graph, FactorGraph) else as_factors(graph, theta.unary.shape[1])
        rank, temperature = elimination_groups(graph, tau, inner)
        kind, known = _kinds(theta, rank)
        groups = self._groups(factors, kind)
        places = _places(factors, theta, known, groups)
        tables, seps = (_scratch.empty(total) for total in _totals(groups))
        n_unary, n_beliefs = theta.unary.size, int(factors.belief_ptr[-1])
        mu, log_z = np.zeros(n_unary + edges * n_beliefs), np.empty(graph.n_examples)
        flat = np.concatenate([theta.unary.ravel(), theta.tables.ravel()])
        for tree, examples in groups:
            pass_messages(tree, places, examples, temperature, flat, tables, seps, log_z, mu)
        check_possible(graph, np.isfinite(log_z)[graph.node_example])
        shapes = theta.unary.shape, theta.tables.shape, (n_beliefs,)
        edge_mu = mu[n_unary:].reshape(-1, *theta.tables.shape[1:]) if edges else None
        once = np.ones(graph.n_examples, dtype=np.int64)
        return Beliefs(
            mu=mu[:n_unary].reshape(theta.unary.shape),
            edge_mu=edge_mu,
            log_z=log_z,
            n_iter=once,
            converged=once.astype(bool),
            state=_State(graph, shapes, groups, places, temperature, tables, seps),
            bound=log_z if task == "max" else None,
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, (unary, table, edge), groups, places, temperature, tables, seps = beliefs.state
        d_mu, d_edge_mu, d_log_z = (
            np.zeros(shape) if given is None else np.asarray(given, dtype=np.float64)
            for given, shape in ((d_mu, unary), (d_edge_mu, edge), (d_log_z, graph.n_examples))
        )
        n_unary = d_mu.size
        d_beliefs = np.concatenate([d_mu.ravel(), d_edge_mu.ravel()])
        d_theta = np.zeros(n_unary + int(np.prod(table)))
        for tree, examples in groups:
            pass_messages_vjp(
                tree, places, examples, temperature, tables, seps, d_beliefs, kernel_array(d_log_z), d_theta
            )
        return Potentials(d_theta[:n_unary].reshape(unary), d_theta[n_unary:].reshape(table))

    def _groups(self, graph, kind):
        """Plan a junction tree for each structure; list it with the examples that have this structure."""
        groups = {}
        for example in range(graph.n_examples):
            groups.setdefault(_structure(graph, kind, example), []).append(example)
        found = []
        for structure, examples in groups.items():
            tree, cost = junction_tree(structure, float(self.max_memory))
            if tree is None:
                least = "" if cost.is_whole else "at least "
                raise ExampleError(
                    f"Exact inference on {{example}} has an induced width of {least}{cost.width}, "
                    f"with 2**{cost.log2_largest:.4g} entries in its largest table, and would take {least}"
                    f"{cost.n_bytes:.4g} bytes, more than max_memory={self.max_memory:.4g}: "
                    "'bp' and 'trw' take any graph.",
                    examples[0],
                )
            found.append((tree, np.array(examples)))
        return found


def induced_cost(graph, theta, tau=1.0, *, max_memory=2**31):
    """Tell what exact inference on the first example of a batch takes, without doing it.

    Parameters
    ----------
    graph : FactorGraph
        Structure.
    theta : Potentials
        Potentials, of which only forbidden states count.
    tau : float or ndarray of shape (n_nodes,), default=1.0
        Temperature.
    max_memory : float, default=2**31
        Bytes below which an order of elimination is looked for with more effort.

    Returns
    -------
    cost : Cost
        The induced width, log2 of the entries of the largest table, and the bytes of all tables.
    """
    kind, _ = _kinds(theta, elimination_groups(graph, tau, None)[0])
    return junction_tree(_structure(graph, kind, 0), float(max_memory))[1]


def _kinds(theta, rank):
    """The group of each node, -1 where only one state is possible, and that state."""
    possible = theta.unary > -np.inf
    fixed = np.count_nonzero(possible, axis=1) == 1
    kind = np.where(fixed, -1, rank)
    return kind, np.where(fixed, possible.argmax(axis=1), 0)


def _structure(graph, kind, example):
    nodes = slice(graph.node_ptr[example], graph.node_ptr[example + 1])
    first, end = graph.edge_ptr[example], graph.edge_ptr[example + 1]
    scope_ptr = graph.scope_ptr[first : end + 1]
    links = slice(scope_ptr[0], scope_ptr[-1])
    parts = (
        graph.cards[nodes],
        kind[nodes],
        scope_ptr - scope_ptr[0],
        graph.scope[links] - nodes.start,
        graph.stride[links],
    )
    return Structure(*(part.tobytes() for part in parts))


def _places(graph, theta, known, groups):
    """Find where things stand; `known` is the state of nodes that have one possible state, 0 elsewhere."""
    n_states, links = theta.unary.shape[1], known[graph.scope] * graph.stride
    before = np.concatenate([[0], np.cumsum(links)])
    given = before[graph.scope_ptr[1:]] - before[graph.scope_ptr[:-1]]
    nodes, given = n_states * np.arange(graph.n_nodes) + known, given + theta.unary.size
    starts = np.zeros((2, graph.n_examples), dtype=np.int64)
    for tree, examples in groups:
        starts[:, examples] = [[tree.table_ptr[-1]], [tree.sep_ptr[-1]]]
    return Places(
        node_ptr=graph.node_ptr,
        edge_ptr=graph.edge_ptr,
        source=np.concatenate([nodes, given + graph.entry_ptr[graph.edge_table]]),
        target=np.concatenate([nodes, given + graph.belief_ptr[:-1]]),
        tables=np.cumsum(starts[0]) - starts[0],
        seps=np.cumsum(starts[1]) - starts[1],
    )


def _totals(groups):
    """How many entries the tables and the separators of all examples have."""
    return (
        sum(int(tree.table_ptr[-1]) * len(examples) for tree, examples in groups),
        sum(int(tree.sep_ptr[-1]) * len(examples) for tree, examples in groups),
    )

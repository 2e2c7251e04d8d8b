"""Exact inference on forests."""

import numpy as np

from skcrf._numerics import GraphCache
from skcrf.graph import ExampleError
from skcrf.inference._engine import Plan, pull_back
from skcrf.inference._lattice.engine import LatticeEngine
from skcrf.inference._message_passing import MessagePassing
from skcrf.inference._pairwise.engine import ForestEngine
from skcrf.inference._pairwise.schedule import breadth_first, cycle_edges, edge_links, two_passes

_schedules = GraphCache()


class Tree(MessagePassing):
    """Exact inference on forests: one pass from the leaves to the roots and one back.

    Graphs with cycles raise an error.

    See Also
    --------
    BP : The same messages, iterated on any graph.
    Exact : Exact on graphs with cycles.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> graph = chain(3)
    >>> theta = Potentials(np.zeros((3, 2)), np.eye(2)[None])
    >>> Tree().forward(graph, theta).log_z.round(3)
    array([3.32])
    """

    tasks = frozenset({"sum", "max"})
    layouts = frozenset({"pairwise", "potts"})
    exact_on = "forest"
    _engines = (LatticeEngine, ForestEngine)

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        beliefs = super().forward(graph, theta, tau, edges=edges, tape=tape, start=start, inner=inner)
        task, _ = self.task_of(graph, tau)
        return beliefs._replace(bound=beliefs.log_z) if task == "max" else beliefs

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return pull_back(beliefs, d_mu, d_edge_mu, d_log_z, exact=True)

    def _plan(self, graph):
        schedule = _schedules.get(graph)
        if schedule is None:
            schedule = _schedules.put(graph, self._schedule(graph))
        graph = graph._replace(schedule=schedule)
        return Plan(graph, np.ones(graph.n_edges), max_iter=1, tol=0.0, damping=0.0, tape=True)

    def _schedule(self, graph):
        """Schedule two passes; raise ExampleError for cycles."""
        order, arrival = breadth_first(edge_links(graph))
        closing = cycle_edges(graph, arrival)
        if (closing >= 0).any():
            example = int(np.argmax(closing >= 0))
            i, j = graph.edges[closing[example]] - graph.node_ptr[example]
            able = self._names_of(lambda one: self.tasks <= one.tasks and type(one) is not type(self))
            raise ExampleError(
                f"graph must be a forest for Tree, got a cycle through the edge ({i}, {j}) in {{example}}. "
                f"Use one of {able}.",
                example,
            )
        return two_passes(graph, order, arrival)

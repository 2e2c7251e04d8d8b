"""Engine for sum-, max- and mixed-product messages on factor graphs."""

import numpy as np

from skcrf._numerics import GraphCache
from skcrf.graph import Graph, Potentials
from skcrf.inference._engine import Engine
from skcrf.inference._factor.readout import choose_states, read_factors, read_nodes, read_tables, read_vjp
from skcrf.inference._factor.schedule import factor_links, factor_schedule
from skcrf.inference._factor.sweep import sweep, sweep_vjp
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference._pairwise.hubs import has_hubs, hubs_of
from skcrf.inference._pairwise.schedule import breadth_first
from skcrf.inference._pairwise.sweep import marginals, marginals_vjp


class FactorEngine(Engine):
    """Messages on any factor graph; the state holds log-messages by position."""

    layout = "factor"

    @classmethod
    def options(cls, plan, theta):
        return 1 + has_hubs(plan.graph).astype(np.int64)

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.damping = float(plan.damping)
        self.row_ptr = plan.graph.scope_ptr[plan.graph.edge_ptr]
        self.maximised = np.full(plan.graph.n_nodes, False) | plan.maximise
        self.schedule = factor_schedule(plan.graph, theta, plan.rho, self.maximised)
        self.hubs = hubs_of(plan.graph)
        # Mixed-product messages depend on beliefs that are equal.
        self.dtype = np.float64 if self.maximised.any() else plan.dtype

    def initial_state(self):
        return np.zeros((len(self.graph.scope), self.theta.unary.shape[1]), dtype=self.dtype)

    def step(self, state, active):
        settings = self.hubs, self.damping, self.measure
        return sweep(self.schedule, self.graph, self.theta, *settings, state, active)

    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
        settings, states = (self.hubs, self.damping), (before, after.copy(), active, d_state)
        sweep_vjp(self.schedule, self.graph, self.theta, *settings, *states, adjoint)

    def marginals(self, state):
        return marginals(self.graph, self.theta, self.schedule.weights, state)

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = np.zeros_like(state)
        marginals_vjp(self.graph, self.schedule.weights, mu, d_mu, d_state, adjoint)
        return d_state

    def edge_marginals(self, state):
        return self._read_factors(state, np.empty(self.graph.belief_ptr[-1]))[1]

    def log_z(self, state):
        return self._read_factors(state, np.empty(0))[0]

    def expected_tables(self, state):
        return read_tables(*self._problem(state))

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        d_edge_mu = np.empty(0) if d_edge_mu is None else d_edge_mu
        problem = self._problem(state)
        d_state, d_theta = read_vjp(
            *problem, self._log_marginals(problem[-1]), d_mu, d_edge_mu, d_log_z, through
        )
        return d_state.astype(self.dtype, copy=False), d_theta

    def decode(self, state):
        order, _ = breadth_first(factor_links(self.graph))
        return choose_states(*self._problem(state), self.maximised, order)

    def _problem(self, state):
        """Return the arguments of functions that read beliefs, of float64 also where the state is not."""
        return self.schedule, self.graph, self.theta, self.rho, state.astype(np.float64, copy=False)

    def _log_marginals(self, messages):
        return read_nodes(self.graph, self.theta, self.schedule.weights, messages)

    def _read_factors(self, state, factor_mu):
        problem = self._problem(state)
        return read_factors(*problem, self._log_marginals(problem[-1]), factor_mu), factor_mu


_pair_options, _pair_graphs = GraphCache(), GraphCache()


def _states_of_pairs(graph):
    """Number the states where all factors of an example join two nodes of as many states, else 0."""
    low, high = np.full(graph.n_examples, np.iinfo(np.int64).max), np.zeros(graph.n_examples, dtype=np.int64)
    np.minimum.at(low, graph.node_example, graph.cards)
    np.maximum.at(high, graph.node_example, graph.cards)
    is_pair = (low == high) & (np.diff(graph.edge_ptr) > 0)
    np.logical_and.at(is_pair, graph.edge_example, np.diff(graph.scope_ptr) == 2)
    fits = np.diff(graph.entry_ptr) == high[graph.table_example] ** 2
    np.logical_and.at(is_pair, graph.table_example, fits)
    return np.where(is_pair, high, 0)


def _pair_graph(graph):
    """Convert factors of two nodes to edges, without their schedule; messages keep their numbers."""
    arrays = {name: array for name, array in graph._asdict().items() if name in Graph._fields}
    arrays |= {"edges": graph.scope.reshape(-1, 2), "shapes": np.zeros_like(graph.shapes), "schedule": None}
    return Graph(**arrays)


class FactorPairEngine(Engine):
    """Messages of factors of two nodes with equal numbers of states, which are edges."""

    layout = "factor"
    is_plain = False

    @classmethod
    def options(cls, plan, theta):
        if np.ndim(plan.maximise):
            return np.zeros(plan.graph.n_examples, dtype=np.int64)
        options = _pair_options.get(plan.graph)
        if options is None:
            n_states = _states_of_pairs(plan.graph)
            options = np.where(n_states > 0, 2 * n_states + has_hubs(plan.graph), 0)
            _pair_options.put(plan.graph, options)
        return options

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        self.dtype, self.n_states = plan.dtype, options // 2
        graph = _pair_graphs.get(plan.graph)
        if graph is None:
            graph = _pair_graphs.put(plan.graph, _pair_graph(plan.graph))
        graph = graph._replace(schedule=plan.graph.schedule)
        self.pairs = PairwiseEngine(plan._replace(graph=graph), self._of_pairs(theta))
        self.row_ptr = self.pairs.row_ptr

    def _of_pairs(self, theta):
        unary = np.ascontiguousarray(theta.unary[:, : self.n_states])
        return Potentials(unary, theta.tables.reshape(-1, self.n_states, self.n_states))

    def _of_factors(self, theta):
        return Potentials(self._with_all_states(theta.unary), theta.tables.reshape(-1))

    def _with_all_states(self, values):
        out = np.zeros(self.theta.unary.shape)
        out[:, : self.n_states] = values
        return out

    def initial_state(self):
        return self.pairs.initial_state()

    def step(self, state, active):
        return self.pairs.step(state, active)

    def step_vjp(self, adjoint, record, active, d_state):
        self.pairs.step_vjp(adjoint, record, active, d_state)

    def marginals(self, state):
        return self._with_all_states(self.pairs.marginals(state))

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        mu, d_mu = (np.ascontiguousarray(values[:, : self.n_states]) for values in (mu, d_mu))
        return self.pairs.marginals_vjp(adjoint, state, mu, d_mu)

    def edge_marginals(self, state):
        return self.pairs.edge_marginals(state).reshape(-1)

    def expected_tables(self, state):
        return self.pairs.expected_tables(state).reshape(-1)

    def log_z(self, state):
        return self.pairs.log_z(state)

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        d_mu, n_states = np.ascontiguousarray(d_mu[:, : self.n_states]), self.n_states
        d_edge_mu = None if d_edge_mu is None else d_edge_mu.reshape(-1, n_states, n_states)
        d_state, d_theta = self.pairs.readout_vjp(state, d_mu, d_edge_mu, d_log_z, through)
        return d_state, self._of_factors(d_theta)

    def decode(self, state):
        return self.pairs.decode(state)

    def new_adjoint(self):
        return self.pairs.new_adjoint()

    def to_potentials(self, adjoint):
        return self._of_factors(self.pairs.to_potentials(adjoint))

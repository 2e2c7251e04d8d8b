"""Engines: the arithmetic of an iterative inference on one kind of graph, and the choice among them.

A method names the engine classes it may use, in order of preference. Every example gets the first one that
supports it, so that its result does not depend on the batch it is in, to the last bit. Examples with the same
engine and options run together.
"""

from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skcrf._numerics import copy, kernel_array
from skcrf.graph import (
    FactorGraph,
    Graph,
    Potentials,
    as_factors,
    full_tables,
    full_tables_vjp,
    is_potts,
    outer,
    scaled,
    score,
    score_vjp,
    select,
)
from skcrf.inference._base import Beliefs, Deferred
from skcrf.inference._fixed_point import Trace, iterate, reverse
from skcrf.inference._pairwise.entries import with_entries, without_entries


class Plan(NamedTuple):
    """Settings of an iterative inference.

    Attributes
    ----------
    graph : Graph or FactorGraph
        The batch, with the schedule to use.
    rho : ndarray of shape (n_edges,) or None
        Edge weights; None for mean field.
    max_iter, tol, damping : int, float, float
        As for the methods.
    tape : bool
        Whether to record a tape even if the caller does not ask for it.
    inward : ndarray of shape (n_edges,) or None
        The messages along which trees are summed, if that sum is log_z; None if log_z is theta . mu + H(mu).
    maximise : bool or ndarray of shape (n_nodes,)
        Whether to maximise instead of summing; some engines take an array.
    dtype : type
        Type of the messages and of their tape.
    """

    graph: Graph | FactorGraph
    rho: np.ndarray | None
    max_iter: int
    tol: float
    damping: float = 0.0
    tape: bool = False
    inward: np.ndarray | None = None
    maximise: Any = False
    dtype: type = np.float64


class Engine(ABC):
    """An iterative inference on examples of one kind.

    The state of the iterations is an array of rows; rows ``row_ptr[e]`` to ``row_ptr[e + 1]`` belong to
    example `e`. An adjoint holds derivatives with respect to the potentials in the layout of the engine.
    States and their adjoints are of type `dtype`; all other arguments and results are of float64.

    Parameters
    ----------
    plan : Plan
        Settings.
    theta : Potentials
        Potentials.
    options : int, default=1
        The number that the method `options` gave for all these examples.
    """

    #: Layout of the graphs that the engine takes.
    layout = "pairwise"
    #: Whether the engine takes Potts tables, of shape (n_tables, 2, 1); for others they are written out.
    takes_potts = False
    #: Whether the engine takes all graphs of its layout, at the price of speed.
    is_plain = True
    #: ndarray of shape (n_examples,): an upper bound of the best score, where the engine knows one.
    bound = None
    #: ndarray of shape (n_examples + 1,): where the rows of each example start; set by the constructor.
    row_ptr = None
    #: Type of the states; the constructor of an engine that computes in other types takes that of the plan.
    dtype = np.float64

    @classmethod
    def options(cls, plan, theta):
        """Number the options that each example needs: above 0, or 0 where the engine does not support it."""
        return np.ones(plan.graph.n_examples, dtype=np.int64)

    def __init__(self, plan, theta, options=1):
        self.graph, self.theta, self.rho, self.inward = plan.graph, theta, plan.rho, plan.inward
        self.measure = plan.tol > 0

    @abstractmethod
    def initial_state(self):
        """Make the state before the first iteration."""

    @abstractmethod
    def step(self, state, active):
        """Iterate once in place; return the change of each example if `tol` is above 0."""

    def recorded_step(self, state, active):
        """Iterate once; return the new state, the changes as `step` does, and a record for `step_vjp`.

        By default, a record is the states before and after.
        """
        after = copy(state)
        return after, self.step(after, active), (state, after)

    def record_at(self, state):
        """Make the record of a step at a fixed point."""
        return state, state

    @abstractmethod
    def step_vjp(self, adjoint, record, active, d_state):
        """Pull `d_state` back through one iteration in place, adding to `adjoint`."""

    @abstractmethod
    def marginals(self, state):
        """Compute the node marginals."""

    @abstractmethod
    def edge_marginals(self, state):
        """Compute the edge marginals."""

    @abstractmethod
    def expected_tables(self, state):
        """Sum the edge marginals over the edges that share a table."""

    @abstractmethod
    def log_z(self, state):
        """Compute the log-partition function per example."""

    @abstractmethod
    def marginals_vjp(self, adjoint, state, mu, d_mu):
        """Pull the derivative of the node marginals back: return `d_state`, add to `adjoint`."""

    @abstractmethod
    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        """Pull derivatives of marginals and log_z back: return `d_state` and the direct part of `d_theta`.

        `d_edge_mu` may be None. `through` tells whether log_z depends on theta through the state too; at a
        fixed point it does not, since it is stationary there.
        """

    def beliefs_vjp(self, adjoint, state, mu, d_mu, d_edge_mu, d_log_z, through):
        """Pull derivatives back as `readout_vjp` does, avoiding the edge marginals where possible."""
        if d_edge_mu is None and (d_log_z is None or not through):
            d_state = self.marginals_vjp(adjoint, state, mu, d_mu)
            if d_log_z is None:
                return d_state, None
            # At a fixed point the marginals are the derivative of log_z, D13 Eq 4.
            return d_state, scaled(self.graph, Potentials(mu.copy(), self.expected_tables(state)), d_log_z)
        d_log_z = np.zeros(self.graph.n_examples) if d_log_z is None else d_log_z
        return self.readout_vjp(state, d_mu, d_edge_mu, d_log_z, through)

    def decode(self, state):
        """Choose a configuration, where the engine maximises."""
        raise NotImplementedError(f"{type(self).__name__} does not maximise.")

    def compressed(self, state):
        """Copy a state in single precision, to resume from."""
        return state.astype(np.float32)

    def new_adjoint(self):
        """Make an adjoint of zeros."""
        return Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))

    def to_potentials(self, adjoint):
        """Convert an adjoint to `Potentials`."""
        return adjoint


class ResumePoint(NamedTuple):
    """The final state of an earlier run on the same batch, in single precision.

    Attributes
    ----------
    engine : type
        The class of the engine that the state belongs to.
    dtype : type
        The type of the states of that engine, on which their layout may depend.
    state : ndarray
        The state.
    """

    engine: type
    dtype: type
    state: np.ndarray

    def fits(self, engine):
        """Return whether an engine has states of this layout."""
        is_same = type(engine) is self.engine and np.dtype(engine.dtype) == np.dtype(self.dtype)
        return is_same and len(self.state) == engine.row_ptr[-1]


class _Run(NamedTuple):
    """State of the beliefs of one engine; `trace` is None where it maximised.

    `is_potts` tells whether the potentials had Potts tables, whatever the engine takes.
    """

    engine: Engine
    is_potts: bool
    plan: Plan
    theta: Potentials
    max_terms: np.ndarray
    trace: Trace | None


class _Parts(NamedTuple):
    """State of beliefs that several engines computed."""

    selections: list
    beliefs: list
    theta: Potentials


_plain_only = False


@contextmanager
def plain_engines():
    """Use only engines that take any graph, in all threads; for tests."""
    global _plain_only
    before, _plain_only = _plain_only, True
    try:
        yield
    finally:
        _plain_only = before


def choose_engines(engines, plan, theta):
    """Choose an engine for each example; returns classes, their options, and masks of their examples."""
    left, groups = np.ones(plan.graph.n_examples, dtype=bool), []
    for engine in engines:
        if engine.layout != plan.graph.layout or (_plain_only and not engine.is_plain) or not left.any():
            continue
        numbers = np.where(left, engine.options(plan, theta), 0)
        for number in sorted(set(numbers.tolist()) - {0}):
            groups.append((engine, number, numbers == number))
        left &= numbers == 0
    return groups


def part_of(plan, theta, examples):
    """Select examples: return their Plan, Potentials and Selection."""
    graph, where = select(plan.graph, examples)
    part = plan._replace(graph=graph)
    if plan.rho is not None:
        part = part._replace(rho=plan.rho[where.edges])
    if plan.inward is not None:
        part = part._replace(inward=2 * np.arange(graph.n_edges) + (plan.inward[where.edges] & 1))
    if np.ndim(plan.maximise):
        part = part._replace(maximise=plan.maximise[where.nodes])
    return part, Potentials(theta.unary[where.nodes], theta.tables[where.entries]), where


def infer(engines, plan, theta, *, edges, tape, start=None):
    """Iterate with the engine of each example.

    Parameters
    ----------
    engines : sequence of Engine subclasses
        In order of preference.
    plan : Plan
        Settings.
    theta : Potentials
        Potentials.
    edges : bool
        Whether to compute edge marginals.
    tape : bool or float
        Whether to record a tape; a number is its size in bytes.
    start : ResumePoint, default=None
        Where to start; ignored if it does not fit.

    Returns
    -------
    beliefs : Beliefs
        Marginals or, where `plan` maximises, a configuration.
    """
    groups = choose_engines(engines, plan, theta)
    if len(groups) == 1:
        engine, options, _ = groups[0]
        run = engine(plan, _tables_for(engine, theta), options)
        return _infer_one(run, plan, theta, edges, tape, start)
    selections, parts = [], []
    for engine, options, examples in groups:
        part, part_theta, where = part_of(plan, theta, examples)
        selections.append(where)
        run = engine(part, _tables_for(engine, part_theta), options)
        parts.append(_infer_one(run, part, part_theta, edges, tape, None))
    return _joined(plan.graph, theta, selections, parts)


def _tables_for(engine, theta):
    """Give Potts tables the shape that an engine takes."""
    if not is_potts(theta.tables):
        return theta
    return with_entries(theta) if engine.takes_potts else full_tables(theta)


def _infer_one(engine, plan, theta, edges, tape, start):
    """Iterate with one engine."""
    resumed = start is not None and start.fits(engine)
    trace = iterate(
        engine,
        start.state.astype(engine.dtype) if resumed else engine.initial_state(),
        plan.graph.n_examples,
        max_iter=plan.max_iter,
        tol=plan.tol,
        tape=False if plan.maximise else tape or plan.tape,
        resumed=resumed,
    )
    # A run that resumes near the fixed point takes few steps, but its adjoint takes as many as ever.
    max_terms = 10 * (np.full_like(trace.n_iter, plan.max_iter) if resumed else trace.n_iter)
    run = _Run(engine, is_potts(theta.tables), plan, theta, max_terms, trace)
    if plan.maximise:
        x = engine.decode(trace.state)
        mu, log_z = np.eye(theta.unary.shape[1])[x], score(plan.graph, theta, x)
        edge_mu, run = outer(plan.graph, mu) if edges else None, run._replace(trace=None)
    else:
        mu, log_z = engine.marginals(trace.state), Deferred(partial(engine.log_z, trace.state))
        edge_mu = engine.edge_marginals(trace.state) if edges else None
    return Beliefs(mu, edge_mu, log_z, trace.n_iter, trace.converged, run, engine.bound)


def _joined(graph, theta, selections, parts):
    """Join the beliefs of several engines."""

    def joined(name, field, size):
        values = [getattr(part, name) for part in parts]
        out = np.empty((size, *values[0].shape[1:]), dtype=values[0].dtype)
        for where, value in zip(selections, values, strict=True):
            out[getattr(where, field)] = value
        return out

    return Beliefs(
        mu=joined("mu", "nodes", graph.n_nodes),
        edge_mu=None if parts[0].edge_mu is None else joined("edge_mu", "beliefs", graph.sizes["belief"]),
        log_z=Deferred(lambda: joined("log_z", "examples", graph.n_examples)),
        n_iter=joined("n_iter", "examples", graph.n_examples),
        converged=joined("converged", "examples", graph.n_examples),
        state=_Parts(selections, parts, theta),
        bound=None if parts[0].bound is None else joined("bound", "examples", graph.n_examples),
    )


def pull_back(beliefs, d_mu=None, d_edge_mu=None, d_log_z=None, *, exact=False):
    """Compute the vector-Jacobian product of `infer`.

    Parameters
    ----------
    beliefs : Beliefs
        Result of `infer`.
    d_mu, d_edge_mu, d_log_z : ndarray, default=None
        As for `BaseInference.backward`, of any dtype.
    exact : bool, default=False
        Whether marginals are the derivative of log_z even if the iterations were recorded (D13 Eq 4).

    Returns
    -------
    d_theta : Potentials
        Derivative with respect to theta.
    """
    d_mu, d_edge_mu, d_log_z = (
        None if value is None else kernel_array(value) for value in (d_mu, d_edge_mu, d_log_z)
    )
    return _by_part(beliefs, partial(_pull_back_one, exact=exact), d_mu, d_edge_mu, d_log_z)


def expected_statistics(beliefs):
    """Compute the expected statistics of what `infer` returned, as `BaseInference.statistics` does."""
    return _by_part(beliefs, _statistics_of_one)


def _by_part(beliefs, function, d_mu=None, d_edge_mu=None, d_log_z=None):
    """Apply a function of beliefs and derivatives to the beliefs of each engine; it returns Potentials."""
    if not isinstance(beliefs.state, _Parts):
        found = function(beliefs, d_mu, d_edge_mu, d_log_z)
        return full_tables_vjp(without_entries(found)) if beliefs.state.is_potts else found
    selections, parts, theta = beliefs.state
    d_theta = Potentials(np.empty_like(theta.unary), np.empty_like(theta.tables))
    for where, part in zip(selections, parts, strict=True):
        fields = (d_mu, where.nodes), (d_edge_mu, where.beliefs), (d_log_z, where.examples)
        given = (None if value is None else value[rows] for value, rows in fields)
        d_theta.unary[where.nodes], d_theta.tables[where.entries] = _by_part(part, function, *given)
    return d_theta


def _pull_back_one(beliefs, d_mu, d_edge_mu, d_log_z, exact):
    engine, _, plan, theta, max_terms, trace = beliefs.state
    graph = plan.graph
    if exact and d_mu is None and d_edge_mu is None and d_log_z is not None:
        return scaled(graph, _statistics_of_one(beliefs), d_log_z)
    if trace is None:
        d_log_z = np.zeros(graph.n_examples) if d_log_z is None else d_log_z
        return score_vjp(graph, theta, beliefs.mu, d_log_z)
    d_mu = np.zeros_like(beliefs.mu) if d_mu is None else d_mu
    adjoint, through = engine.new_adjoint(), trace.tape is not None
    given = d_mu, d_edge_mu, d_log_z
    d_state, d_direct = engine.beliefs_vjp(adjoint, trace.state, beliefs.mu, *given, through)
    reverse(engine, adjoint, trace, d_state, tol=plan.tol, max_terms=max_terms)
    d_theta = engine.to_potentials(adjoint)
    if d_direct is None:
        return d_theta
    return Potentials(d_theta.unary + d_direct.unary, d_theta.tables + d_direct.tables)


def _statistics_of_one(beliefs, *_):
    engine, _, plan, theta, _, trace = beliefs.state
    if trace is None:
        return score_vjp(plan.graph, theta, beliefs.mu, np.ones(plan.graph.n_examples))
    return Potentials(beliefs.mu.copy(), engine.expected_tables(trace.state))


def resume_point(beliefs):
    """Keep the state of beliefs that one engine computed by summing; None for others."""
    run = beliefs.state
    if not isinstance(run, _Run) or run.trace is None:
        return None
    return ResumePoint(type(run.engine), run.engine.dtype, run.engine.compressed(run.trace.state))


def engines_of(beliefs):
    """Return the classes of the engines that computed beliefs."""
    parts = beliefs.state.beliefs if isinstance(beliefs.state, _Parts) else [beliefs]
    return {type(part.state.engine) for part in parts}


def as_factor_problem(graph, theta):
    """Convert a graph of any layout and its potentials to factors and flat tables."""
    return as_factors(graph, theta.unary.shape[1]), theta._replace(tables=theta.tables.reshape(-1))

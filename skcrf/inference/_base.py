"""The interface of all inference methods: potentials to beliefs, and derivatives back."""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from sklearn.base import BaseEstimator

from skcrf._numerics import kernel_array
from skcrf._registry import names_of
from skcrf.graph import ImpossibleError, Potentials, sum_by_table


class Deferred:
    """A value that is computed when it is first read.

    Parameters
    ----------
    function : callable
        Computes the value, without arguments.
    """

    def __init__(self, function):
        self.function = function

    @cached_property
    def value(self):
        """The value."""
        return self.function()


class Beliefs:
    """Result of an inference.

    Parameters
    ----------
    mu : ndarray of shape (n_nodes, n_states)
        Node marginals; one-hot where the inference maximises.
    edge_mu : ndarray of shape (n_edges, n_states, n_states) or None
        Edge marginals, if they were asked for.
    log_z : ndarray of shape (n_examples,) or Deferred
        The (approximate) log-partition function; the score of `mu` where the inference maximises. A method
        may defer its computation until the attribute `log_z` is read, since not every loss reads it.
    n_iter : ndarray of shape (n_examples,)
        Number of iterations.
    converged : ndarray of shape (n_examples,)
        Whether the iterations reached `tol`. True for methods that do not iterate, and where the
        number of iterations is part of the definition (``tol=0``).
    state : object
        Whatever `backward` needs.
    bound : ndarray of shape (n_examples,), default=None
        Where the inference maximises, an upper bound of the best score, if the method has one: `log_z` falls
        short of the best score by at most ``bound - log_z``.
    """

    def __init__(self, mu, edge_mu, log_z, n_iter, converged, state, bound=None):
        self.mu = mu
        self.edge_mu = edge_mu
        self._log_z = log_z
        self.n_iter = n_iter
        self.converged = converged
        self.state = state
        self.bound = bound

    @property
    def log_z(self):
        """ndarray of shape (n_examples,): the (approximate) log-partition function."""
        return self._log_z.value if isinstance(self._log_z, Deferred) else self._log_z

    def _replace(self, **changes):
        """Copy with some fields replaced; a deferred `log_z` stays deferred and is computed once for both."""
        fields = {name.removeprefix("_"): value for name, value in vars(self).items()}
        return Beliefs(**{**fields, **changes})


def check_possible(graph, possible):
    """Raise ImpossibleError for the first example with a node that has no possible state.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    possible : ndarray of shape (n_nodes,)
        Whether a node has a possible state.
    """
    if not possible.all():
        raise ImpossibleError(
            "theta must allow at least one configuration, got none in {example}. If no state is forbidden "
            "there, entries are nan or too large: scale the features.",
            graph.node_example[np.argmin(possible)],
        )


def check_numbers(graph, theta):
    """Raise ImpossibleError for potentials that are neither finite nor -inf.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    theta : Potentials
        Potentials.
    """
    # The maximum of numbers is nan if one of them is.
    if not theta.unary.max(initial=-np.inf) < np.inf:
        check_possible(graph, (theta.unary < np.inf).all(axis=1))
    if not theta.tables.max(initial=-np.inf) < np.inf:
        right = (theta.tables < np.inf).reshape(len(theta.tables), -1).all(axis=1)
        check_possible(graph, graph.node_example != graph.examples_of["entry"][np.argmin(right)])


def elimination_groups(graph, tau, inner):
    """Group the nodes by the order in which they are eliminated.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    tau : float or ndarray of shape (n_nodes,)
        Temperature.
    inner : ndarray of shape (n_nodes,) or None
        Which nodes are eliminated before all others; None for none. Otherwise those of higher temperatures
        come first.

    Returns
    -------
    rank : ndarray of shape (n_nodes,)
        The group of each node.
    temperature : ndarray of shape (n_groups,)
        The temperature of each group.
    """
    tau = np.broadcast_to(tau, graph.n_nodes)
    outer = np.zeros(graph.n_nodes) if inner is None else ~np.broadcast_to(inner, graph.n_nodes)
    keys, rank = np.unique(np.stack([outer, -tau], axis=1), axis=0, return_inverse=True)
    temperature = np.abs(keys[:, 1]) if len(keys) else np.ones(1)  # one empty sum if there are no nodes
    return rank.reshape(-1), kernel_array(temperature)


class BaseInference(BaseEstimator, ABC):
    """Base class of all inference methods.

    Conventions
    -----------
    - n_states is the number of labels, the same for all nodes.
    - theta is a `Potentials`: unary (n_nodes, n_states), tables (n_tables, n_states, n_states).
      Entries are finite or -inf; at least one configuration of each example is possible.
    - In the layout "factor" n_states is the largest number of states of a node, with -inf where a node has
      fewer. Tables and the marginals of factors, which take the place of edge marginals, are flat.
    - Examples of a batch do not influence each other.
    - `tau` is the temperature: 1 sums, 0 maximises; a scalar, or one value per node. None stands for 1, or
      for 0 if the method cannot sum.
    - Where temperatures differ, nodes of higher ones are eliminated first: sums are inside of maxima.

    A subclass implements `forward`, and `backward` if it has a derivative. It sets the class attributes that
    differ from the defaults; the test suite checks these claims for every class.
    """

    _parameter_constraints = {}

    #: Tasks that the method performs: a subset of {"sum", "max", "mixed", "tempered"}.
    tasks = frozenset({"sum"})
    #: Layouts of the graphs that it takes: a subset of {"pairwise", "factor", "potts"}. The last are pairwise
    #: graphs with Potts tables, see `Potentials`, and derivatives with respect to these.
    layouts = frozenset({"pairwise"})
    #: Graphs on which the result is exact: None, "forest" or "any".
    exact_on = None
    #: Side on which `log_z` bounds the log-partition function at convergence: None, "upper" or "lower".
    bound = None
    #: Fields of `Beliefs` that `backward` differentiates correctly: a subset of {"mu", "log_z"}; empty for
    #: methods without `backward`.
    differentiates = frozenset({"mu", "log_z"})
    #: Tolerance: None for methods that do not iterate, 0 for exactly `max_iter` iterations, above 0 for
    #: convergence. Methods that iterate have the parameters `max_iter` and `tol`.
    tol = None

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if cls.backward is BaseInference.backward:
            cls.differentiates = frozenset()

    @abstractmethod
    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        """Compute marginals, or maximise.

        Parameters
        ----------
        graph : Graph or FactorGraph
            Structure of the batch.
        theta : Potentials
            Potentials.
        tau : float or ndarray of shape (n_nodes,), default=None
            Temperature: 1 sums, 0 maximises. None is 1 if the method can sum, else 0.
        edges : bool, default=False
            Whether to compute edge marginals.
        tape : bool or float, default=False
            Whether to record all iterations, so that `backward` differentiates exactly these; a number limits
            the bytes of the tape, and `backward` repeats the iterations that do not fit. Methods that need no
            tape ignore it.
        start : object, default=None
            Where to start the iterations, made by `start_of`. Methods that do not resume ignore it.
        inner : ndarray of shape (n_nodes,), default=None
            Which nodes to eliminate before all others. Methods without the task "tempered" ignore it.

        Returns
        -------
        beliefs : Beliefs
            The result.
        """

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        """Compute the vector-Jacobian product of `forward`.

        Parameters
        ----------
        beliefs : Beliefs
            The result of `forward`.
        d_mu : ndarray of shape (n_nodes, n_states), default=None
            Derivative of some value with respect to the node marginals.
        d_edge_mu : ndarray of shape (n_edges, n_states, n_states), default=None
            Derivative with respect to the edge marginals.
        d_log_z : ndarray of shape (n_examples,), default=None
            Derivative with respect to log_z.

        Returns
        -------
        d_theta : Potentials
            Derivative of that value with respect to theta.
        """
        able = self._names_of(lambda method: "mu" in method.differentiates)
        raise ValueError(
            f"inference must have a derivative, got {type(self).__name__} without backward. "
            f"Use one of {able}, or a gradient that calls only forward."
        )

    @property
    def resumes(self):
        """Whether iterations reach the same fixed point from everywhere, so that `forward` uses `start`."""
        return False

    @property
    def precision(self):
        """Relative rounding error of the marginals."""
        return np.finfo(np.float64).eps

    @property
    def is_random(self):
        """Whether marginals are estimated from samples, so that differences of them are not derivatives.

        By default these are the methods that sum and have a `random_state`.
        """
        return "sum" in self.tasks and "random_state" in self.get_params(deep=False)

    def statistics(self, graph, beliefs):
        """Compute the expected statistics: the marginals by which the entries of theta are multiplied.

        They are the derivative of log_z at a fixed point, and where the method is exact (D13 Eq 4).

        Parameters
        ----------
        graph : Graph or FactorGraph
            Structure of the batch.
        beliefs : Beliefs
            The result of `forward`, with edge marginals if `reads_edges`.

        Returns
        -------
        statistics : Potentials
            Node marginals, and edge marginals summed over the edges that share a table.
        """
        return Potentials(beliefs.mu.copy(), sum_by_table(graph, beliefs.edge_mu))

    @property
    def reads_edges(self):
        """Whether `statistics` needs beliefs with edge marginals."""
        return type(self).statistics is BaseInference.statistics

    def beside(self, choose):
        """Make a second inference that is differentiated as this one is.

        Parameters
        ----------
        choose : callable
            Function from this inference, without a gradient strategy, to the second one.

        Returns
        -------
        second : BaseInference
            The second inference, wrapped by the gradient strategy of this one, if any.
        """
        return choose(self)

    def curvature(self, graph, theta, beliefs):
        """Compute the second derivatives of the objective at its maximum.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        beliefs : Beliefs
            The result of `forward`, with edge marginals.

        Returns
        -------
        curvature : Curvature
            The linear system that the derivative of the beliefs solves.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement curvature.")

    @property
    def has_curvature(self):
        """Whether marginals maximise an objective at `tol`, and `curvature` is implemented."""
        return "mu" in self.differentiates and type(self).curvature is not BaseInference.curvature

    def start_of(self, beliefs):
        """Make the argument `start` of a later `forward` on the same graph.

        Parameters
        ----------
        beliefs : Beliefs
            The result of `forward`.

        Returns
        -------
        start : object
            None if there is nothing to start from.
        """
        return None

    def part_of(self, graph, selection):
        """Make the method that does for some examples of a batch what this one does for all of it.

        Parameters
        ----------
        graph : Graph or FactorGraph
            Structure of the batch.
        selection : Selection
            Positions of the examples in the batch.

        Returns
        -------
        inference : BaseInference
            The method itself, if its parameters do not depend on the batch.
        """
        return self

    def task_of(self, graph, tau):
        """Determine the task that a temperature asks for; raise ValueError if the method cannot perform it.

        Parameters
        ----------
        graph : Graph or FactorGraph
            Structure of the batch.
        tau : float or ndarray of shape (n_nodes,) or None
            Temperature; None for the default of the method.

        Returns
        -------
        task : {"sum", "max", "mixed", "tempered"}
            The task.
        tau : ndarray of shape () or (n_nodes,)
            The temperature.
        """
        self.check_layout(graph.layout)
        if tau is None:
            tau = float("sum" in self.tasks)
        tau = np.asarray(tau, dtype=np.float64)
        if tau.shape not in ((), (graph.n_nodes,)):
            raise ValueError(f"tau must have shape () or ({graph.n_nodes},), got {tau.shape}.")
        if not ((tau >= 0) & (tau <= 1)).all():
            wrong = tau.ravel()[np.argmin(((tau >= 0) & (tau <= 1)).ravel())]
            raise ValueError(f"tau must be between 0 (maximise) and 1 (sum), got {wrong}.")
        task = "sum" if (tau == 1).all() else "max" if (tau == 0).all() else "mixed"
        if not np.isin(tau, (0.0, 1.0)).all():
            task = "tempered"
        if task not in self.tasks:
            able = self._names_of(lambda method: task in method.tasks)
            raise ValueError(
                f"tau must be a temperature that {type(self).__name__} supports, for the tasks "
                f"{sorted(self.tasks)}, got the task {task!r}. Use one of {able}."
            )
        return task, tau

    def check_layout(self, layout):
        """Raise ValueError for graphs of a layout that the method does not take.

        Parameters
        ----------
        layout : {"pairwise", "factor"}
            Layout.
        """
        if layout not in self.layouts:
            able = self._names_of(lambda method: layout in method.layouts)
            raise ValueError(
                f"graph must have the layout {' or '.join(map(repr, sorted(self.layouts)))} for "
                f"{type(self).__name__}, got {layout!r}. Use one of {able}."
            )

    def _names_of(self, condition):
        """List the names of the methods that could replace this one and meet a condition."""
        from skcrf.inference import INFERENCE  # not complete while this module is imported

        return names_of(INFERENCE, condition)

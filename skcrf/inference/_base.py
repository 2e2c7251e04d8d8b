"""The inference door: potentials go in, beliefs come out, and gradients go back the same way."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skcrf._numerics import kernel_array
from skcrf.graph import ImpossibleError, Potentials, sum_by_table


class _Beliefs(NamedTuple):
    mu: np.ndarray
    edge_mu: np.ndarray | None
    log_z: np.ndarray | Callable
    n_iter: np.ndarray
    converged: np.ndarray
    state: Any
    bound: np.ndarray | None = None


class Beliefs(_Beliefs):
    """What an inference believes.

    Attributes
    ----------
    mu : ndarray of shape (n_nodes, n_states)
        Marginal of each node; one-hot where the inference maximises.
    edge_mu : ndarray of shape (n_edges, n_states, n_states) or None
        Marginal of each edge, if it was asked for.
    log_z : ndarray of shape (n_examples,)
        The (approximate) log-partition function; the score of `mu` where the inference maximises. A method
        may give a function instead, which is called when `log_z` is asked for: not every loss does.
    n_iter : ndarray of shape (n_examples,)
        Iterations done.
    converged : ndarray of shape (n_examples,)
        Whether the iterations reached `tol`. True for methods that do not iterate, and where the
        number of iterations is part of the definition (``tol=0``).
    state : object
        What `backward` needs; opaque.
    bound : ndarray of shape (n_examples,) or None
        Where the inference maximises, a number that no score exceeds, as far as the method knows one: how
        much `log_z` may fall short of the best score is `bound - log_z`.
    """

    __slots__ = ()

    @property
    def log_z(self):
        """ndarray of shape (n_examples,): the (approximate) log-partition function."""
        given = self[2]
        return given() if callable(given) else given


def check_possible(graph, possible):
    """Refuse examples that have no possible configuration.

    Parameters
    ----------
    graph : Graph
        Structure of the batch.
    possible : ndarray of shape (n_nodes,)
        Whether a node has a possible state.
    """
    if not possible.all():
        raise ImpossibleError(
            "theta forbids every configuration of {example}, or is too large: "
            "features may have to be scaled.",
            graph.node_example[np.argmin(possible)],
        )


def check_numbers(graph, theta):
    """Refuse potentials that are neither finite nor -inf: a search among them need not end.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    theta : Potentials
        Potentials.
    """
    # The largest of some numbers is nan where one of them is.
    if not theta.unary.max(initial=-np.inf) < np.inf:
        check_possible(graph, (theta.unary < np.inf).all(axis=1))
    if not theta.tables.max(initial=-np.inf) < np.inf:
        right = (theta.tables < np.inf).reshape(len(theta.tables), -1).all(axis=1)
        check_possible(graph, graph.node_example != graph.examples_of["entry"][np.argmin(right)])


def elimination_groups(graph, tau, inner):
    """Put nodes into groups that are eliminated one after the other.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    tau : float or ndarray of shape (n_nodes,)
        Temperature.
    inner : ndarray of shape (n_nodes,) or None
        Which nodes come before all others; None for none. Otherwise those of higher temperatures come first.

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
    temperature = np.abs(keys[:, 1]) if len(keys) else np.ones(1)  # what has no nodes is one empty sum
    return rank.reshape(-1), kernel_array(temperature)


class BaseInference(BaseEstimator, ABC):
    """Base class of all inference methods.

    Conventions
    -----------
    - n_states is the number of labels, the same for all nodes.
    - theta is a `Potentials`: unary (n_nodes, n_states), tables (n_tables, n_states, n_states).
      Entries are finite or -inf; at least one configuration of each example is possible.
    - In the layout of factors n_states is the largest number of states of a node, -inf where a node has
      fewer, and tables and the marginals of factors are flat, in the place of those of edges.
    - Examples of a batch do not influence each other.
    - `tau` is the temperature: 1 sums, 0 maximises; a scalar, or one value a node. None is what the method
      does by itself: it sums, or maximises if it cannot sum.
    - Where temperatures differ, nodes of higher ones are eliminated first: sums are inside of maxima. Methods
      that claim "tempered" have a keyword `inner` (n_nodes,) that names nodes to be eliminated before others.

    The class attributes are claims, and the test suite holds every class to them.
    """

    _parameter_constraints = {}

    #: Tasks the method can do: a subset of {"sum", "max", "mixed", "tempered"}.
    tasks = frozenset({"sum"})
    #: Layouts of graphs that it takes: a subset of {"pairwise", "factor"}.
    layouts = frozenset({"pairwise"})
    #: Graphs on which the answer is exact: None, "forest" or "any".
    exact_on = None
    #: Which bound of the log-partition function `log_z` is at convergence: None, "upper" or "lower".
    bound = None
    #: What `backward` is right for: a subset of {"mu", "log_z"}.
    differentiates = frozenset({"mu", "log_z"})
    #: Whether the answer is that of the only fixed point, wherever the iterations start: then `forward` has a
    #: keyword `start`, which takes what the method `start_of` makes of earlier beliefs.
    resumes = False
    #: Tolerance: None for methods that do not iterate, 0 for exactly `max_iter` iterations, above 0 for
    #: convergence. Methods that iterate have the parameters `max_iter` and `tol`.
    tol = None
    #: Whether the answer at `tol` is a stationary point of an objective, whose second derivatives the method
    #: `curvature` tells.
    has_curvature = False
    #: Whether `statistics` reads the marginals of edges, for which `forward` has to be asked.
    reads_edges = True

    @abstractmethod
    def forward(self, graph, theta, tau=None, *, edges=False, tape=False):
        """Infer.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        tau : float or ndarray of shape (n_nodes,), default=None
            Temperature: 1 sums, 0 maximises. None is 1 if the method can sum, else 0.
        edges : bool, default=False
            Whether the marginals of the edges are asked for.
        tape : bool or float, default=False
            Whether to remember each iteration, so that `backward` differentiates the very iterations that
            were done; a number is the bytes that this may take, beyond which some are done again in
            `backward`. Methods that need no tape ignore it.

        Returns
        -------
        beliefs : Beliefs
            The answer.
        """

    @abstractmethod
    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        """Compute the vector-Jacobian product of `forward`.

        Parameters
        ----------
        beliefs : Beliefs
            What `forward` returned.
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

    def statistics(self, graph, beliefs):
        """Compute the expected statistics: the marginals that the entries of theta are multiplied by.

        They are the derivative of log_z at a fixed point, and where the method is exact (D13 Eq 4).

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        beliefs : Beliefs
            What `forward` returned.

        Returns
        -------
        statistics : Potentials
            Marginals of nodes, and those of edges summed over the edges that share a table.
        """
        return Potentials(beliefs.mu.copy(), sum_by_table(graph, beliefs.edge_mu))

    def part_of(self, graph, selection):
        """Make the method that does for some examples of a batch what this one does for all of it.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        selection : Selection
            Where the examples stand in it.

        Returns
        -------
        inference : BaseInference
            The method itself, if it does not know the batch.
        """
        return self

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
        """Tell the second derivatives of the objective at its maximum.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        beliefs : Beliefs
            What `forward` returned, with the marginals of edges.

        Returns
        -------
        curvature : Curvature
            The linear system that the derivative of the beliefs solves.
        """
        raise NotImplementedError(f"{type(self).__name__} does not tell the curvature of an objective.")

    def task_of(self, graph, tau):
        """Name the task that a temperature asks for, or refuse it or the graph.

        Parameters
        ----------
        graph : Graph or FactorGraph
            Structure of the batch.
        tau : float or ndarray of shape (n_nodes,) or None
            Temperature; None for what the method does by itself.

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
            raise ValueError(
                f"tau has shape {tau.shape}, expected () or one for each node: ({graph.n_nodes},)."
            )
        if not ((tau >= 0) & (tau <= 1)).all():
            wrong = tau.ravel()[np.argmin(((tau >= 0) & (tau <= 1)).ravel())]
            raise ValueError(f"tau must be from 0 (maximise) to 1 (sum) at every node, got {wrong}.")
        task = "sum" if (tau == 1).all() else "max" if (tau == 0).all() else "mixed"
        if not np.isin(tau, (0.0, 1.0)).all():
            task = "tempered"
        if task not in self.tasks:
            able = self._methods_with(lambda method: task in method.tasks)
            raise ValueError(
                f"tau asks {type(self).__name__} for the task {task!r}, but it can only do "
                f"{sorted(self.tasks)}: take {_words(able)}."
            )
        return task, tau

    def check_layout(self, layout):
        """Refuse graphs of a layout that the method does not take.

        Parameters
        ----------
        layout : {"pairwise", "factor"}
            Layout.
        """
        if layout not in self.layouts:
            able = self._methods_with(lambda method: layout in method.layouts)
            raise ValueError(
                f"{type(self).__name__} takes graphs of the layout {_words(self.layouts)}, but this one has "
                f"the layout {layout!r}: take {_words(able)}."
            )

    def _methods_with(self, claim):
        """Name the methods that make a claim."""
        from skcrf.inference import INFERENCE  # known once all methods are

        return [name for name, method in INFERENCE.items() if claim(method)]


def _words(names):
    return " or ".join(repr(name) for name in sorted(names))

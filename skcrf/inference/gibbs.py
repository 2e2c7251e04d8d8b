"""Gibbs sampling."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel
from skcrf.inference._base import BaseInference, Beliefs, Deferred
from skcrf.inference._map_solver import FORBIDDEN, finite_tables
from skcrf.inference._random import (
    conditional_arrays,
    conditional_scores,
    random_streams,
    sample_independent,
    sample_state,
    streams_from_seeds,
)


class _State(NamedTuple):
    means: np.ndarray  # marginals per chain, (n_chains, n_nodes, n_states)


class Gibbs(BaseInference):
    """Marginals by Gibbs sampling, with standard errors, on any graph.

    Every node samples its state given its neighbours, colour by colour. Neighbours have different colours, so
    the nodes of a colour form a block that is sampled at once. Node marginals are averages of the conditional
    probabilities, which have less variance than the sampled states; edge marginals are relative frequencies.
    Standard errors are computed from several chains with different starts. They do not account for states
    that no chain reaches, for example behind pairs that are nearly forbidden.

    Gibbs sampling has neither `log_z` nor a derivative, so it cannot be used to learn by marginal-based
    losses or likelihoods. Use it for predictions; contrastive divergence uses its samples.

    Parameters
    ----------
    n_samples : int, default=100
        Number of sweeps over all nodes that are averaged, per chain.
    burn_in : int, default=50
        Number of sweeps before these, per chain.
    n_chains : int, default=8
        Number of chains.
    random_state : int, RandomState instance or None, default=0
        Seed. All examples of a batch have equal random streams of their own, so that results do not depend on
        the other examples.

    See Also
    --------
    Exact : Without noise, on graphs of small induced width.

    Notes
    -----
    Geman and Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of images",
    1984; colours as in Gonzalez, Low, Gretton and Guestrin, "Parallel Gibbs sampling", 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import Gibbs
    >>> gibbs, graph = Gibbs(n_samples=1000), lattice(2, 2)
    >>> theta = Potentials(np.array([[0.0, 1.0]] * 4), np.zeros((2, 2, 2)))
    >>> beliefs = gibbs.forward(graph, theta)
    >>> beliefs.mu[0].round(3), gibbs.standard_errors(beliefs)[0].max() < 1e-10
    (array([0.269, 0.731]), np.True_)
    """

    _parameter_constraints = {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "burn_in": [Interval(Integral, 0, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_samples=100, burn_in=50, n_chains=8, random_state=0):
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.n_chains = n_chains
        self.random_state = random_state

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.task_of(graph, tau)
        theta, order = finite_tables(graph, theta, FORBIDDEN), colour_nodes(graph)[1]
        n_states = theta.unary.shape[1]
        means = np.zeros((self.n_chains, *theta.unary.shape))
        edge_mu = np.zeros((edges * graph.n_edges, n_states, n_states))
        for chain, stream in enumerate(random_streams(self.random_state, self.n_chains)):
            streams = np.tile(stream, (graph.n_examples, 1))
            x = sample_independent(graph, theta, streams)
            _sweep(graph, theta, order, self.burn_in, streams, x, means[chain, :0], edge_mu[:0])
            _sweep(graph, theta, order, self.n_samples, streams, x, means[chain], edge_mu)
        means /= self.n_samples
        return Beliefs(
            mu=means.mean(axis=0),
            edge_mu=edge_mu / (self.n_samples * self.n_chains) if edges else None,
            log_z=Deferred(self._no_log_z),
            n_iter=np.full(graph.n_examples, self.burn_in + self.n_samples),
            converged=np.ones(graph.n_examples, dtype=bool),
            state=_State(means),
        )

    def _no_log_z(self):
        able = self._names_of(lambda method: "sum" in method.tasks and "log_z" in method.differentiates)
        raise ValueError(f"inference must estimate log_z, got Gibbs, which does not. Use one of {able}.")

    def standard_errors(self, beliefs):
        """Compute the standard errors of the node marginals from the differences between chains.

        Parameters
        ----------
        beliefs : Beliefs
            The result of `forward`.

        Returns
        -------
        errors : ndarray of shape (n_nodes, n_states)
            Standard errors; nan with a single chain.
        """
        means = beliefs.state.means
        if len(means) == 1:
            return np.full_like(beliefs.mu, np.nan)
        return means.std(axis=0, ddof=1) / np.sqrt(len(means))

    def sample(self, graph, theta, n_sweeps=1, init=None, seeds=None):
        """Sample a configuration.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        n_sweeps : int, default=1
            Number of sweeps over all nodes.
        init : ndarray of shape (n_nodes,), default=None
            States to start from; -1 or None to sample them from the unary potentials.
        seeds : ndarray of shape (n_examples,), default=None
            One seed per example, so that examples have different random streams in any batch. None to use
            `random_state` for all.

        Returns
        -------
        x : ndarray of shape (n_nodes,)
            The states of all nodes after the last sweep.
        """
        theta = finite_tables(graph, theta, FORBIDDEN)
        if seeds is None:
            streams = np.tile(random_streams(self.random_state, 1), (graph.n_examples, 1))
        else:
            streams = streams_from_seeds(np.asarray(seeds))
        x = sample_independent(graph, theta, streams)
        if init is not None:
            x = np.where(np.asarray(init) >= 0, init, x)
        n_states = theta.unary.shape[1]
        no_mu, no_edge_mu = np.empty((0, n_states)), np.empty((0, n_states, n_states))
        _sweep(graph, theta, colour_nodes(graph)[1], n_sweeps, streams, x, no_mu, no_edge_mu)
        return x


@kernel
def colour_nodes(graph):
    """Colour nodes greedily so that neighbours differ, in ``graph.node_order``, which suits lattices.

    Returns the colour of each node, and the nodes of each example ordered by colour.
    """
    n_nodes = len(graph.node_order)
    colours, taken = np.full(n_nodes, -1), np.full(n_nodes + 1, -1)
    order, n_ordered = np.empty(n_nodes, np.int64), 0
    for example in range(len(graph.node_ptr) - 1):
        nodes, most = graph.node_order[graph.node_ptr[example] : graph.node_ptr[example + 1]], 0
        for node in nodes:
            for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                message = graph.incident[p]
                colour = colours[graph.edges[message >> 1, 1 - (message & 1)]]
                if colour >= 0:
                    taken[colour] = node
            colour = 0
            while taken[colour] == node:
                colour += 1
            colours[node], most = colour, max(most, colour)
        for colour in range(most + 1):
            for node in nodes:
                if colours[node] == colour:
                    order[n_ordered] = node
                    n_ordered += 1
    return colours, order


@kernel
def _sweep(graph, theta, order, n_sweeps, streams, x, mu, edge_mu):
    """Sample the states of all nodes `n_sweeps` times.

    Adds the conditional probabilities to `mu`, and counts of pairs to `edge_mu`, unless these are empty.
    """
    scores, arrays = np.empty(theta.unary.shape[1]), conditional_arrays(graph, theta)
    for example in range(len(streams)):
        nodes, stream = order[graph.node_ptr[example] : graph.node_ptr[example + 1]], streams[example]
        for _ in range(n_sweeps):
            for node in nodes:
                conditional_scores(arrays, node, x, scores)
                x[node] = sample_state(scores, stream)
                if len(mu):
                    for state in range(len(scores)):
                        mu[node, state] += scores[state]
            if len(edge_mu):
                for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
                    edge_mu[edge, x[graph.edges[edge, 0]], x[graph.edges[edge, 1]]] += 1.0

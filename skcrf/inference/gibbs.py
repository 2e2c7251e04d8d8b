"""Marginals by Gibbs sampling."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel
from skcrf.inference._base import BaseInference, Beliefs, Deferred
from skcrf.inference._map_solver import NEVER, searchable
from skcrf.inference._random import arrays_of, draw_state, draw_states, local_scores, streams, streams_of


class _State(NamedTuple):
    means: np.ndarray  # (n_chains, n_nodes, n_states)


class Gibbs(BaseInference):
    """Marginals by Gibbs sampling: unbiased in the limit, with standard errors, on any graph.

    Every node draws its state given its neighbours, colour by colour: no two neighbours have one, so that the
    nodes of a colour are a block that is drawn at once. Marginals of nodes are averages of the probabilities
    by which states were drawn, which have less noise than the states; marginals of edges are counts.
    Several chains run from starts of their own, and tell by how much averages differ: of states that none of
    them gets to, as behind pairs that are all but forbidden, standard errors know nothing.

    There is neither `log_z` nor a derivative, so that losses of marginals and likelihoods do not learn with
    it; it is for predictions, and samples for contrastive divergence.

    Parameters
    ----------
    n_samples : int, default=100
        Sweeps over all nodes that are averaged, in each chain.
    burn_in : int, default=50
        Sweeps before these, in each chain.
    n_chains : int, default=8
        Chains.
    random_state : int, RandomState instance or None, default=0
        Of what is drawn. Every example of a batch draws from streams of its own that start alike, so that its
        answer does not depend on the others.

    See Also
    --------
    Exact : Without noise, on graphs that are narrow enough.

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

    differentiates = frozenset()

    def __init__(self, n_samples=100, burn_in=50, n_chains=8, random_state=0):
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.n_chains = n_chains
        self.random_state = random_state

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False):
        self.task_of(graph, tau)
        theta, order = searchable(graph, theta, NEVER), coloured(graph)[1]
        n_states = theta.unary.shape[1]
        means = np.zeros((self.n_chains, *theta.unary.shape))
        edge_mu = np.zeros((edges * graph.n_edges, n_states, n_states))
        for chain, start in enumerate(streams(self.random_state, self.n_chains)):
            draws = np.tile(start, (graph.n_examples, 1))
            x = draw_states(graph, theta, draws)
            sweep(graph, theta, order, self.burn_in, draws, x, means[chain, :0], edge_mu[:0])
            sweep(graph, theta, order, self.n_samples, draws, x, means[chain], edge_mu)
        means /= self.n_samples
        once = np.full(graph.n_examples, self.burn_in + self.n_samples)
        return Beliefs(
            mu=means.mean(axis=0),
            edge_mu=edge_mu / (self.n_samples * self.n_chains) if edges else None,
            log_z=Deferred(_no_log_z),
            n_iter=once,
            converged=np.ones(graph.n_examples, dtype=bool),
            state=_State(means),
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        raise ValueError("Gibbs has no derivative: take 'bp', 'trw' or 'mean_field' to learn from marginals.")

    def standard_errors(self, beliefs):
        """Tell the standard errors of the marginals of nodes, by how much chains differ.

        Parameters
        ----------
        beliefs : Beliefs
            What `forward` returned.

        Returns
        -------
        errors : ndarray of shape (n_nodes, n_states)
            Standard errors; nan if there is one chain.
        """
        means = beliefs.state.means
        if len(means) == 1:
            return np.full_like(beliefs.mu, np.nan)
        return means.std(axis=0, ddof=1) / np.sqrt(len(means))

    def sample(self, graph, theta, n_sweeps=1, init=None, seeds=None):
        """Draw a configuration.

        Parameters
        ----------
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        n_sweeps : int, default=1
            Sweeps over all nodes.
        init : ndarray of shape (n_nodes,), default=None
            States to start from; -1 or None to draw them by the unary potentials.
        seeds : ndarray of shape (n_examples,), default=None
            A number for each example, so that its draws differ from those of others, in whatever batch it is.
            None to use `random_state` for all.

        Returns
        -------
        x : ndarray of shape (n_nodes,)
            The states of all nodes after these sweeps.
        """
        theta = searchable(graph, theta, NEVER)
        if seeds is None:
            draws = np.tile(streams(self.random_state, 1), (graph.n_examples, 1))
        else:
            draws = streams_of(np.asarray(seeds))
        x = draw_states(graph, theta, draws)
        if init is not None:
            x = np.where(np.asarray(init) >= 0, init, x)
        n_states = theta.unary.shape[1]
        unasked = np.empty((0, n_states)), np.empty((0, n_states, n_states))
        sweep(graph, theta, coloured(graph)[1], n_sweeps, draws, x, *unasked)
        return x


def _no_log_z():
    raise ValueError("Gibbs tells no log_z: take 'exact', 'bp', 'trw' or 'mean_field' for likelihoods.")


@kernel
def coloured(graph):
    """Give neighbours different colours, few of them.

    Returns the colour of each node and an order of the nodes of each example, colour by colour. Nodes are
    visited in the order that the graph has, which on lattices is one of few colours.
    """
    n_nodes = len(graph.node_order)
    colours, taken = np.full(n_nodes, -1), np.full(n_nodes + 1, -1)
    order, filled = np.empty(n_nodes, np.int64), 0
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
                    order[filled] = node
                    filled += 1
    return colours, order


@kernel
def sweep(graph, theta, order, n_sweeps, draws, x, mu, edge_mu):
    """Draw the states of all nodes anew, some times over.

    Adds the probabilities by which states were drawn to `mu`, and pairs to `edge_mu`, unless these are empty.
    """
    scores, arrays = np.empty(theta.unary.shape[1]), arrays_of(graph, theta)
    for example in range(len(draws)):
        nodes, stream = order[graph.node_ptr[example] : graph.node_ptr[example + 1]], draws[example]
        for _ in range(n_sweeps):
            for node in nodes:
                local_scores(arrays, node, x, scores)
                x[node] = draw_state(scores, stream)
                if len(mu):
                    for state in range(len(scores)):
                        mu[node, state] += scores[state]
            if len(edge_mu):
                for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
                    edge_mu[edge, x[graph.edges[edge, 0]], x[graph.edges[edge, 1]]] += 1.0

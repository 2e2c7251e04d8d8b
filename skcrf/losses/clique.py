"""Losses of the clique marginals."""

import numpy as np

from skcrf.graph import sum_by_example
from skcrf.losses._base import BaseLoss, logistic


class CliqueLogistic(BaseLoss):
    """Clique logistic loss: minus the log of the marginal of each pair of labels, D13 section 4.2.3.

    Asks for pairs of neighbours to be right together, which identifies the model where the univariate
    loss may not. Cliques are the edges, and nodes that have none. A hidden end of an edge is summed out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import CliqueLogistic
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = CliqueLogistic()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([2.079])
    """

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta, edges=True)
        # What agrees with the labels: one state where there is a label, all where it is hidden.
        agrees = (y[:, None] < 0) | (y[:, None] == np.arange(theta.unary.shape[1]))

        i, j = graph.edges.T
        known = (y[i] >= 0) | (y[j] >= 0)
        pairs = agrees[i, :, None] & agrees[j, None, :]
        value, d_mass = logistic((beliefs.edge_mu * pairs).sum(axis=(1, 2)))
        total = sum_by_example(value * known, graph.edge_example, graph)
        d_edge_mu = pairs * (d_mass * known)[:, None, None]

        alone = np.flatnonzero((np.diff(graph.incident_ptr) == 0) & (y >= 0))
        value, d_mass = logistic(beliefs.mu[alone, y[alone]])
        total += sum_by_example(value, graph.node_example[alone], graph)
        d_mu = np.zeros_like(beliefs.mu)
        d_mu[alone, y[alone]] = d_mass

        return total, inference.backward(beliefs, d_mu=d_mu, d_edge_mu=d_edge_mu), beliefs.converged

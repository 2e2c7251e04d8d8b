"""Second derivatives of the objective of an inference at its maximum, for implicit differentiation.

The derivative of a maximiser solves the linear system of D13 section 5, ``[[D, B^T], [B, 0]]``, where D are
the second derivatives of the entropy and B the constraints. All unknowns but the node marginals are
eliminated, edge by edge, and node marginals are scaled by ``1 / sqrt(mu)``. The remaining system,

    W y = b,    W = I + one block per edge,

has one unknown per node and state, and needs no constraint: W maps ``sqrt(mu)``, along which the sum of a
marginal would change, to itself. It is positive definite at a strict maximum, even where D is singular
because ``1 - sum rho`` of a node is 0. States of probability zero drop out.
"""

from abc import ABC, abstractmethod

import numpy as np

from skcrf.graph import sum_by_node

# Correlations are limited to 1 minus this. At a correlation of 1, where a table ties the states of two nodes,
# the edge is rigid and the elimination would divide by zero. The error of the limit is that of rounding.
_RIGID = 1e-8


class Curvature(ABC):
    """Linear system of a stationary point.

    Attributes
    ----------
    blocks : ndarray of shape (n_edges, 2 * n_states, 2 * n_states)
        The block of each edge, for the states of its first and then its second end.
    """

    @abstractmethod
    def right_hand_side(self, d_mu, d_edge_mu):
        """Compute the right-hand side b, (n_nodes, n_states); `d_edge_mu` may be None."""

    @abstractmethod
    def derivatives(self, y, d_edge_mu):
        """Convert the solution y to derivatives for nodes, (n_nodes, n_states), and edges, one table each."""


def _ratio(a, b):
    """Compute a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)


def _centred(d_mu, mu):
    return d_mu - (mu * d_mu).sum(axis=1, keepdims=True)


def _response_of_ends(a):
    """Compute the inverse of ``[[I, A], [A^T, I]]`` minus the identity, for singular values of A up to 1."""
    a_t = a.transpose(0, 2, 1)
    # By products, which keep the relative accuracy of tiny entries.
    squares = a @ a_t
    rigid = np.flatnonzero(np.einsum("exx->e", squares) >= (1 - _RIGID) ** 2)
    squares[rigid] = 0.0
    inverse = np.linalg.inv(np.eye(a.shape[1]) - squares)
    across = inverse @ a
    blocks = np.block([[inverse @ squares, -across], [-across.transpose(0, 2, 1), a_t @ across]])
    if len(rigid):
        # By singular values, so that large numbers cancel exactly.
        u, sigma, v_t = np.linalg.svd(a[rigid])
        sigma = np.minimum(sigma, 1 - _RIGID)[:, None, :]
        pairs = np.concatenate([u, v_t.transpose(0, 2, 1)], axis=1) / np.sqrt(2)
        signs = np.repeat([1.0, -1.0], a.shape[1])[None, :, None]
        # Eigenvectors (u, v) and (u, -v), with eigenvalues 1 + sigma and 1 - sigma.
        blocks[rigid] = _with_eigenvalues(pairs, -sigma / (1 + sigma))
        blocks[rigid] += _with_eigenvalues(signs * pairs, sigma / (1 - sigma))
    return blocks


def _with_eigenvalues(vectors, values):
    return (vectors * values) @ vectors.transpose(0, 2, 1)


class LocalCurvature(Curvature):
    """Curvature of theta . mu + H(mu) on the local polytope, with H of D13 Eq 16.

    The entries of D are ``-(1 - sum rho) / mu`` at nodes and ``-rho / mu`` at edges. With the correlations
    ``A = mu_ij / sqrt(mu_i mu_j) - sqrt(mu_i mu_j)`` the marginals and multipliers of an edge leave
    ``rho (inverse of [[I, A], [A^T, I]])`` at its ends.

    Parameters
    ----------
    graph : Graph
        Structure.
    rho : ndarray of shape (n_edges,)
        Edge weights.
    mu : ndarray of shape (n_nodes, n_states)
        Node marginals.
    edge_mu : ndarray of shape (n_edges, n_states, n_states)
        Edge marginals.
    """

    def __init__(self, graph, rho, mu, edge_mu):
        self.graph, self.mu, self.edge_mu = graph, mu, edge_mu
        self.rho = rho[:, None, None]
        # From the edge marginals, which agree with the node marginals only at a fixed point.
        self.roots = np.sqrt(edge_mu.sum(axis=2))[:, :, None], np.sqrt(edge_mu.sum(axis=1))[:, None, :]
        scale = self.roots[0] * self.roots[1]
        a = _ratio(edge_mu, scale) - scale
        self.blocks = self.rho * _response_of_ends(a)

    def right_hand_side(self, d_mu, d_edge_mu):
        b = np.sqrt(self.mu) * _centred(d_mu, self.mu)
        if d_edge_mu is not None:
            b += sum_by_node(self.graph, self._multipliers(self._ends(d_edge_mu)))
        return b

    def derivatives(self, y, d_edge_mu):
        ends = y[self.graph.edges].reshape(len(self.edge_mu), 2 * y.shape[1])
        d_edges = np.zeros_like(self.edge_mu)
        if d_edge_mu is not None:
            ends = ends - self._ends(d_edge_mu)
            d_edges += self._centred_edges(d_edge_mu)
        first, second = np.split(self._multipliers(ends), 2, axis=1)
        d_edges += _ratio(first[:, :, None], self.roots[0]) + _ratio(second[:, None, :], self.roots[1])
        d_edges *= self.edge_mu / self.rho
        return np.sqrt(self.mu) * y, d_edges

    def _centred_edges(self, d_edge_mu):
        return d_edge_mu - np.einsum("exz,exz->e", self.edge_mu, d_edge_mu)[:, None, None]

    def _ends(self, d_edge_mu):
        """Compute the changes of the ends' marginals if edges were unconstrained."""
        change = self.edge_mu * self._centred_edges(d_edge_mu) / self.rho
        first = _ratio(change.sum(axis=2), self.roots[0][:, :, 0])
        return np.concatenate([first, _ratio(change.sum(axis=1), self.roots[1][:, 0, :])], axis=1)

    def _multipliers(self, ends):
        """Compute the multipliers of the constraints between edges and their ends."""
        return self.rho[:, 0] * ends + np.einsum("eab,eb->ea", self.blocks, ends)


class ProductCurvature(Curvature):
    """Curvature of mean field, where D has the tables off its diagonal.

    Parameters
    ----------
    graph : Graph
        Structure.
    tables : ndarray of shape (n_tables, n_states, n_states)
        Tables of theta, finite.
    mu : ndarray of shape (n_nodes, n_states)
        Node marginals.
    """

    def __init__(self, graph, tables, mu):
        self.graph, self.mu = graph, mu
        self.ends = mu[graph.edges[:, 0], :, None], mu[graph.edges[:, 1], None, :]
        pair = tables[graph.edge_table]
        pair = pair - (self.ends[0] * pair).sum(axis=1, keepdims=True)
        pair -= (self.ends[1] * pair).sum(axis=2, keepdims=True)
        across = -np.sqrt(self.ends[0]) * pair * np.sqrt(self.ends[1])
        none = np.zeros_like(across)
        self.blocks = np.block([[none, across], [across.transpose(0, 2, 1), none]])

    def right_hand_side(self, d_mu, d_edge_mu):
        if d_edge_mu is not None:
            first, second = (d_edge_mu * self.ends[1]).sum(axis=2), (d_edge_mu * self.ends[0]).sum(axis=1)
            d_mu = d_mu + sum_by_node(self.graph, np.concatenate([first, second], axis=1))
        return np.sqrt(self.mu) * _centred(d_mu, self.mu)

    def derivatives(self, y, d_edge_mu):
        change = np.sqrt(self.mu) * y
        i, j = self.graph.edges.T
        return change, change[i, :, None] * self.ends[1] + self.ends[0] * change[j, None, :]

"""The objective of an inference near its maximum: second derivatives, as implicit differentiation needs them.

The derivative of a maximiser solves the linear system of D13 section 5, ``[[D, B^T], [B, 0]]`` with D the
second derivatives of the entropy and B the constraints. Here everything but the marginals of nodes is
eliminated from it, edge by edge, and these are measured in units of ``sqrt(mu)``. What is left,

    W y = b,    W = I + one block for each edge,

has the size of the nodes' marginals, and needs no constraint: W maps ``sqrt(mu)``, along which the sum of a
marginal would change, to itself. It is positive definite at a strict maximum, also where D is singular as a
node's ``1 - sum rho`` is 0. States that have no probability drop out of it.
"""

from abc import ABC, abstractmethod

import numpy as np

from skcrf.graph import sum_by_node

# How close to 1 a correlation may come. Where it is 1 (tables that tie states of two nodes together) an edge
# is rigid, and the elimination would divide by zero. Here the error made so is as small as that of rounding.
_RIGID = 1e-8


class Curvature(ABC):
    """The linear system of a stationary point.

    Attributes
    ----------
    blocks : ndarray of shape (n_edges, 2 * n_states, 2 * n_states)
        What each edge adds to the identity, at the states of its first end, then of its second.
    """

    @abstractmethod
    def enter(self, d_mu, d_edge_mu):
        """Compute the right side b, (n_nodes, n_states); `d_edge_mu` may be None."""

    @abstractmethod
    def leave(self, y, d_edge_mu):
        """Compute what the solution means for nodes, (n_nodes, n_states), and edges, one table each."""


def _ratio(a, b):
    """a / b, and 0 where b is."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)


def _centred(d_mu, mu):
    return d_mu - (mu * d_mu).sum(axis=1, keepdims=True)


def _response_of_ends(a):
    """The inverse of ``[[I, A], [A^T, I]]``, less the identity, for many A of singular values up to 1."""
    a_t = a.transpose(0, 2, 1)
    # By products, so that what is tiny keeps its digits.
    squares = a @ a_t
    rigid = np.flatnonzero(np.einsum("exx->e", squares) >= (1 - _RIGID) ** 2)
    squares[rigid] = 0.0
    inverse = np.linalg.inv(np.eye(a.shape[1]) - squares)
    across = inverse @ a
    blocks = np.block([[inverse @ squares, -across], [-across.transpose(0, 2, 1), a_t @ across]])
    if len(rigid):
        # By singular values, so that large numbers cancel where they should.
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
    """That of theta . mu + H(mu) on the local polytope, H as in D13 Eq 16.

    The entries of D are ``-(1 - sum rho) / mu`` at nodes and ``-rho / mu`` at edges. With the correlations
    ``A = mu_ij / sqrt(mu_i mu_j) - sqrt(mu_i mu_j)`` the marginals and multipliers of an edge leave
    ``rho (inverse of [[I, A], [A^T, I]])`` at its ends.

    Parameters
    ----------
    graph : Graph
        Structure.
    rho : ndarray of shape (n_edges,)
        Weights of edges.
    mu : ndarray of shape (n_nodes, n_states)
        Marginals of nodes.
    edge_mu : ndarray of shape (n_edges, n_states, n_states)
        Marginals of edges.
    """

    def __init__(self, graph, rho, mu, edge_mu):
        self.graph, self.mu, self.edge_mu = graph, mu, edge_mu
        self.rho = rho[:, None, None]
        # Of the edges' own marginals, which are those of the nodes at a fixed point only.
        self.roots = np.sqrt(edge_mu.sum(axis=2))[:, :, None], np.sqrt(edge_mu.sum(axis=1))[:, None, :]
        scale = self.roots[0] * self.roots[1]
        a = _ratio(edge_mu, scale) - scale
        self.blocks = self.rho * _response_of_ends(a)

    def enter(self, d_mu, d_edge_mu):
        b = np.sqrt(self.mu) * _centred(d_mu, self.mu)
        if d_edge_mu is not None:
            b += sum_by_node(self.graph, self._pulls(self._ends(d_edge_mu)))
        return b

    def leave(self, y, d_edge_mu):
        ends = y[self.graph.edges].reshape(len(self.edge_mu), 2 * y.shape[1])
        d_edges = np.zeros_like(self.edge_mu)
        if d_edge_mu is not None:
            ends = ends - self._ends(d_edge_mu)
            d_edges += self._centred_edges(d_edge_mu)
        first, second = np.split(self._pulls(ends), 2, axis=1)
        d_edges += _ratio(first[:, :, None], self.roots[0]) + _ratio(second[:, None, :], self.roots[1])
        d_edges *= self.edge_mu / self.rho
        return np.sqrt(self.mu) * y, d_edges

    def _centred_edges(self, d_edge_mu):
        return d_edge_mu - np.einsum("exz,exz->e", self.edge_mu, d_edge_mu)[:, None, None]

    def _ends(self, d_edge_mu):
        """What an edge would do to the marginals of its ends if they were free."""
        moved = self.edge_mu * self._centred_edges(d_edge_mu) / self.rho
        first = _ratio(moved.sum(axis=2), self.roots[0][:, :, 0])
        return np.concatenate([first, _ratio(moved.sum(axis=1), self.roots[1][:, 0, :])], axis=1)

    def _pulls(self, ends):
        """The multipliers of the constraints between an edge and its ends."""
        return self.rho[:, 0] * ends + np.einsum("eab,eb->ea", self.blocks, ends)


class ProductCurvature(Curvature):
    """That of mean field, whose unknowns are the marginals of nodes: D has the tables off its diagonal.

    Parameters
    ----------
    graph : Graph
        Structure.
    tables : ndarray of shape (n_tables, n_states, n_states)
        theta of the edges, finite.
    mu : ndarray of shape (n_nodes, n_states)
        Marginals of nodes.
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

    def enter(self, d_mu, d_edge_mu):
        if d_edge_mu is not None:
            first, second = (d_edge_mu * self.ends[1]).sum(axis=2), (d_edge_mu * self.ends[0]).sum(axis=1)
            d_mu = d_mu + sum_by_node(self.graph, np.concatenate([first, second], axis=1))
        return np.sqrt(self.mu) * _centred(d_mu, self.mu)

    def leave(self, y, d_edge_mu):
        moved = np.sqrt(self.mu) * y
        i, j = self.graph.edges.T
        return moved, moved[i, :, None] * self.ends[1] + self.ends[0] * moved[j, None, :]

"""Topologies: graphs of examples and the features of their edges."""

import fields
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer

from skcrf.data import (
    Bias,
    ChainTopology,
    Contrast,
    Differences,
    GraphTopology,
    LatticeTopology,
    MeshTopology,
    edge_differences,
)
from skcrf.data.graphs import Outline
from skcrf.graph import chain, from_edges, lattice, mesh


def assert_same_graph(found, expected):
    for name, one, other in zip(expected._fields, found, expected, strict=True):
        assert_array_equal(one, other, err_msg=name)


def test_edge_differences_are_absolute():
    graph = fields.SINGLES["star_tied"]  # edges (3, 0), (3, 1), (3, 2)
    X = np.array([[0.0, 1.0], [2.0, 1.0], [-4.0, 0.0], [1.0, 5.0]])
    assert_array_equal(edge_differences(graph.edges, X), [[1, 4], [1, 4], [5, 5]])


@pytest.mark.parametrize("connectivity", [4, 8])
def test_lattices_share_a_table_per_direction_without_edge_features(connectivity):
    topology = LatticeTopology(connectivity, None, 1)
    graph = topology.graph((3, 4))
    assert topology.n_groups == connectivity // 2 == graph.n_tables
    assert_same_graph(graph, lattice(3, 4, connectivity))
    assert_array_equal(
        topology.edge_features(graph, (3, 4), np.zeros((12, 2))), np.ones((connectivity // 2, 1))
    )


def test_contrast_is_the_norm_of_the_difference():
    X = np.random.default_rng(0).normal(size=(12, 2))
    topology = LatticeTopology(4, Contrast(), 2)
    graph = topology.graph((3, 4))
    assert_same_graph(graph, lattice(3, 4, tied=False))
    V = topology.edge_features(graph, (3, 4), X)
    norms = np.linalg.norm(X[graph.edges[:, 0]] - X[graph.edges[:, 1]], axis=1)
    assert_allclose(V, np.c_[np.ones(graph.n_edges), norms], rtol=1e-15)


def test_sparse_edge_features_become_dense():
    features = Differences(FunctionTransformer(sparse.csr_array)).fit_edges([], 2)
    topology = LatticeTopology(4, features, 3)
    X = np.random.default_rng(0).normal(size=(4, 2))
    graph = topology.graph((2, 2))
    V = topology.edge_features(graph, (2, 2), X)
    assert_array_equal(V, np.c_[np.ones(4), edge_differences(graph.edges, X)])


def test_images_of_one_pixel_have_no_edges():
    for features, n_edge_features in ((Bias(), 1), (Contrast(), 2)):
        topology = LatticeTopology(4, features, n_edge_features)
        graph = topology.graph((1, 1))
        assert graph.n_edges == 0
        V = topology.edge_features(graph, (1, 1), np.zeros((1, 3)))
        assert V.shape == (graph.n_tables, n_edge_features)


def test_meshes_have_a_group_of_edges_per_parent():
    topology = MeshTopology(("left", "above_left"), None, 1)
    assert topology.n_groups == 2
    assert_same_graph(topology.graph((3, 4)), mesh(3, 4, ["left", "above_left"]))


def test_chains_share_one_table():
    graph = ChainTopology().graph((5,))
    assert_same_graph(graph, chain(5))
    assert graph.n_tables == 1
    assert_array_equal(ChainTopology().edge_features(graph, (5,), np.zeros((5, 2))), [[1.0]])


def test_graphs_share_a_table_unless_edges_have_features():
    edges, features = np.array([[0, 1], [2, 1]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    plain, featured = Outline(3, edges, None), Outline(3, edges, features, np.array([True, False, False]))
    assert_same_graph(GraphTopology(0).graph(plain), from_edges(3, edges, tied=True))
    assert_array_equal(GraphTopology(0).edge_features(GraphTopology(0).graph(plain), plain, None), [[1.0]])
    topology = GraphTopology(2)
    assert topology.n_edge_features == 2
    assert_same_graph(topology.graph(featured), from_edges(3, edges))
    assert_array_equal(topology.edge_features(topology.graph(featured), featured, None), features)
    nothing = Outline(3, edges[:0], None)
    assert topology.edge_features(topology.graph(nothing), nothing, None).shape == (0, 2)
    assert topology.hidden(plain) is None
    assert topology.hidden(featured).tolist() == [True, False, False]

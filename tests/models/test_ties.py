"""Ties between the weights of edges are orthogonal projections onto the weights that they allow."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcrf.models import TIES, PairwiseModel

N_GROUPS, N_FEATURES = 2, 3


def allowed(symmetric, n_classes):
    """Return a basis of the tables that a tie allows, (n_free, n_groups * n_features, k, k)."""
    k, n_tables = n_classes, N_GROUPS * N_FEATURES
    if symmetric == "potts":
        basis = np.zeros((N_FEATURES, 2, N_GROUPS, N_FEATURES, k, k))
        for feature in range(N_FEATURES):
            for group in range(N_GROUPS):
                for a in range(k):
                    for b in range(k):
                        basis[feature, int(a == b), group, feature, a, b] = 1.0
        return basis.reshape(-1, n_tables, k, k)
    basis = np.eye(n_tables * k * k).reshape(-1, n_tables, k, k)
    return basis + basis.transpose(0, 1, 3, 2) if symmetric else basis


@pytest.mark.parametrize("n_classes", [1, 2, 3])
@pytest.mark.parametrize("symmetric", TIES, ids=str)
def test_ties_are_orthogonal_projections(symmetric, n_classes, seed):
    rng = np.random.default_rng(seed)
    given = rng.normal(size=(N_GROUPS * N_FEATURES, n_classes, n_classes))
    basis = allowed(symmetric, n_classes).reshape(-1, given.size).T
    nearest = basis @ np.linalg.lstsq(basis, given.ravel())[0]
    tied = TIES[symmetric](given, N_GROUPS)
    assert tied.shape == given.shape
    assert_allclose(tied.ravel(), nearest, atol=1e-12)


@pytest.mark.parametrize("symmetric", TIES, ids=str)
def test_model_projects_its_edge_weights_by_its_ties(symmetric, seed):
    model = PairwiseModel(3, 2, N_FEATURES, N_GROUPS, symmetric=symmetric)
    w = np.random.default_rng(seed).normal(size=len(model.pack(model.zeros())))
    params, projected = model.unpack(w), model.unpack(model.project_vector(w))
    assert_allclose(projected["edge_coef"], TIES[symmetric](params["edge_coef"], N_GROUPS), rtol=1e-15)
    assert_allclose(projected["coef"], params["coef"], rtol=1e-15)
    assert_allclose(projected["intercept"], params["intercept"], rtol=1e-15)

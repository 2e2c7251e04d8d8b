"""The scikit-learn contract: estimator checks, clones, pickles, parameters, searches, metadata."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from small_images import quick, ragged_images

import skcrf
from skcrf import GridCRFClassifier
from skcrf.inference import TRW, MeanField
from skcrf.metrics import SCORERS
from skcrf.preprocessing import PixelWise

ESTIMATORS = [getattr(skcrf, name) for name in skcrf.__all__ if name.endswith("Classifier")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([estimator() for estimator in ESTIMATORS])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


def test_clones_pickles_and_representations(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    assert clone(est).get_params()["inference__max_iter"] == 3
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict_proba(X)[0], est.predict_proba(X)[0])
    assert "GridCRFClassifier" in est._repr_html_()
    assert "max_iter=3" in repr(est)


def test_nested_parameters_turn_names_into_components():
    est = GridCRFClassifier().set_params(inference__max_iter=7, optimizer__memory=3)
    assert est.inference.max_iter == 7
    assert est.optimizer.memory == 3
    est = GridCRFClassifier().set_params(inference="mean_field", inference__max_iter=4)
    assert isinstance(est.inference, MeanField)
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        GridCRFClassifier().set_params(inference__nonsense=1)


def test_fit_does_not_change_parameters(images):
    X, Y = images
    inference = TRW(max_iter=2)
    est = quick(inference=inference)
    before = {name: repr(value) for name, value in est.get_params().items()}
    est.fit(X, Y)
    assert {name: repr(value) for name, value in est.get_params().items()} == before
    assert est.inference is inference
    assert est.inference_ is not inference


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_grid_search_in_a_pipeline(images):
    X, Y = images
    pipe = make_pipeline(PixelWise(StandardScaler()), make_pipeline(quick(inference="trw")))
    grid = {
        "pipeline__gridcrfclassifier__alpha": [1e-3, 10.0],
        "pipeline__gridcrfclassifier__inference__max_iter": [1, 3],
        "pixelwise__transformer__with_mean": [True, False],
    }
    search = GridSearchCV(pipe, grid, cv=2).fit(X, Y)
    assert search.best_params_["pipeline__gridcrfclassifier__alpha"] == 1e-3
    assert search.score(X, Y) > 0.4
    for scorer in SCORERS.values():
        scores = cross_val_score(pipe, X, Y, cv=KFold(3), scoring=scorer)
        assert np.isfinite(scores).all()


def test_sample_weights_are_routed_through_a_search(images):
    X, Y = images
    with config_context(enable_metadata_routing=True):
        est = quick().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(est, {"alpha": [1e-2]}, cv=2, error_score="raise")
        search.fit(X, Y, sample_weight=np.array([1.0, 2, 1, 1, 1, 1]))
    direct = quick(alpha=1e-2).fit(X, Y, sample_weight=[1, 2, 1, 1, 1, 1])
    np.testing.assert_array_equal(search.best_estimator_.coef_, direct.coef_)

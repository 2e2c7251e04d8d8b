"""Weights of examples and of classes."""

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.data import check_weights, compute_class_weights


def test_sample_weights_are_one_number_per_example():
    assert_array_equal(check_weights(None, 3), [1, 1, 1])
    assert_array_equal(check_weights(2, 3), [2, 2, 2])
    assert check_weights([1, 0, 3], 3).dtype == np.float64


@pytest.mark.parametrize(
    "weight, message",
    [
        ([1, 1], says("sample_weight", "one weight per example", r"\(3,\)", r"\(2,\)")),
        ([[1, 1, 1]], says("sample_weight", r"\(3,\)", r"\(1, 3\)")),
        (["a", 1, 1], says("sample_weight", "array of numbers", "'a'")),
        ([1, -1, 1], says(r"sample_weight\[1\]", "-1", "finite", "at least 0")),
        ([1, 1, np.nan], says(r"sample_weight\[2\]", "nan", "finite", "at least 0")),
        ([1, 1, np.inf], says(r"sample_weight\[2\]", "inf", "finite", "at least 0")),
    ],
)
def test_errors_name_the_sample_weight(weight, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weight, 3)


def test_balanced_class_weights_are_inverse_frequencies_of_the_classes_present():
    weights = compute_class_weights("balanced", np.arange(3), np.array([6.0, 0.0, 2.0]))
    assert_allclose(weights, [8 / (2 * 6), 1.0, 8 / (2 * 2)], rtol=1e-15)


def test_class_weights_given_by_class_are_1_for_others():
    weights = compute_class_weights({"b": 3.0}, np.array(["a", "b"]), np.array([1.0, 1.0]))
    assert weights.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("class_weight", [{0: -1.0}, {0: np.nan}, {0: np.inf}])
def test_class_weights_must_be_finite_and_at_least_0(class_weight):
    with pytest.raises(ValueError, match=says("class_weight", "finite", "at least 0", "got {0: ")):
        compute_class_weights(class_weight, np.arange(2), np.ones(2))


def test_class_weights_must_leave_a_label():
    with pytest.raises(ValueError, match=says("class_weight", "above 0", "got {0: 0.0}")):
        compute_class_weights({0: 0.0}, np.arange(2), np.array([5.0, 0.0]))

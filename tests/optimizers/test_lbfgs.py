"""L-BFGS: restarts, and reports of failed line searches."""

import numpy as np
from numpy.testing import assert_allclose

from skcrf.optimizers import LBFGS

OPTIONS = {"max_iter": 200, "callback": lambda w, value, **known: False, "rng": None}


class MisleadingQuartic:
    """A quartic whose gradient is wrong after a few evaluations, until a point is evaluated again."""

    def __init__(self):
        self.points, self.restarted = [], False

    def __call__(self, w):
        self.restarted |= any(np.array_equal(w, point) for point in self.points)
        self.points.append(w.copy())
        wrong = not self.restarted and len(self.points) > 5
        return float(np.sum((w - 1) ** 4)), (-1.0 if wrong else 1.0) * 4 * (w - 1) ** 3


def test_lbfgs_restarts_after_a_bad_direction():
    objective = MisleadingQuartic()
    result = LBFGS().minimize(objective, np.full(3, 5.0), tol=1e-8, **OPTIONS)
    assert objective.restarted and result.success
    assert_allclose(result.x, 1.0, atol=1e-2)


def test_lbfgs_without_restarts_stays_where_the_line_search_fails():
    objective = MisleadingQuartic()
    result = LBFGS(max_restarts=0).minimize(objective, np.full(3, 5.0), tol=1e-8, **OPTIONS)
    assert np.abs(result.x - 1.0).max() > 0.1


def test_lbfgs_reports_that_no_step_lowers_the_objective():
    """The gradient is slightly wrong, as that of inference with a large `tol`."""

    def objective(w):
        return float(np.sum((w - 1) ** 2)), np.sign(w - 1) * np.maximum(2 * np.abs(w - 1), 0.01)

    result = LBFGS().minimize(objective, np.array([0.0, -0.3, 2.7]), tol=1e-5, **OPTIONS)
    assert not result.success
    assert "no step lowers the objective, though its gradient is" in result.message

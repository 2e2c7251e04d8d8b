"""Adam: best weights and step sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

from skcrf.optimizers import Adam


class Bowl:
    """A steep quadratic objective of one batch."""

    batches = [SimpleNamespace(n_examples=1)]

    def __call__(self, w, batches=None):
        return float(5e3 * w @ w), 1e4 * w


@pytest.mark.parametrize("learning_rate, success", [(0.005, True), (10.0, False)])
def test_adam_is_never_worse_than_its_start(learning_rate, success):
    objective, start = Bowl(), np.full(3, 0.01)
    result = Adam(learning_rate=learning_rate).minimize(
        objective,
        start,
        max_iter=300,
        tol=1e-6,
        callback=lambda w, value, **known: False,
        rng=np.random.RandomState(0),
    )
    assert result.success == success
    assert result.fun == objective(result.x)[0] <= objective(start)[0]
    assert (result.fun < objective(start)[0]) == success
    assert ("learning_rate" in result.message) != success

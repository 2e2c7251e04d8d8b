"""Fixed-point iterations and their two reverses, written once for all methods that iterate.

A method brings a `step` that advances the state of the active examples in place, and a `step_vjp`
that pulls the adjoint of the state back through one such step. Every example stops by itself, so
its answer does not depend on the batch it is in.
"""

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import max_abs_by_part

#: Constraints on the parameters that all methods share which iterate.
ITERATION = {
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
}

_EXPLODED = 1e6


class Trace(NamedTuple):
    """How an iteration went.

    Attributes
    ----------
    state : ndarray of shape (n_rows, n_states)
        Where it ended.
    n_iter, converged : ndarray of shape (n_examples,)
        Steps done, and whether they reached `tol`.
    tape : list of (state, active) pairs, or None
        The state before each step and the examples that took it.
    """

    state: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    tape: list | None


def iterate(step, state, n_examples, *, max_iter, tol, tape):
    """Repeat a step.

    Parameters
    ----------
    step : callable
        ``step(state, active)`` advances the rows of the active examples in place and returns the
        change of each example, ndarray of shape (n_examples,).
    state : ndarray of shape (n_rows, n_states)
        Where to start; changed in place.
    n_examples : int
        Number of examples.
    max_iter : int
        Steps at most.
    tol : float
        An example stops when its change is at most `tol`. 0 for exactly `max_iter` steps: the
        truncated answer, which counts as converged by definition.
    tape : bool
        Whether to record.

    Returns
    -------
    trace : Trace
        The result.
    """
    active = np.ones(n_examples, dtype=bool)
    n_iter = np.zeros(n_examples, dtype=np.int64)
    records = [] if tape else None
    for _ in range(max_iter):
        if tape:
            records.append((state.copy(), active.copy()))
        change = step(state, active)
        n_iter += active
        if tol > 0:
            active &= change > tol
            if not active.any():
                break
    return Trace(state, n_iter, ~active if tol > 0 else np.ones(n_examples, dtype=bool), records)


def reverse(step_vjp, trace, d_state, row_ptr, *, tol):
    """Pull the adjoint of the last state back through the iteration.

    Parameters
    ----------
    step_vjp : callable
        ``step_vjp(before, after, active, d_state)`` takes `d_state` in place from the adjoint after a step
        to the one before it, accumulating what belongs to theta.
    trace : Trace
        The iteration.
    d_state : ndarray of shape (n_rows, n_states)
        Adjoint of the last state; changed in place.
    row_ptr : ndarray of shape (n_examples + 1,)
        Where the rows of each example start.
    tol : float
        The tolerance of the iteration.
    """
    if trace.tape is not None:
        _reverse_tape(step_vjp, trace, d_state)
    elif tol == 0:
        raise RuntimeError("A truncated inference is differentiated by its tape: use forward(tape=True).")
    else:
        _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol)


def _reverse_tape(step_vjp, trace, d_state):
    """Undo the very steps that were recorded (D13 section 7)."""
    after = trace.state
    for before, active in reversed(trace.tape):
        step_vjp(before, after, active, d_state)
        after = before


def _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol):
    """Iterate the adjoint at the fixed point; needs no tape.

    At a fixed point every earlier step would have started from the same state, so the sum over an endless
    past is a series of the same linear map, which falls as fast as the iteration converged. It is cut where
    its terms are relatively small. Where the iteration did not converge there is no such series, and the
    derivative is that of the last readout alone.
    """
    first = max_abs_by_part(d_state, row_ptr)
    active = trace.converged & (first > 0)
    n_terms = 0
    while active.any():
        step_vjp(trace.state, trace.state, active, d_state)
        n_terms += 1
        size = max_abs_by_part(d_state, row_ptr)
        # A point that the iteration reached by luck need not attract: stop before the series explodes.
        active &= (size > tol * first) & (size < _EXPLODED * first) & (n_terms < 10 * trace.n_iter)

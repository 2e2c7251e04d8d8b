"""Fixed-point iterations, and derivatives through them.

A `step` advances the state of the active examples in place, and a `step_vjp` pulls the adjoint of the state
back through one such step. Every example stops on its own, so that its result does not depend on the batch.
"""

import math
from numbers import Integral, Real
from threading import Lock
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import copy, empty, max_abs_by_part

#: Constraints on the parameters of all methods that iterate.
ITERATION = {
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
}

# The series of adjoints diverges if a term is larger than the first one by this factor.
_DIVERGED = 1e6
# A run that resumes stops when its change is below this share of its first change, within these limits.
_RESUMED_SHARE, _RESUMED_MIN_TOL = 0.01, 1e-4
# With a larger `tol`, results depend too much on where a run started for an optimizer.
_MAX_RESUMED_TOL = 1e-4


class Trace(NamedTuple):
    """Result of an iteration.

    Attributes
    ----------
    state : ndarray of shape (n_rows, n_states)
        The final state.
    n_iter, converged : ndarray of shape (n_examples,)
        Number of steps, and whether they reached `tol`.
    tape : Tape or None
        The states before each step.
    """

    state: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    tape: "Tape | None"


class Tape:
    """The states before the steps of an iteration.

    If all of them take too much memory, the tape stores one in every few and repeats the steps in between
    when they are needed: one more iteration in time, the square root in memory.

    Parameters
    ----------
    step : callable
        The step, as for `iterate`.
    size : int
        Bytes per state.
    max_iter : int
        Maximum number of steps.
    max_bytes : float
        Maximum number of bytes of all states.
    """

    def __init__(self, step, size, max_iter, max_bytes):
        self.step = step
        self.stride = 1 if max_iter * size <= max_bytes else math.isqrt(max_iter - 1) + 1
        self.states, self.actives = [], []
        # A step uses scratch memory of the engine, and several threads may differentiate the same beliefs.
        self.lock = Lock()

    def record(self, state, active, *, keep=False):
        """Record the state before a step, and the examples that take it; copy it unless it is kept."""
        if self.stores_next:
            self.states.append(state if keep else copy(state))
        self.actives.append(active.copy())

    @property
    def stores_next(self):
        """Whether the state before the next step will be stored."""
        return len(self.actives) % self.stride == 0

    def reversed(self, after):
        """Go back from the last state.

        Parameters
        ----------
        after : ndarray
            The last state.

        Yields
        ------
        before, after : ndarray
            The states around a step, last step first.
        active : ndarray of shape (n_examples,)
            The examples that took it.
        """
        for n in range(len(self.states) - 1, -1, -1):
            actives = self.actives[n * self.stride : (n + 1) * self.stride]
            states = [self.states[n]]
            for active in actives[:-1]:
                state = copy(states[-1])
                with self.lock:
                    self.step(state, active)
                states.append(state)
            for active in reversed(actives):
                before = states.pop()
                yield before, after, active
                after = before


def may_resume(tol):
    """Return whether runs with a tolerance are accurate enough to start from the results of others."""
    return 0 < tol <= _MAX_RESUMED_TOL


def iterate(step, state, n_examples, *, max_iter, tol, tape, resumed=False, step_from=None):
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
        Maximum number of steps.
    tol : float
        An example stops when its change is at most `tol`. 0 for exactly `max_iter` steps: the truncated
        result, which is converged by definition.
    tape : bool or float
        Whether to record a tape; a number limits its bytes.
    resumed : bool, default=False
        Whether the start is the result of a similar problem. Stopping at `tol` would leave it almost
        unchanged and hide small steps from an optimizer, so that a smaller tolerance is used.
    step_from : callable, default=None
        ``step_from(before, state, active)`` does a step from one array to another, so that a tape needs no
        copies.

    Returns
    -------
    trace : Trace
        The result.
    """
    active = np.ones(n_examples, dtype=bool)
    n_iter = np.zeros(n_examples, dtype=np.int64)
    max_bytes = np.inf if tape is True else tape
    record = Tape(step, state.nbytes, max_iter, max_bytes) if tape else None
    goal, converged = np.full(n_examples, tol), np.full(n_examples, tol == 0)
    for n in range(max_iter):
        if tape and step_from is not None and record.stores_next:
            record.record(state, active, keep=True)
            before, state = state, empty(state.shape, state.dtype)
            change = step_from(before, state, active)
        else:
            if tape:
                record.record(state, active)
            change = step(state, active)
        n_iter += active
        if tol > 0:
            if resumed and n == 0:
                least = max(_RESUMED_MIN_TOL * tol, 8 * np.finfo(state.dtype).eps)  # above rounding errors
                goal = np.clip(_RESUMED_SHARE * change, min(least, tol), tol)
            converged[active] = change[active] <= tol
            active &= change > goal
            if not active.any():
                break
    return Trace(state, n_iter, converged, record)


def reverse(step_vjp, trace, d_state, row_ptr, *, tol, max_terms):
    """Pull the adjoint of the last state back through the iteration.

    Parameters
    ----------
    step_vjp : callable
        ``step_vjp(before, after, active, d_state)`` replaces `d_state`, the adjoint after a step, by the one
        before it, and adds derivatives with respect to theta elsewhere.
    trace : Trace
        The iteration.
    d_state : ndarray of shape (n_rows, n_states)
        Adjoint of the last state; changed in place.
    row_ptr : ndarray of shape (n_examples + 1,)
        Where the rows of each example start.
    tol : float
        The tolerance of the iteration.
    max_terms : ndarray of shape (n_examples,)
        Maximum number of terms of the series at a fixed point.
    """
    if trace.tape is not None:
        # Exactly the steps that were recorded, D13 section 7.
        for before, after, active in trace.tape.reversed(trace.state):
            step_vjp(before, after, active, d_state)
    elif tol == 0:
        raise RuntimeError(
            "forward must record a tape for backward with tol=0, got none. Use forward(tape=True)."
        )
    else:
        _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol, max_terms)


def _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol, max_terms):
    """Sum the adjoints of all earlier steps at the fixed point; needs no tape.

    At a fixed point every earlier step would have started from the same state, so that the adjoints form a
    series of powers of one linear map, which decreases as fast as the iteration converged. The series is cut
    where its terms are relatively small. If the iteration did not converge there is no such series, and the
    derivative is that of the last readout alone.
    """
    first = max_abs_by_part(d_state, row_ptr)
    active = trace.converged & (first > 0)
    n_terms = 0
    while active.any():
        step_vjp(trace.state, trace.state, active, d_state)
        n_terms += 1
        size = max_abs_by_part(d_state, row_ptr)
        # An iteration may stop at a point that does not attract; then the series diverges.
        active &= (size > tol * first) & (size < _DIVERGED * first) & (n_terms < max_terms)

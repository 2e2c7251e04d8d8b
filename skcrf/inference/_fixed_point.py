"""Fixed-point iterations, and derivatives through them.

The step of an engine advances the state of the active examples in place, and its `step_vjp` pulls the adjoint
of the state back through one such step. Every example stops on its own, so that its result does not depend on
the batch.
"""

import math
from numbers import Integral, Real
from threading import Lock
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import copy, max_abs_by_part

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
        The records of all steps.
    """

    state: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    tape: "Tape | None"


class Tape:
    """The records of the steps of an iteration, from which their derivatives are computed.

    If all of them take too much memory, the tape stores the state before one in every few steps and repeats
    these steps when their records are needed: one more run in time, the square root in memory.

    Parameters
    ----------
    engine : Engine
        The engine that takes the steps.
    size : int
        Bytes per state.
    max_iter : int
        Maximum number of steps.
    max_bytes : float
        Maximum number of bytes of all states.
    """

    def __init__(self, engine, size, max_iter, max_bytes):
        self.engine = engine
        self.stride = 1 if max_iter * size <= max_bytes else math.isqrt(max_iter - 1) + 1
        self.states, self.records, self.actives = [], [], []
        # A step uses scratch memory of the engine, and several threads may differentiate the same beliefs.
        self.lock = Lock()

    def add(self, record, active):
        """Add the record of a step, if all of them are kept."""
        self.records.append(record)
        self.actives.append(active.copy())

    def add_gap(self, state, active):
        """Add a step without a record, before it is taken."""
        if len(self.actives) % self.stride == 0:
            self.states.append(copy(state))
        self.actives.append(active.copy())

    def reversed(self):
        """Go back from the last step.

        Yields
        ------
        record : object
            Record of a step, which only the engine reads.
        active : ndarray of shape (n_examples,)
            The examples that took it.
        """
        if self.stride == 1:
            yield from zip(reversed(self.records), reversed(self.actives), strict=True)
        for n in range(len(self.states) - 1, -1, -1):
            actives = self.actives[n * self.stride : (n + 1) * self.stride]
            state, records = copy(self.states[n]), []
            with self.lock:
                for active in actives:
                    state, _, record = self.engine.recorded_step(state, active)
                    records.append(record)
            while records:
                yield records.pop(), actives.pop()


def may_resume(tol):
    """Return whether runs with a tolerance are accurate enough to start from the results of others."""
    return 0 < tol <= _MAX_RESUMED_TOL


def iterate(engine, state, n_examples, *, max_iter, tol, tape, resumed=False):
    """Repeat the step of an engine.

    Parameters
    ----------
    engine : Engine
        The engine.
    state : ndarray of shape (n_rows, n_states)
        Where to start; may be changed in place.
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

    Returns
    -------
    trace : Trace
        The result.
    """
    active = np.ones(n_examples, dtype=bool)
    n_iter = np.zeros(n_examples, dtype=np.int64)
    max_bytes = np.inf if tape is True else tape
    kept = Tape(engine, state.nbytes, max_iter, max_bytes) if tape else None
    goal, converged = np.full(n_examples, tol), np.full(n_examples, tol == 0)
    for n in range(max_iter):
        if tape and kept.stride == 1:
            state, change, record = engine.recorded_step(state, active)
            kept.add(record, active)
        else:
            if tape:
                kept.add_gap(state, active)
            change = engine.step(state, active)
        n_iter += active
        if tol > 0:
            if resumed and n == 0:
                least = max(_RESUMED_MIN_TOL * tol, 8 * np.finfo(state.dtype).eps)  # above rounding errors
                goal = np.clip(_RESUMED_SHARE * change, min(least, tol), tol)
            converged[active] = change[active] <= tol
            active &= change > goal
            if not active.any():
                break
    return Trace(state, n_iter, converged, kept)


def reverse(engine, adjoint, trace, d_state, *, tol, max_terms):
    """Pull the adjoint of the last state back through the iteration.

    Parameters
    ----------
    engine : Engine
        The engine.
    adjoint : object
        Adjoint of the potentials, in the layout of the engine; changed in place.
    trace : Trace
        The iteration.
    d_state : ndarray of shape (n_rows, n_states)
        Adjoint of the last state; changed in place.
    tol : float
        The tolerance of the iteration.
    max_terms : ndarray of shape (n_examples,)
        Maximum number of terms of the series at a fixed point.
    """
    if trace.tape is not None:
        # Exactly the steps that were recorded, D13 section 7.
        for record, active in trace.tape.reversed():
            engine.step_vjp(adjoint, record, active, d_state)
    elif tol == 0:
        raise RuntimeError(
            "forward must record a tape for backward with tol=0, got none. Use forward(tape=True)."
        )
    else:
        _reverse_fixed_point(engine, adjoint, trace, d_state, tol, max_terms)


def _reverse_fixed_point(engine, adjoint, trace, d_state, tol, max_terms):
    """Sum the adjoints of all earlier steps at the fixed point; needs no tape.

    At a fixed point every earlier step would have started from the same state, so that the adjoints form a
    series of powers of one linear map, which decreases as fast as the iteration converged. The series is cut
    where its terms are relatively small. If the iteration did not converge there is no such series, and the
    derivative is that of the last readout alone.
    """
    first = max_abs_by_part(d_state, engine.row_ptr)
    active = trace.converged & (first > 0)
    if not active.any():
        return
    record, n_terms = engine.record_at(trace.state), 0
    while active.any():
        engine.step_vjp(adjoint, record, active, d_state)
        n_terms += 1
        size = max_abs_by_part(d_state, engine.row_ptr)
        # An iteration may stop at a point that does not attract; then the series diverges.
        active &= (size > tol * first) & (size < _DIVERGED * first) & (n_terms < max_terms)

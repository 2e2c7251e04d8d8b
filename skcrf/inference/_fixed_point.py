"""Fixed-point iterations and their two reverses, written once for all methods that iterate.

A method brings a `step` that advances the state of the active examples in place, and a `step_vjp`
that pulls the adjoint of the state back through one such step. Every example stops by itself, so
its answer does not depend on the batch it is in.
"""

import math
from numbers import Integral, Real
from threading import Lock
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import max_abs_by_part
from skcrf._scratch import copy

#: Constraints on the parameters that all methods share which iterate.
ITERATION = {
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
}

_EXPLODED = 1e6
# Of a run that resumed: how much of the way it has to go may be left, and how much of `tol` is close enough.
_LEFT, _CLOSE = 0.01, 1e-4
# With a larger `tol` it shows where a run started, and optimizers stumble over that.
_LOOSE = 1e-4


class Trace(NamedTuple):
    """How an iteration went.

    Attributes
    ----------
    state : ndarray of shape (n_rows, n_states)
        Where it ended.
    n_iter, converged : ndarray of shape (n_examples,)
        Steps done, and whether they reached `tol`.
    tape : Tape or None
        The states before each step.
    """

    state: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    tape: "Tape | None"


class Tape:
    """The states before the steps of an iteration.

    Where they would take too much memory, one in every few is kept, and the steps from it are done again when
    they are needed: one more iteration in time, the square root in memory.

    Parameters
    ----------
    step : callable
        The step, as for `iterate`.
    size : int
        Bytes of a state.
    max_iter : int
        Steps at most.
    max_bytes : float
        Bytes that all states may take.
    """

    def __init__(self, step, size, max_iter, max_bytes):
        self.step = step
        self.stride = 1 if max_iter * size <= max_bytes else math.isqrt(max_iter - 1) + 1
        self.states, self.actives = [], []
        # A step uses scratch of the engine; threads may differentiate the same beliefs.
        self.one_at_a_time = Lock()

    def record(self, state, active):
        """Take note of the state before a step, and of the examples that take it."""
        if len(self.actives) % self.stride == 0:
            self.states.append(copy(state))
        self.actives.append(active.copy())

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
        for kept in range(len(self.states) - 1, -1, -1):
            actives = self.actives[kept * self.stride : (kept + 1) * self.stride]
            states = [self.states[kept]]
            for active in actives[:-1]:
                state = copy(states[-1])
                with self.one_at_a_time:
                    self.step(state, active)
                states.append(state)
            for active in reversed(actives):
                before = states.pop()
                yield before, after, active
                after = before


def may_resume(tol):
    """Tell whether runs are exact enough to start from where others ended.

    Parameters
    ----------
    tol : float
        Tolerance of the method.

    Returns
    -------
    resumes : bool
        Never for truncated ones.
    """
    return 0 < tol <= _LOOSE


def iterate(step, state, n_examples, *, max_iter, tol, tape, resumed=False):
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
    tape : bool or float
        Whether to record; a number is the bytes that it may take.
    resumed : bool, default=False
        Whether the start is the answer to a similar problem. What is within `tol` of it would hardly move, so
        that an optimizer could not see what its small steps do: where there is a way to go, most of it is.

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
        if tape:
            record.record(state, active)
        change = step(state, active)
        n_iter += active
        if tol > 0:
            if resumed and n == 0:
                goal = np.clip(_LEFT * change, _CLOSE * tol, tol)
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
    max_terms : ndarray of shape (n_examples,)
        How often to iterate the adjoint at a fixed point, at most.
    """
    if trace.tape is not None:
        _reverse_tape(step_vjp, trace, d_state)
    elif tol == 0:
        raise RuntimeError("A truncated inference is differentiated by its tape: use forward(tape=True).")
    else:
        _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol, max_terms)


def _reverse_tape(step_vjp, trace, d_state):
    """Undo the very steps that were recorded (D13 section 7)."""
    for before, after, active in trace.tape.reversed(trace.state):
        step_vjp(before, after, active, d_state)


def _reverse_fixed_point(step_vjp, trace, d_state, row_ptr, tol, max_terms):
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
        active &= (size > tol * first) & (size < _EXPLODED * first) & (n_terms < max_terms)

"""Running an optimizer through the stages of a schedule."""

import numpy as np
from scipy.optimize import OptimizeResult


def stage_objectives(objective, schedule, max_iter, rng):
    """Return pairs of an objective and a number of iterations, one per stage; the last has all examples."""
    sizes = np.array([batch.n_examples for batch in objective.batches])
    stages = schedule.stages(sizes.sum(), max_iter)
    order = rng.permutation(len(sizes)) if len(stages) > 1 else np.arange(len(sizes))
    ends = np.searchsorted(np.cumsum(sizes[order]), [n for n, _ in stages[:-1]]) + 1
    chosen = [[objective.batches[i] for i in np.sort(order[:end])] for end in ends]
    smaller = [objective.replace(batches=batches) for batches in chosen]
    return list(zip([*smaller, objective], [n for _, n in stages], strict=True))


def run_stages(objective, start, *, optimizer, schedule, max_iter, tol, monitor, rng):
    """Minimise an objective through the stages of a schedule.

    Parameters
    ----------
    objective : Objective
        Objective of all examples.
    start : callable
        Returns the weights to start from.
    optimizer : BaseOptimizer
        The optimizer.
    schedule : BaseSchedule
        The schedule.
    max_iter : int
        Largest number of iterations of the first stage.
    tol : float
        Tolerance of the optimizer.
    monitor : Monitor
        Records the iterations.
    rng : numpy.random.RandomState
        Source of randomness.

    Returns
    -------
    result : scipy.optimize.OptimizeResult
        Result of the last stage. If the user interrupts, `x` are the best weights so far, those of the start
        if there are no others, and `success` is None.
    """
    optimizer.check(objective)
    try:
        w = start()
        for stage, n_iter in stage_objectives(objective, schedule, max_iter, rng):
            monitor.restart(w)
            result = optimizer.minimize(stage, w, max_iter=n_iter, tol=tol, callback=monitor, rng=rng)
            w = result.x
            if monitor.stopped:
                break
    except KeyboardInterrupt:
        return OptimizeResult(x=monitor.best_w, success=None, message="interrupted")
    return result

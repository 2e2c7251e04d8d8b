"""The objective: from weights to a value and its gradient, summed over batches.

The only place that runs in parallel. Batches do not depend on the number of jobs and their results are
added in their order, so a fit gives the same bits with any `n_jobs`.
"""

from contextlib import contextmanager
from functools import cache

import numpy as np
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from skcrf.features import potentials, pull_back


@cache
def _libraries():
    return ThreadpoolController()  # looking for libraries takes a while


@contextmanager
def workers(n_jobs):
    """Open a pool of threads.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads, as in joblib.

    Yields
    ------
    run : callable
        ``run(function, batches)`` gives the list of what the function returns for each batch.
    """
    # One BLAS thread, with any n_jobs: sums then have one order, and cores are not asked for twice.
    # Threads whatever the backend: kernels release the interpreter, and batches stay where they are.
    with _libraries().limit(limits=1, user_api="blas"), Parallel(n_jobs=n_jobs, require="sharedmem") as pool:
        yield lambda function, batches: pool(delayed(function)(batch) for batch in batches)


class Objective:
    """Mean loss per labelled site plus ``alpha / 2`` times the squared norm of the coefficients.

    Parameters
    ----------
    batches : list of Batch
        The training set.
    shape : Weights
        Weights whose shapes those of the model have.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    alpha : float
        Strength of the ridge; the intercept is free.
    fit_intercept : bool
        Whether the intercept is fitted.
    run : callable
        What `workers` gives.

    Attributes
    ----------
    converged : bool
        Whether every inference of the last evaluation converged.
    """

    def __init__(self, batches, shape, *, loss, inference, alpha, fit_intercept, run):
        self.batches = batches
        self.shape = shape
        self.loss = loss
        self.inference = inference
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.run = run
        self.converged = True

    def __call__(self, w, batches=None):
        """Evaluate.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, as one vector.
        batches : list of Batch, default=None
            The part of the training set to evaluate; None for all.

        Returns
        -------
        value : float
            Objective.
        gradient : ndarray of shape (n_weights,)
            Its gradient.
        """
        batches = self.batches if batches is None else batches
        weights = self.shape.unravel(w)
        n_labels = sum(_count(batch) for batch in batches)
        results = self.run(lambda batch: self._evaluate(weights, batch), batches)
        value = sum(value for value, _, _ in results) / n_labels
        gradient = sum(gradient for _, gradient, _ in results) / n_labels
        self.converged = all(converged for _, _, converged in results)

        penalised = weights._replace(intercept=np.zeros_like(weights.intercept)).ravel()
        value += 0.5 * self.alpha * (penalised @ penalised)
        gradient = gradient + self.alpha * penalised
        if not self.fit_intercept:
            self.shape.unravel(gradient).intercept[:] = 0.0
        return float(value), gradient

    def _evaluate(self, weights, batch):
        graph = batch.graph
        theta = potentials(weights, batch)
        value, d_theta, converged = self.loss(self.inference, graph, theta, batch.y, batch.site_weight)
        np.multiply(d_theta.unary, batch.weight[graph.node_example, None], out=d_theta.unary)
        np.multiply(d_theta.tables, batch.weight[graph.table_example, None, None], out=d_theta.tables)
        gradient = pull_back(d_theta, batch, weights).ravel()
        return batch.weight @ value, gradient, bool(converged.all())


def _count(batch):
    """Weight of the labelled sites; class weights do not count, as in `LogisticRegression`."""
    return float(batch.weight[batch.graph.node_example] @ (batch.y >= 0))

"""Batches and objectives for tests, made by the public functions of `skcrf.data` and `skcrf.training`."""

import numpy as np

from skcrf.data import (
    Batch,
    Examples,
    ImageReader,
    Labels,
    LatticeTopology,
    check_weights,
    compute_class_weights,
    is_lazy,
    is_table,
    make_batches,
    partition,
    read_examples,
)
from skcrf.gradients import Backprop
from skcrf.inference import TRW
from skcrf.losses import UnivariateLogistic
from skcrf.models import PairwiseModel
from skcrf.training import Objective

LATTICE = LatticeTopology(4, None, 1)


class NoImages:
    """Recipe of a batch that is made of a graph."""

    def image_shapes(self, n_examples):
        return np.zeros((n_examples, 2), dtype=np.int64)


def batch_of(graph, X, V, y=None, weight=None):
    """Make a batch of a graph and features; all labels are hidden and all weights are 1 by default."""
    return Batch(
        graph=graph,
        X=X,
        V=V,
        y=np.full(graph.n_nodes, -1) if y is None else y,
        weight=np.ones(graph.n_examples) if weight is None else weight,
        site_weight=None,
        index=np.arange(graph.n_examples),
        recipe=NoImages(),
    )


def read(X, reader=None):
    """Read examples, or the rows of a table."""
    reader = reader or ImageReader()
    if is_table(X, reader.is_example, reader.many):
        return Examples(np.asarray(X, dtype=np.float64), reader, [()] * len(X))
    return read_examples(X, reader)


def batches_of(
    X,
    Y,
    reader=None,
    topology=LATTICE,
    *,
    sample_weight=None,
    class_weight=None,
    classes=None,
    batch_size=None,
    seed=0,
    missing_label=None,
):
    """Read examples and labels, and make the batches of a fit."""
    examples = read(X, reader)
    labels = Labels(Y, examples.shapes, missing_label=missing_label, name="y", keep=not is_lazy(Y))
    classes = labels.classes() if classes is None else np.asarray(classes)
    y = labels.encode(classes)
    weight = check_weights(sample_weight, len(examples))
    if examples.is_table:
        n_labels = (y[0] >= 0).astype(np.int64)
        totals = np.bincount(y[0][y[0] >= 0], weights=weight[y[0] >= 0], minlength=len(classes))
    else:
        counts = labels.counts(classes)
        n_labels, totals = counts.sum(axis=1), weight @ counts
    keep = np.flatnonzero((n_labels > 0) & (weight > 0))
    parts = list(partition(keep, examples.sizes, batch_size, np.random.RandomState(seed)))
    class_weights = None
    if class_weight is not None:
        class_weights = compute_class_weights(class_weight, classes, totals)
    return make_batches(examples, y, topology, parts, weight, class_weights=class_weights, n_labels=n_labels)


def run_in_order(work, batches, among=None, title="", take=None):
    """Apply a function to one batch after the other."""
    results = []
    for batch in batches:
        (take or results.append)(work(batch))
    return results


def objective_of(
    batches,
    model,
    *,
    loss=None,
    inference=None,
    gradient=None,
    alpha=1e-3,
    run=run_in_order,
    count_errors=None,
):
    """Make the objective of batches and a model, by default of truncated TRW and the univariate loss."""
    gradient, inference = gradient or Backprop(), inference or TRW(max_iter=3)
    return Objective(
        batches,
        model,
        loss=loss or UnivariateLogistic(),
        inference=gradient.wrap(inference),
        alpha=alpha,
        run=run,
        count_errors=count_errors,
    )


def lattice_model(batches, n_classes, topology=LATTICE, **options):
    """Make the model of the images in batches."""
    n_features = batches[0].X.shape[1]
    return PairwiseModel(n_classes, n_features, topology.n_edge_features, topology.n_groups, **options)

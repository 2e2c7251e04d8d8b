"""From validated examples to batches."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.utils import compute_class_weight

from skcrf.data.containers import Source, known_as
from skcrf.data.readers import BaseReader
from skcrf.graph import isolated, pack
from skcrf.models.features import Batch, stacked

# Sites that make a batch worth its overhead. Larger examples are batches of their own, and their
# features are not copied; smaller ones are packed together. A constant, so that results do not depend
# on the number of jobs.
_BATCH_SITES = 2048


class Fields(NamedTuple):
    """Validated examples.

    Attributes
    ----------
    examples : list of Example, ndarray or Source
        The examples; for a table one array whose rows they are; for examples that are loaded when asked for,
        where they come from.
    shapes : list of tuple
        The shape of the labels of each example; () for the rows of a table.
    reader : BaseReader
        What reads examples that go with these.
    """

    examples: list | np.ndarray | Source
    shapes: list
    reader: BaseReader

    @property
    def is_table(self):
        """Whether the examples are rows of a table."""
        return self.shapes[0] == ()

    @property
    def is_lazy(self):
        """Whether the examples are loaded when asked for."""
        return isinstance(self.examples, Source)

    def __getitem__(self, i):
        """Read an example again where it was not kept."""
        example = self.examples[i]
        return self.reader(example, self.examples.called(i)) if self.is_lazy else example

    @property
    def sizes(self):
        """ndarray of shape (n_examples,): the number of sites of each example."""
        return np.array([math.prod(shape) for shape in self.shapes])


def partition(keep, sizes, batch_size=None, rng=None):
    """Cut the examples into runs of few sites and of few examples, whichever is less.

    Parameters
    ----------
    keep : ndarray of shape (n_kept,)
        Which examples to take.
    sizes : ndarray of shape (n_examples,)
        Number of sites of each example.
    batch_size : int, default=None
        Number of examples in a batch at most.
    rng : numpy.random.RandomState, default=None
        Shuffles the examples, where there is a batch size.

    Yields
    ------
    chosen : ndarray of shape (n_chosen,)
        The examples of a batch.
    """
    if len(keep) == 0:
        return
    if batch_size is not None:
        keep = rng.permutation(keep)  # sorted data must not give batches of one class
    start, sites = 0, 0
    for i, size in enumerate(sizes[keep]):
        full = sites + size > _BATCH_SITES or (batch_size is not None and i - start >= batch_size)
        if i > start and full:
            yield keep[start:i]
            start, sites = i, 0
        sites += size
    yield keep[start:]


def count_labels(y, counts, weight, n_classes, is_table):
    """Count labels, by example and by class.

    Parameters
    ----------
    y : list of ndarray or None
        Labels of each example, -1 where hidden; of a table one array.
    counts : ndarray of shape (n_examples, n_classes) or None
        How many sites of an example have each label, where `y` is None.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    n_classes : int
        Number of labels.
    is_table : bool
        Whether the examples are rows of a table.

    Returns
    -------
    n_labels : ndarray of shape (n_examples,)
        Number of labelled sites of each example.
    totals : ndarray of shape (n_classes,)
        Weight of the sites that have each label.
    """
    if is_table:
        known = y[0] >= 0
        totals = np.bincount(y[0][known], weights=weight[known], minlength=n_classes)
        return known.astype(np.int64), totals
    if counts is None:
        counts = np.array([np.bincount(one[one >= 0], minlength=n_classes) for one in y])
    return counts.sum(axis=1), weight @ counts


def make_batches(fields, y, reading, parts, weight):
    """Pack examples that are in memory into batches.

    Parameters
    ----------
    fields : Fields
        The examples.
    y : list of ndarray or None
        Labels of each example, -1 where hidden, of a table one array; None where nothing is known.
    reading : Reading
        How examples are put together.
    parts : iterable of ndarray
        The examples of each batch.
    weight : ndarray of shape (n_examples,)
        Weight of each example.

    Returns
    -------
    batches : list of Batch
        One for each part.
    """
    if fields.is_table:
        y = np.full(len(weight), -1) if y is None else y[0]
        return [_table_batch(fields.examples, y, reading, chosen, weight) for chosen in parts]
    y = [np.full(size, -1) for size in fields.sizes] if y is None else y
    graph_of = cache(reading.structure.graph)  # examples of one outline share their graph
    return [
        field_batch(
            [fields.examples[i] for i in chosen],
            [y[i].ravel() for i in chosen],
            weight[chosen],
            reading,
            chosen,
            graph_of,
        )
        for chosen in parts
    ]


def _table_batch(X, y, reading, chosen, weight):
    in_order = (np.diff(chosen) == 1).all()
    rows = slice(chosen[0], chosen[-1] + 1) if in_order else chosen
    V = np.zeros((0, reading.structure.n_edge_features))
    site_weight = _site_weight(y[rows], reading.class_weights)
    graph = isolated(len(chosen))
    factors = reading.structure.factors(graph)
    return Batch(graph, X[rows], V, y[rows], weight[rows], site_weight, factors, numbers=chosen)


class Recipe(NamedTuple):
    """How the structure of a batch of fields is made.

    Attributes
    ----------
    structure : object
        Says which graph and edge features an example has.
    shapes : list of tuple
        Shape of the labels of each example.
    outlines : list of hashable
        What the graph of each example depends on.
    """

    structure: object
    shapes: list
    outlines: list

    def __call__(self, X, graph_of=None):
        """Make graph and edge features.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_sites, n_features)
            Features of all sites.
        graph_of : callable, default=None
            From the outline of an example to its graph; None for that of the structure.

        Returns
        -------
        graph : Graph
            Structure of the batch.
        V : ndarray of shape (n_tables, n_edge_features)
            Features of the tables.
        factors : FactorGraph or None
            Families of the nodes, where the model is directed.
        """
        graphs = [(graph_of or self.structure.graph)(outline) for outline in self.outlines]
        ends = np.cumsum([graph.n_nodes for graph in graphs])
        V = [
            self.structure.edge_values(graph, outline, X[end - graph.n_nodes : end])
            for graph, outline, end in zip(graphs, self.outlines, ends, strict=True)
        ]
        graph = pack(graphs)
        return graph, stacked(V), self.structure.factors(graph, self.outlines)

    @property
    def hidden(self):
        """Ndarray of shape (n_nodes,) or None: which sites are hidden variables; None if none is."""
        return self.structure.hidden(self.outlines)


def field_batch(examples, labels, weight, reading, numbers, graph_of=None):
    """Make a batch of fields.

    Parameters
    ----------
    examples : list of Example
        The examples.
    labels : list of ndarray of shape (n_sites,)
        Labels of each example, -1 where hidden.
    weight : ndarray of shape (n_examples,)
        Weights.
    reading : Reading
        How they are put together.
    numbers : ndarray of shape (n_examples,)
        The numbers by which the user knows them.
    graph_of : callable, default=None
        From the outline of an example to its graph; None for that of the structure.

    Returns
    -------
    batch : Batch
        The examples.
    """
    features, shapes, outlines = zip(*examples, strict=True)
    X, y, recipe = stacked(features), stacked(labels), Recipe(reading.structure, shapes, outlines)
    with known_as(numbers):
        graph, V, factors = recipe(X, graph_of)
    site_weight = _site_weight(y, reading.class_weights)
    batch = Batch(graph, X, V, y, weight, site_weight, factors, numbers=numbers)
    batch.recipe = recipe
    return batch


def refuse_labelled(outline, labels, name):
    """Refuse labels of nodes that are hidden variables.

    Parameters
    ----------
    outline : hashable
        What the reader says of an example.
    labels : ndarray of shape (n_sites,)
        Its labels, -1 where hidden.
    name : str
        What to call them in messages.
    """
    hidden = getattr(outline, "hidden", None)
    if hidden is not None and (labels[hidden] >= 0).any():
        node = int(np.flatnonzero(hidden & (labels >= 0))[0])
        raise ValueError(
            f"{name}[{node}] is a label, but X says that the node is a hidden variable: mask it, as by "
            "np.ma.masked_array(y, hidden)."
        )


def _site_weight(y, class_weights):
    return None if class_weights is None else np.where(y >= 0, class_weights[y], 0.0)


class Reading(NamedTuple):
    """How examples are read, where they are lazy, and put together.

    Attributes
    ----------
    reader : BaseReader
        What reads an example.
    classes : ndarray of shape (n_classes,)
        Labels.
    missing_label : object
        The value that stands for a hidden label.
    class_weights : ndarray of shape (n_classes,) or None
        Weights of the classes.
    structure : object
        Says which graph and edge features an example has.
    """

    reader: BaseReader
    classes: np.ndarray
    missing_label: object
    class_weights: np.ndarray | None
    structure: object


def class_weights_of(class_weight, classes, counts):
    """Compute the weight of each class.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        What the user asks for.
    classes : ndarray of shape (n_classes,)
        Labels.
    counts : ndarray of shape (n_classes,)
        Weight of the sites that have each label.

    Returns
    -------
    weights : ndarray of shape (n_classes,) or None
        Weights.
    """
    if class_weight is None:
        return None
    if class_weight != "balanced":
        weights = compute_class_weight(class_weight, classes=classes, y=classes)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"class_weight={class_weight!r}: expected finite weights of at least 0.")
        if not weights[counts > 0].any():
            raise ValueError(f"class_weight={class_weight!r} leaves no labelled site with a weight above 0.")
        return weights
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)

"""Batches: several examples as arrays, built once or before each evaluation."""

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy import sparse

from skcrf.data.class_weights import site_weights
from skcrf.data.examples import Examples, user_index
from skcrf.data.labels import LazyClassIndices
from skcrf.data.readers import Topology
from skcrf.graph import Graph, isolated, pack, without_edges

# Sites that make a batch worth its overhead. Larger examples are batches of their own, and their features are
# not copied; smaller ones are packed together. A constant, so that results do not depend on n_jobs.
_BATCH_SITES = 2048


@dataclass(frozen=True)
class FieldRecipe:
    """The graphs and edge features of a batch of examples, as they can be made again elsewhere."""

    topology: Topology
    shapes: list
    outlines: list

    def build(self, X, graph_of=None):
        """Make the graph of the batch and the features of its tables."""
        graphs = [(graph_of or self.topology.graph)(outline) for outline in self.outlines]
        ends = np.cumsum([graph.n_nodes for graph in graphs])
        V = []
        for i, (graph, outline, end) in enumerate(zip(graphs, self.outlines, ends, strict=True)):
            with user_index([i]):
                V.append(self.topology.edge_features(graph, outline, X[end - graph.n_nodes : end]))
        return pack(graphs), stack_rows(V)

    def hidden(self):
        """Return a boolean per node that marks hidden variables, or None if there are none."""
        marks = [self.topology.hidden(outline) for outline in self.outlines]
        if all(mark is None for mark in marks):
            return None
        sizes = [np.prod(shape, dtype=int) for shape in self.shapes]
        return np.concatenate(
            [np.zeros(n, dtype=bool) if mark is None else mark for mark, n in zip(marks, sizes, strict=True)]
        )

    def image_shapes(self, n_examples):
        """Return the height and width of each image, zeros for examples that are no images."""
        return np.array([shape if len(shape) == 2 else (0, 0) for shape in self.shapes], dtype=np.int64)

    def split(self, graph, rows):
        """Cut one row per node into one array per example, of the shape of its labels."""
        parts = np.split(rows, graph.node_ptr[1:-1])
        return [part.reshape(*s, *rows.shape[1:]) for part, s in zip(parts, self.shapes, strict=True)]


@dataclass(frozen=True)
class TableRecipe:
    """The rows of a table as nodes without edges."""

    n_edge_features: int

    def build(self, X):
        """Make the graph of the batch and the features of its tables, of which there are none."""
        return isolated(X.shape[0]), np.zeros((0, self.n_edge_features))

    def hidden(self):
        """Return None: rows have no hidden variables."""
        return None

    def image_shapes(self, n_examples):
        """Return ones: each row is an image of one pixel."""
        return np.ones((n_examples, 2), dtype=np.int64)

    def split(self, graph, rows):
        """Return the rows of the batch as one array."""
        return [rows]


@dataclass(eq=False)
class Batch:
    """Several examples, ready for evaluation.

    Attributes
    ----------
    graph : Graph
        Nodes and edges.
    X : ndarray or CSR matrix of shape (n_nodes, n_features)
        Features of the nodes, float32 or float64.
    V : ndarray of shape (n_tables, n_edge_features)
        Features of the tables, of a type that float32 includes, or float64.
    y : ndarray of shape (n_nodes,)
        Class indices, -1 where the label is hidden, of any integer type; see `labels`.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    site_weight : ndarray of shape (n_nodes,) or None
        Weight of each node by its class.
    index : ndarray of shape (n_examples,)
        Positions of the examples in the user's X.
    recipe : FieldRecipe or TableRecipe
        Makes `graph` and `V` of `X` again; a pickle holds it in their place.
    derived : dict
        Structures that a model derives from the batch once and keeps here.
    messages : dict
        Messages at which inference ended in an earlier evaluation.
    edgeless : dict
        Graphs without edges by the id of the graph with them, of all batches that were made together.
    """

    graph: Graph
    X: Any
    V: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    site_weight: np.ndarray | None
    index: np.ndarray
    recipe: FieldRecipe | TableRecipe
    derived: dict = field(default_factory=dict, repr=False)
    messages: dict = field(default_factory=dict, repr=False)
    edgeless: dict = field(default_factory=dict, repr=False)

    #: Whether the examples are loaded before each evaluation.
    is_lazy = False

    def __reduce__(self):
        return _rebuild, (self.recipe, self.X, self.y, self.weight, self.site_weight, self.index)

    def build(self, loaded):
        """Return the batch itself: nothing has to be loaded."""
        return self

    @property
    def n_examples(self):
        """Number of examples."""
        return self.graph.n_examples

    @property
    def n_sites(self):
        """Number of sites of all examples."""
        return self.graph.n_nodes

    @property
    def nbytes(self):
        """Size of the features and labels in bytes."""
        nodes = [self.X.data, self.X.indices, self.X.indptr] if sparse.issparse(self.X) else [self.X]
        return sum(array.nbytes for array in [*nodes, self.V, self.y])

    @property
    def labels(self):
        """ndarray of shape (n_nodes,): class indices as int64, -1 where the label is hidden."""
        return self.y.astype(np.int64, copy=False)

    @cached_property
    def hidden(self):
        """ndarray of shape (n_nodes,) or None: which nodes are hidden variables; None if none is."""
        return self.recipe.hidden()

    @property
    def image_shapes(self):
        """ndarray of shape (n_examples, 2): height and width of images, zeros for other examples."""
        return self.recipe.image_shapes(self.n_examples)

    @cached_property
    def hides_labels(self):
        """Whether labels are hidden."""
        return bool((self.y < 0).any())

    @cached_property
    def n_labels(self):
        """Weight of the labelled sites; class weights do not count, as in `LogisticRegression`."""
        labelled = self.graph.node_example[self.y >= 0]
        return float(self.weight @ np.bincount(labelled, minlength=self.n_examples))

    @cached_property
    def groups(self):
        """List: the tables of each group of edges, a slice where they are consecutive."""
        groups = []
        for group in range(int(self.graph.table_group.max(initial=-1)) + 1):
            tables = np.flatnonzero(self.graph.table_group == group)
            if len(tables) and tables[-1] - tables[0] + 1 == len(tables):
                tables = slice(int(tables[0]), int(tables[-1]) + 1)  # a view instead of a copy
            groups.append(tables)
        return groups

    @cached_property
    def stored_columns(self):
        """Pair: the columns of sparse features with entries in this batch, and the features in these columns.

        A batch has entries in few of the columns, so that products with the others would waste time.
        """
        columns = np.unique(self.X.indices)
        indices = np.searchsorted(columns, self.X.indices).astype(self.X.indices.dtype)
        parts = self.X.data, indices, self.X.indptr
        return columns, sparse.csr_array(parts, shape=(self.X.shape[0], len(columns)))

    @cached_property
    def without_edges(self):
        """Batch: the same nodes without edges."""
        if id(self.graph) not in self.edgeless:
            self.edgeless[id(self.graph)] = without_edges(self.graph)
        return Batch(
            self.edgeless[id(self.graph)],
            self.X,
            self.V[:0],
            self.y,
            self.weight,
            self.site_weight,
            self.index,
            self.recipe,
        )

    def split(self, rows):
        """Cut one row per node into one array per example, of the shape of its labels."""
        return self.recipe.split(self.graph, rows)


def _rebuild(recipe, X, y, weight, site_weight, index):
    return Batch(*_built(recipe, X), y, weight, site_weight, index, recipe)


def _built(recipe, X, **options):
    graph, V = recipe.build(X, **options)
    return graph, X, V


@dataclass(eq=False)
class BatchLoader:
    """Some examples, read before each evaluation and built into a `Batch`.

    Attributes
    ----------
    examples : Examples
        The examples.
    labels : list of ndarray, LazyClassIndices or None
        Their class indices, -1 where hidden; None if all are hidden.
    topology : Topology
        Gives graphs and edge features.
    class_weights : ndarray of shape (n_classes,) or None
        Weights of the classes.
    weight : ndarray of shape (n_examples,)
        Weights of the examples.
    n_labels : float
        Weight of the labelled sites; 0 in prediction.
    hides_labels : bool
        Whether labels are hidden; not known in prediction.
    """

    examples: Examples
    labels: list | LazyClassIndices | None
    topology: Topology
    class_weights: np.ndarray | None
    weight: np.ndarray
    n_labels: float = 0.0
    hides_labels: bool | None = None

    is_lazy = True
    #: Nothing is kept in memory between evaluations.
    nbytes = 0

    @property
    def n_examples(self):
        """Number of examples."""
        return len(self.weight)

    @property
    def n_sites(self):
        """Number of sites of all examples; 0 if not known before loading."""
        return 0 if self.examples.shapes is None else int(self.examples.sizes.sum())

    @property
    def name(self):
        """Name of the first example in messages."""
        return self.examples.name_of(0)

    def fetch(self):
        """Read the examples and their labels: two lists."""
        examples = [self.examples[i] for i in range(self.n_examples)]
        labels = [self._read_labels(i, example) for i, example in enumerate(examples)]
        if self.n_labels:
            for i, (example, y) in enumerate(zip(examples, labels, strict=True)):
                check_unlabelled(self.topology, example, y, f"y[{self.examples.index[i]}]")
        return examples, labels

    def _read_labels(self, i, example):
        if self.labels is None:
            return np.full(example.X.shape[0], -1)
        if isinstance(self.labels, list):
            return self.labels[i].ravel()
        return self.labels.read(i, example.shape, self.examples.name_of(i)).ravel()

    def build(self, loaded, graph_of=None):
        """Build the batch of what `fetch` read; `graph_of` replaces the topology's `graph`."""
        examples, labels = loaded
        features, shapes, outlines = zip(*examples, strict=True)
        X, recipe = stack_rows(features), FieldRecipe(self.topology, shapes, outlines)
        y = _compressed(stack_rows(labels))
        with user_index(self.examples.index):
            arrays = _built(recipe, X, graph_of=graph_of)
        weights = None if self.class_weights is None else site_weights(y, self.class_weights)
        return Batch(*arrays, y, self.weight, weights, self.examples.index, recipe)


def make_batches(examples, labels, topology, parts, weight, *, class_weights=None, n_labels=None):
    """Make batches of examples.

    Parameters
    ----------
    examples : Examples
        The examples.
    labels : list of ndarray, LazyClassIndices or None
        Class indices of each example, -1 where hidden, of a table one array; None if all are hidden.
    topology : Topology
        Gives graphs and edge features.
    parts : iterable of ndarray
        Positions of the examples of each batch.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    class_weights : ndarray of shape (n_classes,), default=None
        Weights of the classes.
    n_labels : ndarray of shape (n_examples,), default=None
        Number of labelled sites of each example, in training.

    Returns
    -------
    batches : list of Batch or BatchLoader
        Loaders if examples or labels are lazy.
    """
    if examples.is_table:
        y = _compressed(np.full(len(weight), -1) if labels is None else labels[0])
        recipe = TableRecipe(topology.n_edge_features)
        return [_table_batch(examples.items, y, recipe, class_weights, part, weight) for part in parts]
    sizes = examples.sizes
    loaders = [
        BatchLoader(
            examples.select(part),
            _select(labels, part),
            topology,
            class_weights,
            weight[part],
            **({} if n_labels is None else _label_counts(n_labels[part], sizes[part], weight[part])),
        )
        for part in parts
    ]
    if examples.is_lazy or isinstance(labels, LazyClassIndices):
        return loaders
    graph_of = cache(topology.graph)  # all batches are kept, so examples of one outline share their graph
    batches = [loader.build(loader.fetch(), graph_of) for loader in loaders]
    for batch in batches:
        batch.edgeless = batches[0].edgeless
    return batches


def _compressed(y):
    """Copy class indices to the smallest integer type that holds them: there are as many as pixels."""
    return y.astype(np.min_scalar_type(-1 - y.max(initial=0)))


def _label_counts(n_labels, sizes, weight):
    """Return the fields of a loader that follow from the number of labels per example."""
    return {"n_labels": float(weight @ n_labels), "hides_labels": bool((n_labels < sizes).any())}


def _select(labels, part):
    if labels is None:
        return None
    return labels.select(part) if isinstance(labels, LazyClassIndices) else [labels[i] for i in part]


def _table_batch(X, y, recipe, class_weights, part, weight):
    in_order = (np.diff(part) == 1).all()
    rows = slice(part[0], part[-1] + 1) if in_order else part
    weights = None if class_weights is None else site_weights(y[rows], class_weights)
    return Batch(*_built(recipe, X[rows]), y[rows], weight[rows], weights, part, recipe)


def partition(keep, sizes, batch_size=None, rng=None):
    """Cut examples into runs of few sites and of few examples, whichever is less.

    Parameters
    ----------
    keep : ndarray of shape (n_kept,)
        Positions of the examples.
    sizes : ndarray of shape (n_examples,)
        Number of sites of each example.
    batch_size : int, default=None
        Maximum number of examples in a batch.
    rng : numpy.random.RandomState, default=None
        Shuffles the examples if there is a batch size.

    Yields
    ------
    part : ndarray of shape (n_chosen,)
        Positions of the examples of a batch.
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


def check_unlabelled(topology, example, y, name):
    """Raise an error if a hidden variable of an example has a label."""
    hidden = topology.hidden(example.outline)
    if hidden is not None and (y[hidden] >= 0).any():
        node = int(np.flatnonzero(hidden & (y >= 0))[0])
        raise ValueError(
            f"{name}[{node}] must be masked, as X marks the node as a hidden variable, got a label. "
            "Use np.ma.masked_array(y, hidden)."
        )


def stack_rows(arrays):
    """Stack the rows of arrays, sparse if any is; a single array is returned as it is."""
    if len(arrays) == 1:
        return arrays[0]
    if any(sparse.issparse(array) for array in arrays):
        return sparse.vstack(arrays, format="csr")
    return np.concatenate(arrays)

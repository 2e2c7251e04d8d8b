"""How sequences and graphs are read where nothing but their features counts."""

from skcrf.data import (
    Example,
    GraphReader,
    Outline,
    SequenceReader,
    as_dictionaries,
    as_edges,
    as_rows,
    check_named,
    has_axes,
    has_names,
    has_parts,
)


def is_graph(example):
    """Tell whether an example is a graph, and not a sequence.

    Parameters
    ----------
    example : object
        What the user passed.

    Returns
    -------
    is_graph : bool
        Whether it has the parts of a graph, or some that would not make a sequence either.
    """
    return has_parts(example) and (has_axes(example[0]) or not (has_axes(example) or has_names(example)))


class Sites(GraphReader):
    """Reads graphs, and sequences as graphs without edges.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a site must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    n_edge_features : int, default=None
        Number of features that an edge must have, 0 if edges have none; None for any.
    named : bool, default=None
        Whether dictionaries name the features, which are then left for others to make numbers of; None where
        the first example tells. Features that are counted have no names.
    """

    one, many = "sequence or graph", "sequences or graphs"
    # What is said of labels is of no use here.
    advice = "{}, {}; one of either is [example].".format(
        *(reader.advice.partition(", labels")[0] for reader in (SequenceReader, GraphReader))
    )

    def __init__(self, n_features=None, as_in="in fit", n_edge_features=None, named=None):
        super().__init__(n_features, as_in, n_edge_features)
        self.named = named if n_features is None else False

    def __call__(self, example, name):
        """Validate one sequence or graph, as `BaseReader` says."""
        check_named(example, has_names(example) if self.named is None else self.named, name, self.as_in)
        if is_graph(example):
            return super().__call__(example, name)
        if has_names(example):
            rows = as_dictionaries(example, name)
        else:
            rows = as_rows(example, name, self.n_features, self.as_in)
        shape = (len(rows),) if isinstance(rows, list) else rows.shape[:1]
        return Example(rows, shape, Outline(shape[0], as_edges([], shape[0], name), None))

    def _check_edges(self, edges, n_nodes, name):
        """Leave it to what comes after to say which edges go together."""

    def like(self, example, name):
        if not isinstance(example.X, list):
            return super().like(example, name)
        return self if self.named else Sites(as_in=f"in {name}", named=True)

    def is_example(self, item):
        return super().is_example(item) or has_names(item)

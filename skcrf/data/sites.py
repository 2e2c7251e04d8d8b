"""Reader of sequences and graphs for transformers of their features."""

from skcrf.data.examples import has_axes
from skcrf.data.graphs import GraphReader, Outline, as_edges, has_parts
from skcrf.data.readers import Example, as_rows
from skcrf.data.sequences import SequenceReader, as_dictionaries, check_named, has_names


class SiteReader(GraphReader):
    """Reader of graphs, and of sequences as graphs without edges.

    Parameters
    ----------
    n_features : int, default=None
        Expected number of features per site; None for any.
    as_in : str, default="in fit"
        Source of that number, for error messages.
    n_edge_features : int, default=None
        Expected number of features per edge, 0 for none; None for any.
    named : bool, default=None
        Whether sites are dictionaries of features, which are left as they are; None to let the first example
        decide. Ignored if `n_features` is given.
    """

    one, many = "sequence or graph", "sequences or graphs"
    # The advice of both readers without the part about labels.
    advice = "{}, {}; one of either is [example].".format(
        *(reader.advice.partition(", labels")[0] for reader in (SequenceReader, GraphReader))
    )

    def __init__(self, n_features=None, as_in="in fit", n_edge_features=None, named=None):
        super().__init__(n_features, as_in, n_edge_features)
        self.named = named if n_features is None else False

    def __call__(self, example, name):
        """Validate one sequence or graph."""
        check_named(example, has_names(example) if self.named is None else self.named, name, self.as_in)
        if self.is_graph(example):
            return super().__call__(example, name)
        if has_names(example):
            rows = as_dictionaries(example, name)
        else:
            rows = as_rows(example, name, self.n_features, self.as_in)
        shape = (len(rows),) if isinstance(rows, list) else rows.shape[:1]
        return Example(rows, shape, Outline(shape[0], as_edges([], shape[0], name), None))

    @staticmethod
    def is_graph(example):
        """Return whether an example is a graph rather than a sequence.

        Anything with two to four parts that would not be a valid sequence counts as a graph.
        """
        return has_parts(example) and (has_axes(example[0]) or not (has_axes(example) or has_names(example)))

    def _check_edges(self, edges, n_nodes, name):
        """Accept any edges; the estimator after the transformer checks them."""

    def like(self, example, name):
        if not isinstance(example.X, list):
            return super().like(example, name)
        return self if self.named else SiteReader(as_in=f"in {name}", named=True)

    def is_example(self, item):
        return super().is_example(item) or has_names(item)

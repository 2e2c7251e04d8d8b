"""Examples in: readers, labels, weights and batches."""

from skcrf.data.arrays import as_image, as_images, as_numbers, as_rows
from skcrf.data.containers import (
    Source,
    any_lazy,
    by_their_numbers,
    check_weights,
    has_axes,
    is_lazy,
    is_table,
    known_as,
    like_container,
)
from skcrf.data.graphs import DAGs, Graphs, Outline, as_edges, has_parts
from skcrf.data.labels import Labels, LazyLabels, check_shape, encode_labels, read_labels, sorted_classes
from skcrf.data.readers import BaseReader, Example, Images
from skcrf.data.sequences import Sequences, check_named, checked_names, has_names
from skcrf.data.sites import Sites

__all__ = [
    "BaseReader",
    "DAGs",
    "Example",
    "Graphs",
    "Images",
    "Labels",
    "LazyLabels",
    "Outline",
    "Sequences",
    "Sites",
    "Source",
    "any_lazy",
    "as_edges",
    "as_image",
    "as_images",
    "as_numbers",
    "as_rows",
    "by_their_numbers",
    "check_named",
    "check_shape",
    "check_weights",
    "checked_names",
    "encode_labels",
    "has_axes",
    "has_names",
    "has_parts",
    "is_lazy",
    "is_table",
    "known_as",
    "like_container",
    "read_labels",
    "sorted_classes",
]

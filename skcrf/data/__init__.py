"""Examples in: readers, labels, weights, topologies and batches."""

from skcrf.data.arrays import as_image, as_images, as_numbers, as_rows
from skcrf.data.batch import Batch, BatchLoader, check_unlabelled, make_batches, partition, stack_rows
from skcrf.data.class_weights import check_weights, compute_class_weights
from skcrf.data.containers import any_lazy, has_axes, is_lazy, is_table, like_container
from skcrf.data.examples import Examples, read_examples, user_index
from skcrf.data.graphs import DAGReader, GraphReader, Outline, as_edges, has_parts
from skcrf.data.images import ImageReader
from skcrf.data.labels import (
    Labels,
    LazyClassIndices,
    check_shape,
    encode_labels,
    read_labels,
    sorted_classes,
)
from skcrf.data.reader import BaseReader, Example
from skcrf.data.sequences import SequenceReader, as_dictionaries, check_named, has_names
from skcrf.data.source import Source
from skcrf.data.topology import (
    EDGE_FEATURES,
    ChainTopology,
    GraphTopology,
    LatticeTopology,
    MeshTopology,
    Topology,
    edge_differences,
)

__all__ = [
    "EDGE_FEATURES",
    "BaseReader",
    "Batch",
    "BatchLoader",
    "ChainTopology",
    "DAGReader",
    "Example",
    "Examples",
    "GraphReader",
    "GraphTopology",
    "ImageReader",
    "Labels",
    "LatticeTopology",
    "LazyClassIndices",
    "MeshTopology",
    "Outline",
    "SequenceReader",
    "Source",
    "Topology",
    "any_lazy",
    "as_dictionaries",
    "as_edges",
    "as_image",
    "as_images",
    "as_numbers",
    "as_rows",
    "check_named",
    "check_shape",
    "check_unlabelled",
    "check_weights",
    "compute_class_weights",
    "edge_differences",
    "encode_labels",
    "has_axes",
    "has_names",
    "has_parts",
    "is_lazy",
    "is_table",
    "like_container",
    "make_batches",
    "partition",
    "read_examples",
    "read_labels",
    "sorted_classes",
    "stack_rows",
    "user_index",
]

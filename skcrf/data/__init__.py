"""Examples in: readers, labels, weights, topologies and batches."""

from skcrf.data.batch import Batch, BatchLoader, check_unlabelled, make_batches, partition, stack_rows
from skcrf.data.class_weights import compute_class_weights
from skcrf.data.examples import (
    Examples,
    Source,
    any_lazy,
    check_weights,
    has_axes,
    is_lazy,
    is_table,
    like_container,
    read_examples,
    user_index,
)
from skcrf.data.graphs import DAGReader, GraphReader, GraphTopology, Outline, as_edges, has_parts
from skcrf.data.images import EDGE_FEATURES, ImageReader, LatticeTopology, MeshTopology, edge_differences
from skcrf.data.labels import (
    Labels,
    LazyClassIndices,
    check_shape,
    encode_labels,
    read_labels,
    sorted_classes,
)
from skcrf.data.readers import BaseReader, Example, Topology, as_image, as_images, as_numbers, as_rows
from skcrf.data.sequences import ChainTopology, SequenceReader, as_dictionaries, check_named, has_names
from skcrf.data.sites import SiteReader

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
    "SiteReader",
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

"""Examples in: readers, labels, weights, topologies and batches."""

from skcrf.data.batch import Batch, BatchLoader, check_unlabelled, make_batches, partition, stack_rows
from skcrf.data.class_weights import compute_class_weights
from skcrf.data.edge_features import (
    EDGE_FEATURES,
    Contrast,
    Differences,
    as_edge_features,
    choose_channels,
    contrast,
    edge_differences,
)
from skcrf.data.examples import (
    Examples,
    Source,
    any_lazy,
    check_weights,
    is_lazy,
    is_table,
    like_container,
    read_examples,
    user_index,
)
from skcrf.data.graphs import DAGReader, GraphReader, GraphTopology
from skcrf.data.labels import (
    Labels,
    LazyClassIndices,
    check_classes,
    sorted_classes,
)
from skcrf.data.readers import (
    BaseEdgeFeatures,
    BaseReader,
    Bias,
    Example,
    ImageReader,
    LatticeTopology,
    MeshTopology,
    Topology,
    compute_edge_features,
    count_edge_features,
)
from skcrf.data.sequences import ChainTopology, SequenceReader, as_dictionaries, has_names
from skcrf.data.sites import SiteReader

__all__ = [
    "EDGE_FEATURES",
    "BaseEdgeFeatures",
    "BaseReader",
    "Batch",
    "BatchLoader",
    "Bias",
    "ChainTopology",
    "Contrast",
    "DAGReader",
    "Differences",
    "Example",
    "Examples",
    "GraphReader",
    "GraphTopology",
    "ImageReader",
    "Labels",
    "LatticeTopology",
    "LazyClassIndices",
    "MeshTopology",
    "SequenceReader",
    "SiteReader",
    "Source",
    "Topology",
    "any_lazy",
    "as_dictionaries",
    "as_edge_features",
    "check_classes",
    "check_unlabelled",
    "check_weights",
    "choose_channels",
    "compute_class_weights",
    "compute_edge_features",
    "contrast",
    "count_edge_features",
    "edge_differences",
    "has_names",
    "is_lazy",
    "is_table",
    "like_container",
    "make_batches",
    "partition",
    "read_examples",
    "sorted_classes",
    "stack_rows",
    "user_index",
]

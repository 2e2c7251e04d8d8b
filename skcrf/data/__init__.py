"""Examples in: readers, labels, weights, topologies and batches."""

from skcrf.data.batch import Batch, BatchLoader, check_unlabelled, make_batches, partition, stack_rows
from skcrf.data.class_weights import compute_class_weights
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
    EDGE_FEATURES,
    BaseReader,
    Example,
    ImageReader,
    LatticeTopology,
    MeshTopology,
    Topology,
    edge_differences,
)
from skcrf.data.sequences import ChainTopology, SequenceReader, as_dictionaries, has_names
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
    "SequenceReader",
    "SiteReader",
    "Source",
    "Topology",
    "any_lazy",
    "as_dictionaries",
    "check_classes",
    "check_unlabelled",
    "check_weights",
    "compute_class_weights",
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

"""Estimators."""

from skcrf.estimators.chain import ChainCRFClassifier
from skcrf.estimators.dagm import DAGMClassifier, GridDAGMClassifier
from skcrf.estimators.graph import GraphCRFClassifier
from skcrf.estimators.grid import GridCRFClassifier

__all__ = [
    "ChainCRFClassifier",
    "DAGMClassifier",
    "GraphCRFClassifier",
    "GridCRFClassifier",
    "GridDAGMClassifier",
]

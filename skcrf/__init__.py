"""Random fields that are learned by how well approximate marginal inference predicts with them.

features -> potentials -> inference -> loss: each is a room with one door.

Notation
--------
theta
    Potentials: ``theta(x_i)`` of a site, ``theta(x_i, x_j)`` of a pair. `skcrf.graph.Potentials`.
mu
    Marginals (mean parameters): ``mu(x_i)`` of a site, ``mu(x_i, x_j)`` of a pair.
tau
    Temperature: inference with ``tau = 1`` sums over configurations, with ``tau = 0`` it maximises,
    between them it sums powers.
rho
    Edge weights of tree-reweighted inference: the probability of an edge in a random spanning tree.
log_z
    The log-partition function, exact or as the inference approximates it.
"""

from skcrf.estimators import (
    ChainCRFClassifier,
    DAGMClassifier,
    GraphCRFClassifier,
    GridCRFClassifier,
    GridDAGMClassifier,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "ChainCRFClassifier",
    "DAGMClassifier",
    "GraphCRFClassifier",
    "GridCRFClassifier",
    "GridDAGMClassifier",
    "__version__",
]

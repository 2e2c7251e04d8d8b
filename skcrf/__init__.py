"""Random fields learned by how well approximate marginal inference predicts with them.

data -> model -> inference -> loss: each is one package with one interface.

Notation
--------
theta
    Potentials: ``theta(x_i)`` of a site, ``theta(x_i, x_j)`` of a pair. See `skcrf.graph.Potentials`.
mu
    Marginals (mean parameters): ``mu(x_i)`` of a site, ``mu(x_i, x_j)`` of a pair.
tau
    Temperature: with ``tau = 1`` inference sums over configurations, with ``tau = 0`` it maximises, in
    between it sums powers.
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

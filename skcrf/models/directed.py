"""Directed models: the label of every node given those of its parents, normalised on its own."""

from collections import OrderedDict
from threading import Lock

from skcrf.models._conditionals import ancestral_samples, conditionals, conditionals_vjp, families
from skcrf.models.pairwise import IndependentModel, PairwiseModel

# Graphs whose factors are kept, so that images of one size share them.
_SHARED = 4


class DirectedModel(PairwiseModel):
    """Directed acyclic model whose conditionals are normalised scores of a pairwise field.

    Edges lead from parents to children. Inference sees one factor per node, ``log p(x_i | parents)``, so the
    log-partition function is 0.

    Parameters
    ----------
    n_classes, n_features, n_edge_features, n_groups, symmetric, fit_intercept, used : object
        As for `PairwiseModel`.
    conditions_on_labels : bool, default=False
        Whether parents whose label is known are left out of the factors, which makes them small.
    """

    layout = "factor"
    is_linear = False

    def __init__(self, *args, conditions_on_labels=False, **options):
        super().__init__(*args, **options)
        self.conditions_on_labels = conditions_on_labels

    def independent(self):
        options = vars(self).copy()
        del options["conditions_on_labels"]
        return IndependentModel(**options)

    def given_labels(self):
        return DirectedModel(**(vars(self) | {"conditions_on_labels": True}))

    def structure(self, batch):
        return self._factors(batch)[0]

    def potentials(self, params, batch, compact=False):
        factors, given = self._factors(batch)
        return factors, conditionals(batch.graph, factors, self.scores(params, batch), given)

    def pull_back(self, params, batch, theta, d_theta):
        factors, given = self._factors(batch)
        d_scores = conditionals_vjp(batch.graph, factors, theta, d_theta, given)
        return super().pull_back(params, batch, None, d_scores)

    def sample(self, params, batch, uniforms):
        """Draw the labels of a batch, every node after its parents: shape (n_nodes, n_samples)."""
        factors, _ = self._factors(batch)
        return ancestral_samples(batch.graph, factors, self.scores(params, batch), uniforms)

    def _factors(self, batch):
        """Return the factors of a batch, and the labels on which they are conditioned or None."""
        given = batch.labels if self.conditions_on_labels and (batch.y >= 0).any() else None
        key = "families" if given is None else "families given labels"
        if key not in batch.derived:
            batch.derived[key] = (
                _shared_families(batch, self.n_classes)
                if given is None
                else families(batch.graph, self.n_classes, given, batch.image_shapes)
            )
        return batch.derived[key], given


_families_of_graph = OrderedDict()  # (id of the graph, n_states) -> (graph, factors)
_lock = Lock()


def _shared_families(batch, n_states):
    """Return the factors of a batch, the same object for a graph seen lately."""
    graph = batch.graph
    key = id(graph), n_states
    with _lock:
        if key in _families_of_graph:
            return _families_of_graph[key][1]
    factors = families(graph, n_states, image_shapes=batch.image_shapes)
    with _lock:
        _families_of_graph[key] = graph, factors  # the graph stays alive, so that its id stays its own
        while len(_families_of_graph) > _SHARED:
            _families_of_graph.popitem(last=False)
    return factors

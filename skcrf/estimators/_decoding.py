"""Functions of a batch that estimators send to workers: marginals, labels, errors, potentials."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skcrf.data import user_index
from skcrf.graph import clamp, sum_by_example
from skcrf.inference import BaseInference
from skcrf.models import BaseModel


def clamped_potentials(model, w, batch, layouts=()):
    """Return the structure and the potentials of a batch, with known labels clamped, for some layouts."""
    structure, theta = model.potentials(model.unpack(w), batch, "potts" in layouts)
    return structure, clamp(theta, batch.y) if (batch.y >= 0).any() else theta


def split_sites(batch, beliefs):
    """Return the marginals of the sites of each example, in the shape of its labels."""
    return batch.split(beliefs.mu)


def split_edges(batch, beliefs):
    """Return the marginals of the edges of each example, in their order."""
    return np.split(beliefs.edge_mu, batch.graph.edge_ptr[1:-1])


class InferMarginals(NamedTuple):
    """Inference on a batch.

    Attributes
    ----------
    model : BaseModel
        The model.
    w : ndarray of shape (n_weights,)
        Weight vector.
    inference : BaseInference
        The inference.
    arrange : callable
        From batch and beliefs to one array per example: `split_sites`, or a function of edge marginals.
    """

    model: BaseModel
    w: np.ndarray
    inference: BaseInference
    arrange: Callable = split_sites

    def __call__(self, batch):
        """Return one array per example, and whether all inferences converged."""
        with user_index(batch.index):
            structure, theta = clamped_potentials(self.model, self.w, batch, self.inference.layouts)
            beliefs = self.inference.forward(structure, theta, 1.0, edges=self.arrange is not split_sites)
            return self.arrange(batch, beliefs), bool(beliefs.converged.all())


class ComputePotentials(NamedTuple):
    """The structure and the potentials of a batch."""

    model: BaseModel
    w: np.ndarray

    def __call__(self, batch):
        """Return structure and potentials, with known labels clamped."""
        with user_index(batch.index):
            return clamped_potentials(self.model, self.w, batch)


def _decode_mpm(inference, structure, theta, hidden):
    beliefs = inference.forward(structure, theta, 1.0)
    return beliefs.mu, beliefs.converged


def _decode_map(inference, structure, theta, hidden):
    beliefs = inference.forward(structure, theta, 0.0)
    return beliefs.mu, beliefs.converged


def _decode_marginal_map(inference, structure, theta, hidden):
    """Sum out the hidden variables; examples without any have a MAP configuration, in any batch."""
    if hidden is None or not hidden.any():
        return _decode_map(inference, structure, theta, hidden)
    beliefs = inference.forward(structure, theta, 1.0 * hidden)
    hides = sum_by_example(hidden, structure.node_example, structure) > 0
    if hides.all():
        return beliefs.mu, beliefs.converged
    mu, converged = _decode_map(inference, structure, theta, hidden)
    own = hides[structure.node_example]
    return np.where(own[:, None], beliefs.mu, mu), np.where(hides, beliefs.converged, converged)


#: Decodings by name: functions that return rows, largest at the label, and which examples converged.
DECODINGS = {"mpm": _decode_mpm, "map": _decode_map, "marginal_map": _decode_marginal_map}


class DecodeLabels(NamedTuple):
    """Decoding of the labels of a batch.

    Attributes
    ----------
    model : BaseModel
        The model.
    w : ndarray of shape (n_weights,)
        Weight vector.
    inference : BaseInference
        The inference.
    decoding : str
        A name in `DECODINGS`.
    """

    model: BaseModel
    w: np.ndarray
    inference: BaseInference
    decoding: str

    def states(self, batch, structure, theta):
        """Return the state of every node, and whether all inferences converged."""
        mu, converged = DECODINGS[self.decoding](self.inference, structure, theta, batch.hidden)
        return mu.argmax(axis=1), bool(converged.all())

    def __call__(self, batch):
        """Return the states of each example given its known labels, and whether all inferences converged."""
        with user_index(batch.index):
            fields = clamped_potentials(self.model, self.w, batch, self.inference.layouts)
            states, converged = self.states(batch, *fields)
        return batch.split(states), converged


class CountErrors(DecodeLabels):
    """The weighted number of labels of a batch that are decoded wrong."""

    __slots__ = ()

    def __call__(self, batch):
        """Decode without the labels, and count the wrong ones."""
        with user_index(batch.index):
            compact = "potts" in self.inference.layouts
            fields = self.model.potentials(self.model.unpack(self.w), batch, compact)
            states, _ = self.states(batch, *fields)
        wrong = (batch.y >= 0) & (states != batch.y)
        return float(batch.weight @ sum_by_example(wrong, batch.graph.node_example, batch.graph))

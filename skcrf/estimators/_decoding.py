"""From beliefs to labels: by their marginals, or together; and how many are wrong."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.utils.metaestimators import available_if

from skcrf.data import by_their_numbers
from skcrf.graph import clamp, sum_by_example
from skcrf.inference import INFERENCE, BaseInference
from skcrf.models.features import potentials
from skcrf.models.weights import Weights


def by_example(batch, rows):
    """Cut what was found for each site into examples.

    Parameters
    ----------
    batch : Batch
        The examples.
    rows : ndarray of shape (n_nodes, ...)
        What was found.

    Returns
    -------
    parts : list of ndarray of shape (*shape, ...)
        One an example, with the shape of its labels first; of a table one array.
    """
    if batch.recipe is None:
        return [rows]
    parts = np.split(rows, batch.graph.node_ptr[1:-1])
    return [part.reshape(*s, *rows.shape[1:]) for part, s in zip(parts, batch.recipe.shapes, strict=True)]


def marginals(inference, graph, theta, hidden):
    """Infer the marginals of all sites.

    Parameters
    ----------
    inference : BaseInference
        The inference.
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    hidden : ndarray of shape (n_nodes,) or None
        Which sites are hidden variables; None if none is.

    Returns
    -------
    mu : ndarray of shape (n_nodes, n_states)
        What is largest where the label is.
    converged : ndarray of shape (n_examples,)
        Whether inference did.
    """
    beliefs = inference.forward(graph, theta, 1.0)
    return beliefs.mu, beliefs.converged


def best_configuration(inference, graph, theta, hidden):
    """Find the most probable configuration of all sites: parameters and result as for `marginals`."""
    beliefs = inference.forward(graph, theta, 0.0)
    return beliefs.mu, beliefs.converged


def best_marginal_configuration(inference, graph, theta, hidden):
    """Find the most probable configuration with hidden variables summed out: as for `marginals`.

    Examples without any have a most probable configuration, whatever others are in the batch.
    """
    if hidden is None or not hidden.any():
        return best_configuration(inference, graph, theta, hidden)
    beliefs = inference.forward(graph, theta, 1.0 * hidden)
    hides = sum_by_example(hidden, graph.node_example, graph) > 0
    if hides.all():
        return beliefs.mu, beliefs.converged
    mu, converged = best_configuration(inference, graph, theta, hidden)
    own = hides[graph.node_example]
    return np.where(own[:, None], beliefs.mu, mu), np.where(hides, beliefs.converged, converged)


class Decoding(NamedTuple):
    """How labels are decoded.

    Attributes
    ----------
    task : str
        The task that the inference has to be able to do.
    decode : callable
        From inference, graph, potentials and hidden variables to rows that are largest at the label.
    """

    task: str
    decode: Callable


#: How labels are decoded: the label of the largest marginal at every site, the most probable configuration,
#: or that of the sites that are not hidden variables.
DECODINGS = {
    "mpm": Decoding("sum", marginals),
    "map": Decoding("max", best_configuration),
    "marginal_map": Decoding("mixed", best_marginal_configuration),
}


def choose(wanted, suited, inference):
    """Choose how labels are decoded, and refuse what the inference cannot do.

    Parameters
    ----------
    wanted : str
        What the user asks for: a name, or "auto".
    suited : str
        What suits the loss.
    inference : BaseInference
        The inference.

    Returns
    -------
    decoding : str
        A name in `DECODINGS`.
    """
    if wanted == "auto":
        # What the inference can do comes before what suits the loss: a MAP solver has no marginals.
        return next(name for name in (suited, *DECODINGS) if DECODINGS[name].task in inference.tasks)
    task = DECODINGS[wanted].task
    if task not in inference.tasks:
        does = {"sum": "sum", "max": "maximise", "mixed": "maximise over some nodes and sum over others"}
        able = sorted(name for name, method in INFERENCE.items() if task in method.tasks)
        raise ValueError(
            f"decoding={wanted!r} needs an inference that can {does[task]}, which "
            f"{type(inference).__name__} cannot: take one of {able}, or decoding='auto'."
        )
    return wanted


def field_of(weights, batch):
    """Make the field that is inferred: that of a batch, with labels that are known clamped.

    Parameters
    ----------
    weights : Weights
        Parameters.
    batch : Batch
        Some examples.

    Returns
    -------
    graph : Graph or FactorGraph
        Structure.
    theta : Potentials
        Potentials.
    """
    theta = potentials(weights, batch)
    return batch.field, clamp(theta, batch.y) if (batch.y >= 0).any() else theta


class Posed(NamedTuple):
    """Makes the field of a batch; all that travels to where the batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    """

    weights: Weights

    @by_their_numbers
    def __call__(self, batch):
        """Make it: parameters and result as for `field_of`."""
        return field_of(self.weights, batch)


class Decoded(NamedTuple):
    """Decodes the labels of a batch; all that travels to where the batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    inference : BaseInference
        The inference.
    decoding : str
        How.
    """

    weights: Weights
    inference: BaseInference
    decoding: str

    def states(self, batch, theta):
        """Decode.

        Parameters
        ----------
        batch : Batch
            Some examples.
        theta : Potentials
            Their potentials.

        Returns
        -------
        states : ndarray of shape (n_nodes,)
            The state of every site.
        converged : bool
            Whether inference did, on all of them.
        """
        decode = DECODINGS[self.decoding].decode
        mu, converged = decode(self.inference, batch.field, theta, batch.hidden)
        return mu.argmax(axis=1), bool(converged.all())

    @by_their_numbers
    def __call__(self, batch):
        """Decode the labels of each example, given those that are known; tell whether inference converged."""
        states, converged = self.states(batch, field_of(self.weights, batch)[1])
        return by_example(batch, states), converged


class Errors(Decoded):
    """Counts the labels of a batch that are decoded wrong; parameters as for `Decoded`."""

    __slots__ = ()

    @by_their_numbers
    def __call__(self, batch):
        """Count, examples by their weights, without a look at the labels."""
        states, _ = self.states(batch, potentials(self.weights, batch))
        wrong = (batch.y >= 0) & (states != batch.y)
        return float(batch.weight @ sum_by_example(wrong, batch.graph.node_example, batch.graph))


def _gives_marginals(estimator):
    # Once it is fitted, whatever parameters are set later: predictions are by the inference of the fit.
    inference = getattr(estimator, "inference_", estimator.inference)
    method = INFERENCE.get(inference) if isinstance(inference, str) else inference
    if method is not None and "sum" not in method.tasks:
        able = sorted(name for name, one in INFERENCE.items() if "sum" in one.tasks)
        raise AttributeError(
            f"Probabilities need an inference that gives marginals, which {inference!r} does not: "
            f"take one of {able}."
        )
    return True


#: Makes a method of an estimator there only where the inference gives marginals.
needs_marginals = available_if(_gives_marginals)

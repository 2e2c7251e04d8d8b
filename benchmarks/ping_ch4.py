"""Marginal and latent structured SVM and hidden CRF, beside Tables 4.2 and 4.3 of Ping (2016).

``python benchmarks/ping_ch4.py --rst OUT``. The data are drawn, exactly, from random fields
of 4 states over inputs x, labels y and hidden variables h. The equation of the field has edges between y and
h, x and y, and x and h alone, so here labels and hidden variables take turns along a chain of 20, or are the
colours of a checkerboard of 6 x 6, and each has an input of its own: 40 and 72 nodes.

Every node and edge of the field has weights of its own. `GraphCRFClassifier` shares its weights, so features
tell positions apart: of a node, its position and position x input; of an edge, its position. C = 1 in
``||w||^2 / 2 + C sum of losses`` is ``alpha = 1 / (number of training labels)``. For all losses fits
start from the same random weights, of standard deviation 0.5, as hidden variables are symmetric at zero.
Inference is exact on chains, for marginal MAP too, and belief propagation on grids, as in the thesis.
"""

import argparse
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from measuring import circumstances, rst_table
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from skcrf import GraphCRFClassifier
from skcrf.inference import BP, Exact
from skcrf.optimizers import CCCP, Subgradient

N_STATES = 4
#: Height, width and inference of the fields.
FIELDS = {"chain": (20, 1, Exact()), "grid": (6, 6, BP(max_iter=20, tol=1e-3, damping=0.3))}
#: Names in the thesis, and losses.
LOSSES = {"MSSVM": "marginal_hinge", "LSSVM": "latent_hinge", "HCRF": "likelihood"}
STEPS = Subgradient(learning_rate=5.0, best="value", patience=50)
#: For max-margin losses, and for the likelihood.
OPTIMIZERS = {"cccp": (CCCP(inner=STEPS, inner_iter=100), CCCP()), "subgradient": (STEPS, STEPS)}
LIMITS = {"cccp": {"max_iter": 20, "tol": 1e-4}, "subgradient": {"max_iter": 200, "tol": 1e-4}}
HEADER = ["data", "seeds", *LOSSES, "MSSVM − LSSVM", "MSSVM − HCRF", "MSSVM > HCRF > LSSVM"]
#: What the thesis found, in percent: Table 4.2 by graph and optimizer, Table 4.3 by sigma_h.
TABLE_42 = {
    ("chain", "subgradient"): (69.20, 66.87, 68.75),
    ("chain", "cccp"): (69.63, 67.91, 69.03),
    ("grid", "subgradient"): (74.12, 71.96, 73.51),
    ("grid", "cccp"): (74.08, 73.38, 73.62),
}
TABLE_43 = {
    10.0: (79.30, 79.46, 78.68),
    1.0: (70.00, 70.07, 69.88),
    0.5: (67.24, 65.98, 66.66),
    0.1: (69.63, 67.91, 69.03),
    0.01: (73.88, 71.38, 72.58),
    0.001: (72.08, 69.24, 70.88),
}


def lattice_edges(height, width):
    """List the edges of a lattice, whose nodes are numbered along rows: those along rows come first."""
    nodes = np.arange(height * width).reshape(height, width)
    beside = np.column_stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()])
    return np.concatenate([beside, np.column_stack([nodes[:-1].ravel(), nodes[1:].ravel()])])


class Field:
    """A random field with inputs, labels and hidden variables.

    Parameters
    ----------
    height, width : int
        Size of the lattice of labels and hidden variables, which take turns.
    sigma_h : float
        Standard deviation of the weights of hidden variables.
    rng : numpy.random.Generator
        Draws the weights. Those of inputs and labels have a standard deviation of 0.1, those of edges of 2.
    """

    def __init__(self, height, width, sigma_h, rng):
        self.height, self.width = height, width
        self.edges = lattice_edges(height, width)
        self.hidden = np.indices((height, width)).sum(axis=0).ravel() % 2 == 1
        n_nodes = height * width
        sigma = np.where(self.hidden, sigma_h, 0.1)[:, None]
        self.unary = sigma * rng.normal(size=(n_nodes, N_STATES))
        of_inputs = 0.1 * rng.normal(size=(n_nodes, N_STATES, 1))
        self.inputs = of_inputs + 2 * rng.normal(size=(n_nodes, N_STATES, N_STATES))
        self.tables = 2 * rng.normal(size=(len(self.edges), N_STATES, N_STATES))

    def sample(self, n_samples, rng):
        """Draw examples for `GraphCRFClassifier`.

        Parameters
        ----------
        n_samples : int
            How many.
        rng : numpy.random.Generator
            Draws them.

        Returns
        -------
        X : list of tuple
            Features of nodes, edges, features of edges, and which nodes are hidden.
        Y : list of masked array of shape (n_nodes,)
            Labels.
        """
        forward = self._eliminate()
        states = [self._draw(forward, rng) for _ in range(n_samples)]
        X = [(self._features(z, rng), self.edges, np.eye(len(self.edges)), self.hidden) for z in states]
        return X, [np.ma.masked_array(z, self.hidden) for z in states]

    def _eliminate(self):
        """Sum nodes out along rows; keep the log-weights of each node with the `width` nodes before it."""
        width, found = self.width, []
        tables = dict(zip(map(tuple, self.edges.tolist()), self.tables, strict=True))
        # Before the first node come `width` nodes that do not exist: their state is 0 for certain.
        weights = np.full((N_STATES,) * width, -np.inf)
        weights[(0,) * width] = 0.0
        for t, scores in enumerate(self.unary + logsumexp(self.inputs, axis=1)):
            above = tables.get((t - width, t), np.zeros((N_STATES, N_STATES)))
            joint = weights[..., None] + scores + above.reshape(N_STATES, *(1,) * (width - 1), N_STATES)
            found.append(joint + tables.get((t - 1, t), 0.0) if width > 1 else joint)
            weights = logsumexp(found[-1], axis=0)
        return found

    def _draw(self, forward, rng):
        """Draw states, the last ones first."""
        states = np.zeros(len(forward) + self.width, dtype=np.int64)
        last = logsumexp(forward[-1], axis=0)
        chosen = rng.choice(last.size, p=np.exp(last - logsumexp(last)).ravel())
        states[-self.width :] = np.unravel_index(chosen, last.shape)
        for t in range(len(forward) - 1, -1, -1):
            log_p = forward[t][(slice(None), *states[t + 1 : t + 1 + self.width])]
            states[t] = rng.choice(N_STATES, p=np.exp(log_p - logsumexp(log_p)))
        return states[self.width :]

    def _features(self, states, rng):
        log_p = self.inputs[np.arange(len(states)), :, states]
        x = (log_p + rng.gumbel(size=log_p.shape)).argmax(axis=1)
        place = np.eye(len(states))
        seen = (place[:, :, None] * np.eye(N_STATES)[x][:, None]).reshape(len(states), -1)
        return np.hstack([place, seen])


def start_of(X, rng):
    """Make an estimator of random weights, for fits to start from."""
    start = GraphCRFClassifier()
    start.classes_, start.intercept_ = np.arange(N_STATES), np.zeros(N_STATES)
    start.coef_ = 0.5 * rng.normal(size=(N_STATES, X[0][0].shape[1]))
    start.edge_coef_ = 0.5 * rng.normal(size=(len(X[0][1]), N_STATES, N_STATES))
    return start


@cache  # Tables 4.2 and 4.3 share a row
def accuracies(graph, optimizer, sigma_h, seed, *, n_train=20, n_test=100, height=None):
    """Fit with each loss to a training set, and count right labels in a test set.

    Parameters
    ----------
    graph, optimizer : str
        Keys of `FIELDS` and `OPTIMIZERS`.
    sigma_h : float
        As for `Field`.
    seed : int
        Seed of the field, of the data and of the start.
    n_train, n_test : int
        Examples.
    height : int, default=None
        Height of the lattice, if not that of `FIELDS`.

    Returns
    -------
    scores : list of float
        In percent, in the order of `LOSSES`.
    """
    rng = np.random.default_rng(seed)
    usual, width, inference = FIELDS[graph]
    field = Field(height or usual, width, sigma_h, rng)
    (X, Y), test = (field.sample(n, rng) for n in (n_train, n_test))
    start, alpha = start_of(X, rng), 1 / (n_train * np.sum(~field.hidden))
    scores = []
    for loss in LOSSES.values():
        crf = GraphCRFClassifier(
            inference=inference,
            loss=loss,
            optimizer=OPTIMIZERS[optimizer][loss == "likelihood"],
            init=start,
            alpha=alpha,
            fit_intercept=False,
            directed=True,
            classes=range(N_STATES),
            **LIMITS[optimizer],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of fits that are stopped, as in the thesis
            scores.append(100 * crf.fit(X, Y).score(*test))
    return scores


def compare(what, paper, trials):
    """Compare with a row of the thesis.

    Parameters
    ----------
    what : str
        What was measured.
    paper : sequence of float or None
        What the thesis found, in the order of `LOSSES`.
    trials : list of list of float
        What `accuracies` found, one list a seed.

    Returns
    -------
    cells : list of str
        The row of a table: for each loss the mean, and in brackets that of the thesis; by how much the first
        is better than each other, with the standard error; whether the order of the thesis holds.
    """
    found = np.array(trials)
    mean = found.mean(axis=0)
    beside = [""] * len(mean) if paper is None else [f" ({number:.2f})" for number in paper]
    gains = found[:, :1] - found[:, 1:]
    errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else [np.nan] * gains.shape[1]
    marginal, latent, likelihood = mean
    return [
        what,
        str(len(found)),
        *(f"{number:.2f}{other}" for number, other in zip(mean, beside, strict=True)),
        *(f"{gain:+.2f} ± {error:.2f}" for gain, error in zip(gains.mean(axis=0), errors, strict=True)),
        "yes" if marginal > likelihood > latent else "no",
    ]


def measure(options):
    """Make the rows of all tables, and print each when it is there.

    Parameters
    ----------
    options : argparse.Namespace
        Of the command line.

    Returns
    -------
    rows : list of list of str
        What `compare` returns.
    """
    small = {"n_test": 500, "height": 10}
    jobs = [
        (f"{graph}, {optimizer}", paper, (graph, optimizer, 0.1), {})
        for (graph, optimizer), paper in TABLE_42.items()
        if optimizer in options.optimizers and graph in options.graphs
    ]
    jobs += [
        (f"chain, cccp, σ_h = {sigma_h:g}", paper, ("chain", "cccp", sigma_h), {})
        for sigma_h, paper in TABLE_43.items()
        if sigma_h in options.sigmas
    ]
    jobs += [
        (f"chain of 20 nodes, {n} examples", None, ("chain", "cccp", 0.1), {**small, "n_train": n})
        for n in options.sizes
    ]
    rows = []
    for what, paper, which, others in jobs:
        start = time.perf_counter()
        seeds = options.grid_seeds if which[0] == "grid" else options.seeds
        rows.append(compare(what, paper, [accuracies(*which, seed, **others) for seed in range(seeds)]))
        print("  ".join(rows[-1]), f" [{time.perf_counter() - start:.0f} s]", flush=True)
    return rows


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.replace("%", "%%"))
    parser.add_argument("--seeds", type=int, default=3, help="fields on chains; the thesis has 20")
    parser.add_argument("--grid-seeds", type=int, default=1, help="fields on grids; the thesis has 20")
    parser.add_argument("--graphs", nargs="*", default=list(FIELDS), choices=list(FIELDS), help="Table 4.2")
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--sigmas", type=float, nargs="*", default=list(TABLE_43), help="of Table 4.3")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[], help="of training sets, Figure 4.3: 4 8 ... 1024"
    )
    parser.add_argument("--rst", type=Path, help="where to write the table of the documentation")
    options = parser.parse_args()
    print("  ".join(HEADER))
    rows = measure(options)
    facts = circumstances()
    said = f"Measured at commit {facts['commit']} on {facts['date']}; {facts['versions']}.\n"
    if options.rst:
        options.rst.write_text(f"{rst_table(HEADER, rows)}\n{said}")


if __name__ == "__main__":
    main()

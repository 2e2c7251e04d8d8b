"""Marginal and latent structured SVM and hidden CRF, beside Tables 4.2 and 4.3 and Figure 4.3 of Ping (2016).

``python benchmarks/ping_ch4.py --rst OUT``. The data are drawn, exactly, from random fields
of 4 states over inputs x, labels y and hidden variables h. The equation of the field has edges between y and
h, x and y, and x and h alone, so here labels and hidden variables take turns along a chain of 20, or are the
colours of a checkerboard of 6 x 6, and each has an input of its own: 40 and 72 nodes.

Every node and edge of the field has weights of its own. `GraphCRFClassifier` shares its weights, so features
tell positions apart: of a node, its position and position x input; of an edge, its position. C = 1 in
``||w||^2 / 2 + C sum of losses`` is ``alpha = 1 / (number of training labels)``.

Its algorithms start from zero, where hidden variables are symmetric and stay so; here all methods start from
the same weights of standard deviation 1 (``--start``). Of the steps it tells sizes and numbers, for 20
examples: 50 of 0.02 for the MSSVM and 250 of 0.001 for the LSSVM. The likelihood takes those of the MSSVM,
and CCCP the same in each of its 5 iterations. Standard deviations of 2 for the weights of edges make all
methods right ten percent more often than the thesis says; with variances of 2 (``--sigma 1.41``) they are as
good as there.

Inference is exact on chains, for marginal MAP too; on grids it is belief propagation, as in the thesis, and
exact as well. Inputs tell much of hidden variables, whatever their own weights: further rows have hidden
variables with weaker inputs. Every row tells how often hidden variables are in their most probable state,
given all else, and how often the labels of the largest marginals are right in the field that the data are
from: its truth.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from measuring import circumstances, rst_table
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from skcrf import GraphCRFClassifier
from skcrf.graph import Potentials, clamp, from_edges
from skcrf.inference import BP, Exact
from skcrf.optimizers import CCCP, Subgradient

N_STATES = 4
#: Height, width and inference of the fields.
FIELDS = {
    "chain": (20, 1, Exact()),
    "grid": (6, 6, BP(max_iter=50, tol=1e-3, damping=0.3)),
    "grid, exact": (6, 6, Exact()),
}
#: Names in the thesis, losses, and their steps: size, for the mean of the losses of examples, and number.
METHODS = {
    "MSSVM": ("marginal_hinge", 0.4, 50),
    "LSSVM": ("latent_hinge", 0.02, 250),
    "HCRF": ("likelihood", 0.4, 50),
}
OPTIMIZERS = ["subgradient", "cccp"]
N_TANGENTS = 5  # iterations of CCCP
SIZES = [2**k for k in range(2, 11)]
HEADER = [
    "data",
    "seeds",
    "hidden",
    "truth",
    *METHODS,
    "MSSVM − HCRF",
    "HCRF − LSSVM",
    "MSSVM > HCRF > LSSVM",
]
#: What the thesis found, in percent: Table 4.2 by graph and optimizer, Table 4.3 by sigma_h.
TABLE_42 = {
    ("chain", "subgradient"): (69.20, 66.87, 68.75),
    ("chain", "cccp"): (69.63, 67.91, 69.03),
    ("grid", "subgradient"): (74.12, 71.96, 73.51),
    ("grid", "cccp"): (74.08, 73.38, 73.62),
    ("grid, exact", "subgradient"): (74.12, 71.96, 73.51),
}
TABLE_43 = {
    10.0: (79.30, 79.46, 78.68),
    1.0: (70.00, 70.07, 69.88),
    0.5: (67.24, 65.98, 66.66),
    0.1: (69.63, 67.91, 69.03),
    0.01: (73.88, 71.38, 72.58),
    0.001: (72.08, 69.24, 70.88),
}
SIGMAS_HX = [1.0, 0.5, 0.0]


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
    sigma_h, sigma_hx : float
        Standard deviations of the weights of hidden variables, and of their edges to inputs.
    sigma : float
        That of the other edges. That of inputs and labels is 0.1.
    rng : numpy.random.Generator
        Draws the weights.
    """

    def __init__(self, height, width, sigma_h, sigma_hx, sigma, rng):
        self.height, self.width = height, width
        self.edges = lattice_edges(height, width)
        self.hidden = np.indices((height, width)).sum(axis=0).ravel() % 2 == 1
        n_nodes = height * width
        of_nodes = np.where(self.hidden, sigma_h, 0.1)[:, None]
        to_inputs = np.where(self.hidden, sigma_hx, sigma)[:, None, None]
        self.unary = of_nodes * rng.normal(size=(n_nodes, N_STATES))
        of_inputs = 0.1 * rng.normal(size=(n_nodes, N_STATES, 1))
        self.inputs = of_inputs + to_inputs * rng.normal(size=(n_nodes, N_STATES, N_STATES))
        self.tables = sigma * rng.normal(size=(len(self.edges), N_STATES, N_STATES))

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


def truth(field, X, Y):
    """Tell how certain hidden variables are, and how well the field itself predicts labels; in percent.

    Parameters
    ----------
    field : Field
        The field.
    X, Y : list
        Examples from it.

    Returns
    -------
    certainty : float
        Mean probability of the best state of a hidden variable, given inputs and labels.
    accuracy : float
        Share of labels that have the largest marginals, given inputs.
    """
    graph, exact, found = from_edges(len(field.hidden), field.edges), Exact(), []
    coef = np.concatenate([field.unary, field.inputs.reshape(-1, N_STATES)])
    for x, y in zip(X, Y, strict=True):
        theta = Potentials(x[0] @ coef, field.tables)
        best = exact.forward(graph, clamp(theta, y.filled(-1))).mu[field.hidden].max(axis=1)
        found.append([best.mean(), np.mean(exact.forward(graph, theta).mu.argmax(axis=1) == y)])
    return 100 * np.mean(found, axis=0)


def start_of(X, deviation, rng):
    """Make an estimator of random weights, for fits to start from."""
    start = GraphCRFClassifier()
    start.classes_, start.intercept_ = np.arange(N_STATES), np.zeros(N_STATES)
    start.coef_ = deviation * rng.normal(size=(N_STATES, X[0][0].shape[1]))
    start.edge_coef_ = deviation * rng.normal(size=(len(X[0][1]), N_STATES, N_STATES))
    return start


def fitted(X, Y, method, optimizer, **others):
    """Fit by a method.

    Parameters
    ----------
    X, Y : list
        The training set.
    method : str
        A key of `METHODS`.
    optimizer : {"subgradient", "cccp"}
        How: steps on the loss, or on its convex part and the tangent of the other.
    **others : dict
        Parameters of the estimator.

    Returns
    -------
    crf : GraphCRFClassifier
        The fitted estimator.
    """
    loss, size, n_steps = METHODS[method]
    n_labels = sum(np.ma.count(y) for y in Y)
    # Objectives are means over labels.
    steps = Subgradient(learning_rate=size * n_labels / len(Y), decay=0.0, best="last", patience=n_steps)
    tangents = CCCP(inner=steps, inner_iter=n_steps, best="last")
    chosen, max_iter = {"subgradient": (steps, n_steps), "cccp": (tangents, N_TANGENTS)}[optimizer]
    crf = GraphCRFClassifier(
        loss=loss,
        optimizer=chosen,
        max_iter=max_iter,
        tol=1e-9,
        alpha=1 / n_labels,
        fit_intercept=False,
        symmetric=False,
        classes=range(N_STATES),
        **others,
    )
    return crf.fit(X, Y)


class Setting(NamedTuple):
    """What a row of a table is about: a key of `FIELDS`, an optimizer, parameters of `Field`, and sizes."""

    graph: str
    optimizer: str
    sigma_h: float = 0.1
    sigma_hx: float | None = None
    n_train: int = 20
    n_test: int = 100
    height: int | None = None


def trial(seed, setting, sigma, start):
    """Fit by each method to a training set, and count right labels in a test set.

    Parameters
    ----------
    seed : int
        Seed of the field, of the data and of the start.
    setting : Setting
        What is measured.
    sigma : float
        As for `Field`.
    start : float
        Standard deviation of the weights that fits start from.

    Returns
    -------
    found : list of float
        In percent: what `truth` returns, and the accuracy of each of `METHODS`.
    """
    rng = np.random.default_rng(seed)
    height, width, inference = FIELDS[setting.graph]
    sigma_hx = sigma if setting.sigma_hx is None else setting.sigma_hx
    field = Field(setting.height or height, width, setting.sigma_h, sigma_hx, sigma, rng)
    (X, Y), test = (field.sample(n, rng) for n in (setting.n_train, setting.n_test))
    others = {"inference": inference, "init": start_of(X, start, rng)}
    fits = (fitted(X, Y, method, setting.optimizer, **others) for method in METHODS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fits are stopped, as in the thesis
        return [*truth(field, *test), *(100 * crf.score(*test) for crf in fits)]


def compare(what, paper, trials):
    """Compare with a row of the thesis.

    Parameters
    ----------
    what : str
        What was measured.
    paper : sequence of float or None
        What the thesis found, in the order of `METHODS`.
    trials : list of list of float
        What `trial` found, one list a seed.

    Returns
    -------
    cells : list of str
        The row of a table: what is true; for each method the mean, and in brackets that of the thesis; by how
        much one is better than another, with the standard error; whether the order of the thesis holds.
    """
    mean = np.mean(trials, axis=0)
    beside = [""] * len(METHODS) if paper is None else [f" ({number:.2f})" for number in paper]
    marginal, latent, likelihood = np.transpose(trials)[2:]
    return [
        what,
        str(len(trials)),
        *(f"{number:.1f}" for number in mean[:2]),
        *(f"{number:.2f}{other}" for number, other in zip(mean[2:], beside, strict=True)),
        _gain(marginal - likelihood),
        _gain(likelihood - latent),
        "yes" if marginal.mean() > likelihood.mean() > latent.mean() else "no",
    ]


def _gain(differences):
    return f"{differences.mean():+.2f} ± {differences.std() / max(len(differences) - 1, 1) ** 0.5:.2f}"


def rows_of(options):
    """List what is to be measured: a name, what the thesis found, and a `Setting`."""
    for (graph, optimizer), paper in TABLE_42.items():
        if graph in options.graphs and optimizer in options.optimizers:
            yield f"{graph}, {optimizer}", paper, Setting(graph, optimizer)
    for sigma_h, paper in TABLE_43.items():
        if sigma_h in options.sigmas:
            yield f"chain, cccp, σ_h = {sigma_h:g}", paper, Setting("chain", "cccp", sigma_h=sigma_h)
    for sigma_hx in options.inputs:
        for optimizer in options.optimizers:
            setting = Setting("chain", optimizer, sigma_hx=sigma_hx)
            yield f"chain, {optimizer}, σ_hx = {sigma_hx:g}", None, setting
    for n in options.sizes:
        setting = Setting("chain", "cccp", n_train=n, n_test=500, height=10)
        yield f"chain of 20 nodes, {n} examples", None, setting


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
    rows = []
    with Parallel(n_jobs=options.jobs) as parallel:
        for what, paper, setting in rows_of(options):
            start, seeds = time.perf_counter(), range(5 if setting.height else options.seeds)
            found = parallel(delayed(trial)(seed, setting, options.sigma, options.start) for seed in seeds)
            rows.append(compare(what, paper, found))
            print("  ".join(rows[-1]), f" [{time.perf_counter() - start:.0f} s]", flush=True)
    return rows


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.replace("%", "%%"))
    parser.add_argument("--seeds", type=int, default=20, help="fields a row; for Figure 4.3, 5")
    parser.add_argument("--graphs", nargs="*", default=list(FIELDS), choices=list(FIELDS), help="Table 4.2")
    parser.add_argument("--optimizers", nargs="+", default=OPTIMIZERS, choices=OPTIMIZERS)
    parser.add_argument("--sigmas", type=float, nargs="*", default=list(TABLE_43), help="of Table 4.3")
    parser.add_argument("--inputs", type=float, nargs="*", default=SIGMAS_HX, help="of hidden variables")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="of training sets, Figure 4.3")
    parser.add_argument("--start", type=float, default=1.0, help="standard deviation of the first weights")
    parser.add_argument("--sigma", type=float, default=2.0, help="standard deviation of the weights of edges")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
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

"""Compare MSSVM, LSSVM and hidden CRF with Tables 4.2 and 4.3 and Figure 4.3 of Ping (2016).

These are the marginal and the latent structured SVM and maximum likelihood with hidden variables. The data
are exact samples of random fields with 4 states over inputs x, labels y and hidden variables h. The field of
the thesis has edges between y and h, x and y, and x and h only. Here labels and hidden variables alternate
along a chain of 20 nodes, or on a checkerboard of 6 x 6, and each has its own input, which makes 40 and 72
nodes.

Model: every node and edge of the field has its own weights. `GraphCRFClassifier` shares weights, so features
encode the position: of a node, its position and the product of position and input; of an edge, its position.
C = 1 in ``||w||^2 / 2 + C sum of losses`` is ``alpha = 1 / (number of training labels)``.

Training: the algorithms of the thesis start from zero, where hidden variables are symmetric and stay so; here
all methods start from the same random weights of standard deviation 1 (``--start``). The thesis gives step
sizes and numbers of steps for 20 examples: 50 steps of 0.02 for the MSSVM and 250 of 0.001 for the LSSVM. The
likelihood takes the steps of the MSSVM, and CCCP takes the same steps in each of its 5 iterations. With a
standard deviation of 2 for the weights of edges, all methods are 10 % more accurate than in the thesis; with
a variance of 2 (``--sigma 1.41``) they are about as accurate.

Inference is exact on chains, also for marginal MAP. On grids it is belief propagation, as in the thesis, and
exact inference as well. Inputs determine much of the hidden variables, whatever their own weights; further
rows have weaker inputs of hidden variables. The column "hidden" is the mean probability of the best state of
a hidden variable given everything else, "truth" the accuracy of the largest marginals of the true field.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from measuring import environment, rst_table
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
#: Loss, step size for the mean loss of examples, and number of steps, by the name in the thesis.
METHODS = {
    "MSSVM": ("marginal_hinge", 0.4, 50),
    "LSSVM": ("latent_hinge", 0.02, 250),
    "HCRF": ("likelihood", 0.4, 50),
}
OPTIMIZERS = ["subgradient", "cccp"]
CCCP_ITERATIONS = 5
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
#: Accuracies in the thesis in percent: Table 4.2 by graph and optimizer, Table 4.3 by sigma_h.
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
    """List the edges of a lattice with nodes numbered row by row, horizontal edges first."""
    nodes = np.arange(height * width).reshape(height, width)
    beside = np.column_stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()])
    return np.concatenate([beside, np.column_stack([nodes[:-1].ravel(), nodes[1:].ravel()])])


class Field:
    """A random field with inputs, labels and hidden variables.

    Parameters
    ----------
    height, width : int
        Size of the lattice of labels and hidden variables, which alternate.
    sigma_h, sigma_hx : float
        Standard deviations of the weights of hidden variables and of their edges to inputs.
    sigma : float
        Standard deviation of the weights of other edges; that of inputs and labels is 0.1.
    rng : numpy.random.Generator
        Random numbers of the weights.
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
        """Draw graphs with hidden variables, and masked labels, for `GraphCRFClassifier`."""
        forward = self._eliminate()
        states = [self._draw(forward, rng) for _ in range(n_samples)]
        X = [(self._features(z, rng), self.edges, np.eye(len(self.edges)), self.hidden) for z in states]
        return X, [np.ma.masked_array(z, self.hidden) for z in states]

    def _eliminate(self):
        """Eliminate nodes row by row; return log-weights of each node and the `width` nodes before it."""
        width, joints = self.width, []
        tables = dict(zip(map(tuple, self.edges.tolist()), self.tables, strict=True))
        # The `width` nodes before the first one do not exist; their state is fixed to 0.
        weights = np.full((N_STATES,) * width, -np.inf)
        weights[(0,) * width] = 0.0
        for t, scores in enumerate(self.unary + logsumexp(self.inputs, axis=1)):
            above = tables.get((t - width, t), np.zeros((N_STATES, N_STATES)))
            joint = weights[..., None] + scores + above.reshape(N_STATES, *(1,) * (width - 1), N_STATES)
            joints.append(joint + tables.get((t - 1, t), 0.0) if width > 1 else joint)
            weights = logsumexp(joints[-1], axis=0)
        return joints

    def _draw(self, forward, rng):
        """Draw states in reverse order."""
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
        position = np.eye(len(states))
        products = (position[:, :, None] * np.eye(N_STATES)[x][:, None]).reshape(len(states), -1)
        return np.hstack([position, products])


def truth(field, X, Y):
    """Return the columns "hidden" and "truth" for examples of a field, in percent."""
    graph, exact, values = from_edges(len(field.hidden), field.edges), Exact(), []
    coef = np.concatenate([field.unary, field.inputs.reshape(-1, N_STATES)])
    for x, y in zip(X, Y, strict=True):
        theta = Potentials(x[0] @ coef, field.tables)
        best = exact.forward(graph, clamp(theta, y.filled(-1))).mu[field.hidden].max(axis=1)
        values.append([best.mean(), np.mean(exact.forward(graph, theta).mu.argmax(axis=1) == y)])
    return 100 * np.mean(values, axis=0)


def random_start(X, deviation, rng):
    """Make an estimator with random weights as the start of fits."""
    start = GraphCRFClassifier()
    start.classes_, start.intercept_ = np.arange(N_STATES), np.zeros(N_STATES)
    start.coef_ = deviation * rng.normal(size=(N_STATES, X[0][0].shape[1]))
    start.edge_coef_ = deviation * rng.normal(size=(len(X[0][1]), N_STATES, N_STATES))
    return start


def fit(X, Y, method, optimizer, **params):
    """Fit an estimator by one of METHODS and one of OPTIMIZERS."""
    loss, size, n_steps = METHODS[method]
    n_labels = sum(np.ma.count(y) for y in Y)
    # The objective is a mean over labels.
    steps = Subgradient(learning_rate=size * n_labels / len(Y), decay=0.0, best="last", patience=n_steps)
    cccp = CCCP(inner=steps, inner_iter=n_steps, best="last")
    optimizer, max_iter = {"subgradient": (steps, n_steps), "cccp": (cccp, CCCP_ITERATIONS)}[optimizer]
    crf = GraphCRFClassifier(
        loss=loss,
        optimizer=optimizer,
        max_iter=max_iter,
        tol=1e-9,
        alpha=1 / n_labels,
        fit_intercept=False,
        symmetric=False,
        classes=range(N_STATES),
        **params,
    )
    return crf.fit(X, Y)


class Setting(NamedTuple):
    """Setting of one row of a table."""

    graph: str  # a key of FIELDS
    optimizer: str
    sigma_h: float = 0.1
    sigma_hx: float | None = None
    n_train: int = 20
    n_test: int = 100
    height: int | None = None


def fit_and_test(seed, setting, sigma, start):
    """Fit by each method; return the results of `truth` and the accuracy of each of METHODS in percent."""
    rng = np.random.default_rng(seed)
    height, width, inference = FIELDS[setting.graph]
    sigma_hx = sigma if setting.sigma_hx is None else setting.sigma_hx
    field = Field(setting.height or height, width, setting.sigma_h, sigma_hx, sigma, rng)
    (X, Y), test = (field.sample(n, rng) for n in (setting.n_train, setting.n_test))
    params = {"inference": inference, "init": random_start(X, start, rng)}
    fits = (fit(X, Y, method, setting.optimizer, **params) for method in METHODS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fits are stopped early, as in the thesis
        return [*truth(field, *test), *(100 * crf.score(*test) for crf in fits)]


def format_row(name, thesis, results):
    """Format a row of the table, with accuracies of the thesis in brackets and standard errors over seeds."""
    mean = np.mean(results, axis=0)
    brackets = [""] * len(METHODS) if thesis is None else [f" ({number:.2f})" for number in thesis]
    marginal, latent, likelihood = np.transpose(results)[2:]
    return [
        name,
        str(len(results)),
        *(f"{number:.1f}" for number in mean[:2]),
        *(f"{number:.2f}{text}" for number, text in zip(mean[2:], brackets, strict=True)),
        _difference(marginal - likelihood),
        _difference(likelihood - latent),
        "yes" if marginal.mean() > likelihood.mean() > latent.mean() else "no",
    ]


def _difference(differences):
    return f"{differences.mean():+.2f} ± {differences.std() / max(len(differences) - 1, 1) ** 0.5:.2f}"


def make_settings(args):
    """Yield the name, the accuracies of the thesis and the Setting of each row."""
    for (graph, optimizer), thesis in TABLE_42.items():
        if graph in args.graphs and optimizer in args.optimizers:
            yield f"{graph}, {optimizer}", thesis, Setting(graph, optimizer)
    for sigma_h, thesis in TABLE_43.items():
        if sigma_h in args.sigmas:
            yield f"chain, cccp, σ_h = {sigma_h:g}", thesis, Setting("chain", "cccp", sigma_h=sigma_h)
    for sigma_hx in args.inputs:
        for optimizer in args.optimizers:
            setting = Setting("chain", optimizer, sigma_hx=sigma_hx)
            yield f"chain, {optimizer}, σ_hx = {sigma_hx:g}", None, setting
    for n in args.sizes:
        setting = Setting("chain", "cccp", n_train=n, n_test=500, height=10)
        yield f"chain of 20 nodes, {n} examples", None, setting


def measure(args):
    """Measure, print and return all rows."""
    rows = []
    with Parallel(n_jobs=args.jobs) as parallel:
        for name, thesis, setting in make_settings(args):
            start, seeds = time.perf_counter(), range(5 if setting.height else args.seeds)
            jobs = (delayed(fit_and_test)(seed, setting, args.sigma, args.start) for seed in seeds)
            rows.append(format_row(name, thesis, parallel(jobs)))
            print("  ".join(rows[-1]), f" [{time.perf_counter() - start:.0f} s]", flush=True)
    return rows


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.replace("%", "%%"))
    for name, kind, nargs, default, text in (
        ("--seeds", int, None, 20, "fields per row, except 5 for Figure 4.3"),
        ("--sigmas", float, "*", list(TABLE_43), "sigma_h of Table 4.3"),
        ("--inputs", float, "*", SIGMAS_HX, "sigma_hx of the rows with weaker inputs"),
        ("--sizes", int, "*", SIZES, "training sizes of Figure 4.3"),
        ("--start", float, None, 1.0, "standard deviation of the initial weights"),
        ("--sigma", float, None, 2.0, "standard deviation of the weights of edges"),
        ("--jobs", int, None, 2, "number of processes"),
        ("--rst", Path, None, None, "write the table of the documentation"),
    ):
        parser.add_argument(name, type=kind, nargs=nargs, default=default, help=text)
    for name, choices in (("--graphs", list(FIELDS)), ("--optimizers", OPTIMIZERS)):
        parser.add_argument(name, nargs="*", default=choices, choices=choices, help="rows to measure")
    args = parser.parse_args()
    print("  ".join(HEADER))
    rows = measure(args)
    facts = environment()
    source = f"Measured at commit {facts['commit']} on {facts['date']}; {facts['versions']}.\n"
    if args.rst:
        args.rst.write_text(f"{rst_table(HEADER, rows)}\n{source}")


if __name__ == "__main__":
    main()

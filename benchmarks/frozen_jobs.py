"""The problems and the fits of `frozen.py`."""

import pickle
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skcrf import ChainCRFClassifier as Chain
from skcrf import DAGMClassifier as DAG
from skcrf import GraphCRFClassifier as General
from skcrf import GridCRFClassifier as Grid
from skcrf import GridDAGMClassifier as Mesh
from skcrf import graph
from skcrf.datasets import LazyImages
from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.inference import BP, ICM, TRW, TRWS, Gibbs, GraphCut, MeanField, MixedProduct
from skcrf.losses import EM, Hinge, PatchPseudolikelihood, Piecewise, Unified
from skcrf.metrics import SCORERS
from skcrf.optimizers import CCCP, LBFGS, Adam, Bundle, Doubling, FrankWolfe, Subgradient
from skcrf.preprocessing import PixelWise


def labelled(rng, position, n_labels):
    """Draw features and labels; labels are smooth in the position of a site but for noise."""
    y = (position // 2).sum(axis=-1) % n_labels
    y = np.where(rng.random_sample(y.shape) < 0.15, rng.randint(n_labels, size=y.shape), y)
    return np.stack([y + rng.normal(size=y.shape), rng.normal(size=y.shape)], axis=-1), y


def images(n_labels=3, n=4, height=4, width=5, ragged=True, hide=None, lazy=False):
    """Make images, with labels hidden by a mask or by a value."""
    rng = np.random.RandomState(0)
    sizes = [(height + ragged * (i % 3), width) for i in range(n)]
    data = [labelled(rng, np.stack(np.indices(s), axis=-1) + i, n_labels) for i, s in enumerate(sizes)]
    X, Y = [x for x, _ in data], [y for _, y in data]
    hidden = [rng.random_sample(y.shape) < 0.3 for y in Y]
    if hide == "mask":
        Y = [np.ma.masked_array(y, h) for y, h in zip(Y, hidden, strict=True)]
    elif hide is not None:
        Y = [np.where(h, hide, np.array(["a", "b", "c"])[y]) for y, h in zip(Y, hidden, strict=True)]
    if lazy:
        return LazyImages(range(n), X.__getitem__), LazyImages(range(n), Y.__getitem__)
    return (X, Y) if ragged else (np.array(X), np.array(Y))


def networks(n_labels=3, n=5, loops=2, edge_features=True, sparse=False, hide=False, latent=False):
    """Make graphs of two trees and some loops, whose edges lead from low nodes to high ones."""
    rng, X, Y = np.random.RandomState(1), [], []
    for i in range(n):
        nodes, y = labelled(rng, np.arange(i, 8 + 2 * i)[:, None], n_labels)
        edges = {(rng.randint(max(0, j - 3), j), j) for j in range(1, len(y)) if j != 4}
        edges = np.array(sorted(edges | {(k, len(y) - 1) for k in range(loops)}))
        x = [csr_matrix(nodes * (nodes > 0)) if sparse else nodes, edges]
        x += [np.column_stack([np.ones(len(edges)), rng.normal(size=len(edges))])] * edge_features
        hidden = rng.random_sample(len(y)) < 0.3
        X.append((*x, hidden) if latent else tuple(x))
        Y.append(np.ma.masked_array(y, hidden) if latent or hide else y)
    return X, Y


def sequences(n_labels=3, kind="dense", hide=False):
    """Make sequences of dense rows, of CSR rows or of dictionaries."""
    X, Y = networks(n_labels, sparse=kind == "csr", hide=hide)
    X = [x[0] for x in X]
    if kind == "dict":
        X = [[{"a": float(a), "bias": True, f"sign={b > 0}": 1} for a, b in x] for x in X]
    return X, Y


def table(n_labels=3):
    """Make a 2-D X and a 1-D y."""
    return labelled(np.random.RandomState(2), np.arange(30)[:, None], n_labels)


def fields():
    """Yield the name, the graph and the potentials of a field of every kind."""
    rng, lattice, pack = np.random.RandomState(4), graph.lattice, graph.pack
    for name, g, k in (
        ("lattice, 2 labels", lattice(4, 4), 2),
        ("lattice, 8 neighbours, 3 labels", lattice(3, 3, connectivity=8), 3),
        ("lattice, own tables, 5 labels", lattice(4, 3, tied=False), 5),
        ("lattices, 8 labels", pack([lattice(13, 21), lattice(2, 3), lattice(1, 1)]), 8),
        ("chains, 3 labels", pack([graph.chain(5), graph.chain(1), graph.chain(9)]), 3),
        ("forest, forbidden pairs, 3 labels", graph.from_edges(7, [(1, 4), (3, 0), (3, 5), (6, 3)]), 3),
        ("loops, 3 labels", graph.from_edges(6, [(0, 1), (2, 1), (2, 3), (3, 0), (3, 5), (4, 5), (0, 2)]), 3),
        ("no edges, 2 labels", graph.isolated(3), 2),
    ):
        unary, tables = rng.normal(size=(g.n_nodes, k)), rng.normal(size=(g.n_tables, k, k))
        if "forbidden" in name:
            tables.ravel()[::7] = -np.inf
        yield name, g, graph.Potentials(unary, tables)
    cards, loops = [2, 3, 2, 2, 3, 2], [(0, 1, 2), (2, 3), (4, 0, 3), (1,)]
    trees = [(0, 1, 2), (1, 3), (), (4, 3), (5,), (3,)]
    for name, scopes in (("factors, trees", trees), ("factors, loops", loops)):
        g = graph.from_factors(cards, scopes)
        tables = [rng.normal(size=[cards[i] for i in scope]) for scope in scopes]
        yield name, g, graph.factor_potentials(g, tables, [rng.normal(size=card) for card in cards])
    mesh = graph.mesh(3, 3, ["left", "above"])
    theta = graph.Potentials(rng.normal(size=(9, 3)), rng.normal(size=(2, 3, 3)))
    g = graph.families(mesh, 3)
    yield "factors, directed mesh", g, graph.conditionals(mesh, g, theta)


def plain(est, X, Y):
    return est.fit(X, Y)


def weighted(est, X, Y):
    return est.fit(X, Y, sample_weight=np.arange(len(X)) % 3)


def twice(est, X, Y):
    return est.fit(X[:3], Y[:3]).fit(X, Y)


def partly(est, X, Y):
    return est.partial_fit(X[:2], Y[:2], classes=range(3)).partial_fit(X[2:], Y[2:]).partial_fit(X, Y)


def pickled(est, X, Y):
    return pickle.loads(pickle.dumps(est.fit(X, Y)))


def exchanged(est, X, Y):
    return est.fit(X, Y).with_inference("trw_s")


def started(est, X, Y):
    return est.set_params(init=clone(est).fit(X, Y), inference__max_iter=3).fit(X, Y)


def searched(est, X, Y):
    search = GridSearchCV(est, {"alpha": [1e-3, 1.0]}, cv=2, scoring=SCORERS["neg_log_loss"])
    return make_pipeline(PixelWise(StandardScaler()), search).fit(X, Y)[-1].best_estimator_


class Fit(NamedTuple):
    """A fit: `fit(estimator(**params), *data())`, which raises an exception where it is `refused`."""

    estimator: type
    data: object
    fit: object
    params: dict
    refused: bool


FITS = {}


def add(name, estimator, data=None, fit=plain, refused=False, **params):
    """Add a fit, by default one of dense data of the estimator's kind."""
    data = data or {Grid: images, Mesh: images, Chain: sequences}.get(estimator, networks)
    FITS[name] = Fit(estimator, data, fit, params, refused)


CONVERGES = {"max_iter": 200, "tol": 1e-7}
BINARY = partial(images, 2)
LAZY = partial(images, lazy=True)
LARGE = partial(images, 3, 6, 31, 33)  # more than one batch
HIDDEN = partial(networks, hide=True)
LATENT = partial(networks, latent=True)

for loss in (
    *("clique_logistic", "clique_quadratic", "clique_smoothed", "contrastive_divergence", "em", "hinge"),
    *("latent_hinge", "likelihood", "marginal_hinge", "maximum_marginal", "patch_pseudolikelihood"),
    *("piecewise", "pseudolikelihood", "smoothed_classification", "unified"),
    *("univariate_logistic", "univariate_quadratic"),
):
    differs = loss in ("em", "latent_hinge", "marginal_hinge", "unified")  # only where labels are hidden
    add(f"grid, {loss}", Grid, partial(images, hide="mask") if differs else images, loss=loss)
add("grid, cost of hinge", Grid, loss=Hinge(cost=2.0))
add("grid, em with exact", Grid, partial(images, 2, hide="mask"), loss=EM("exact"), inference="trw")
add("grid, patches of 3", Grid, loss=PatchPseudolikelihood(size=3))
add("grid, shared pieces", Grid, loss=Piecewise(pieces="shared"))
add("grid, unified of maxima", Grid, loss=Unified(eps_y=0.0, eps_h=1.0))

add("grid, bp", Grid, inference=BP(damping=0.1, **CONVERGES))
add("grid, bruteforce", Grid, partial(images, 2, 3, 2, 3), inference="bruteforce", loss="likelihood")
add("grid, exact", Grid, BINARY, inference="exact", loss="likelihood")
add("grid, gibbs", Grid, inference="gibbs", loss="pseudolikelihood")
add("grid, gibbs draws", Grid, inference=Gibbs(20, random_state=1), loss="maximum_marginal", max_iter=2)
add("grid, graph_cut", Grid, BINARY, inference="graph_cut", loss="hinge", symmetric="potts")
add("grid, graph_cut by swaps", Grid, inference=GraphCut(moves="swap"), loss="likelihood")
add("grid, icm", Grid, inference="icm", loss="hinge")
add("grid, icm restarts", Grid, inference=ICM(n_restarts=2), loss="hinge")
add("grid, max_product", Grid, inference="max_product", loss="hinge")
add("grid, mean_field", Grid, inference="mean_field")
add("grid, mean_field converges", Grid, inference=MeanField(**CONVERGES), loss="likelihood")
add("grid, mixed_product", Grid, BINARY, inference="mixed_product", loss="marginal_hinge")
add("grid, tree on loops", Grid, inference="tree", refused=True)
add("grid, trw converges", Grid, inference=TRW(rho=0.5, **CONVERGES), gradient=Backprop(mode="fixed_point"))
add("grid, trw_s", Grid, inference="trw_s")
add("grid, trw_s maximises", Grid, inference=TRWS(max_iter=20), loss="hinge")

add("grid, backprop without memory", Grid, gradient=Backprop(mode="truncated", max_memory=0))
add("grid, implicit", Grid, gradient="implicit", inference=TRW(**CONVERGES))
add("grid, implicit, direct", Grid, gradient=Implicit(solver="direct"), inference=MeanField(**CONVERGES))
add("grid, implicit, truncated", Grid, gradient="implicit", refused=True)
add("grid, perturbation", Grid, gradient="perturbation", inference=TRW(**CONVERGES))
add("grid, perturbation, one side", Grid, gradient=Perturbation(sides=1), inference=MeanField(**CONVERGES))

add("grid, lbfgs to the end", Grid, optimizer=LBFGS(memory=3), max_iter=80, tol=1e-9)
add("grid, adam", Grid, optimizer=Adam(batch_size=2))
add("grid, subgradient", Grid, optimizer=Subgradient(batch_size=1, average=True), loss="hinge")
add("grid, bundle", Grid, optimizer=Bundle(memory=5), loss="hinge", max_iter=20)
add("grid, bundle, not convex", Grid, optimizer="bundle", refused=True)
add("grid, cccp", Grid, optimizer=CCCP(inner="subgradient", inner_iter=5), loss="latent_hinge")
add("grid, doubling", Grid, schedule=Doubling(first=1))

for n_labels in (2, 5, 8):
    add(f"grid, {n_labels} labels", Grid, partial(images, n_labels))
    add(f"grid, 8 neighbours, {n_labels} labels", Grid, partial(images, n_labels), connectivity=8)
    add(f"chain, {n_labels} labels", Chain, partial(sequences, n_labels), loss="univariate_logistic")
add("grid, symmetric, contrast", Grid, connectivity=8, symmetric=True, edge_features="contrast")
add("grid, potts, contrast", Grid, symmetric="potts", edge_features="contrast")
add("grid, transformed edge features", Grid, edge_features=PolynomialFeatures(2, include_bias=False))
add("grid, class_weight", Grid, class_weight="balanced")
add("grid, class_weight of margins", Grid, class_weight={0: 1.0, 1: 2.0, 2: 0.5}, loss="hinge")
add("grid, class_weight of likelihood", Grid, class_weight="balanced", loss="likelihood", refused=True)
add("grid, no intercept, more classes", Grid, fit_intercept=False, alpha=0.1, classes=[0, 1, 2, 3])
add("grid, init zeros", Grid, init="zeros")
add("grid, init independent", Grid, init="independent", loss="clique_smoothed")
add("grid, init estimator", Grid, fit=started)
add("grid, decoding mpm", Grid, decoding="mpm", loss="hinge")
add("grid, decoding map", Grid, decoding="map")
add("grid, decoding map of mean_field", Grid, decoding="map", inference="mean_field", refused=True)

add("grid, arrays", Grid, partial(images, ragged=False))
add("grid, masks", Grid, partial(images, hide="mask"), loss="likelihood")
add("grid, missing_label", Grid, partial(images, hide="?"), missing_label="?")
add("grid, lazy", Grid, LAZY)
add("grid, lazy, adam", Grid, LAZY, optimizer="adam")
add("grid, table", Grid, table)
add("grid, n_jobs=1", Grid, LARGE, n_jobs=1, max_iter=3)
add("grid, n_jobs=2", Grid, LARGE, n_jobs=2, max_iter=3)
add("grid, sample_weight", Grid, fit=weighted)
add("grid, warm_start", Grid, fit=twice, warm_start=True)
add("grid, partial_fit", Grid, fit=partly, optimizer="adam")
add("grid, pickled", Grid, fit=pickled)
add("grid, with_inference", Grid, fit=exchanged)
add("grid, pipeline and search", Grid, fit=searched)

add("mesh", Mesh)
add("mesh, masks, 2 labels", Mesh, partial(images, 2, hide="mask"))
add("mesh, three parents, contrast", Mesh, parents=("left", "above", "above_right"), edge_features="contrast")
add("mesh, mean_field, weights", Mesh, inference="mean_field", loss="clique_quadratic", fit=weighted)
add("mesh, lazy, class_weight", Mesh, LAZY, loss="univariate_logistic", class_weight="balanced")
add("mesh, table", Mesh, table)
add("dag", DAG)
add("dag, CSR, 2 labels, pickled", DAG, partial(networks, 2, sparse=True), fit=pickled)
add("dag, hidden labels", DAG, HIDDEN, inference="exact")
add("dag, hidden variables", DAG, LATENT, inference="exact", loss="marginal_hinge", max_iter=3)
add("dag, trw", DAG, inference="trw", loss="univariate_logistic")
add("dag, no edge features", DAG, partial(networks, edge_features=False), loss="clique_logistic")

add("graph, doubling", General, schedule="doubling")
add("graph, not symmetric, CSR", General, partial(networks, sparse=True), symmetric=False)
add("graph, potts, 5 labels", General, partial(networks, 5), symmetric="potts")
add("graph, no edge features, 8 labels", General, partial(networks, 8, edge_features=False))
add("graph, forest", General, partial(networks, loops=0), inference="tree", loss="likelihood", max_iter=50)
add("graph, exact, n_jobs=2", General, inference="exact", loss="hinge", max_iter=20, n_jobs=2)
add("graph, marginal_map", General, LATENT, inference="exact", loss="likelihood", decoding="marginal_map")
for loss in ("latent_hinge", "marginal_hinge", "unified", "univariate_logistic", "em"):
    add(f"graph, hidden variables, {loss}", General, LATENT, inference=MixedProduct(), loss=loss, max_iter=3)
add("graph, table", General, table)

add("chain, to the end", Chain, max_iter=100, tol=1e-8)
add("chain, CSR", Chain, partial(sequences, kind="csr"))
add("chain, dictionaries", Chain, partial(sequences, kind="dict"))
add("chain, masks", Chain, partial(sequences, hide=True))
add("chain, frank_wolfe", Chain, loss="hinge", fit_intercept=False, optimizer="frank_wolfe")
add(
    "chain, frank_wolfe, mean",
    Chain,
    loss="hinge",
    fit_intercept=False,
    optimizer=FrankWolfe(2, average=True),
)
add("chain, frank_wolfe, intercept", Chain, loss="hinge", optimizer="frank_wolfe", refused=True)
add("chain, partial_fit, subgradient", Chain, fit=partly, optimizer=Subgradient(batch_size=2), loss="hinge")
add("chain, table, 5 labels", Chain, partial(table, 5), max_iter=50)

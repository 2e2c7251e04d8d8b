"""Digest small fits, to prove that a refactoring did not change a single bit of any result.

    python benchmarks/frozen.py --write digests.json    # on the commit before
    python benchmarks/frozen.py --check digests.json    # on the commit after; exits with 1 on any difference

A job has several parts, such as "coef_" or "predict". For each part the file holds a digest of all bytes,
dtypes and shapes, whether a ConvergenceWarning was raised, and sums that tell how large a difference is. For
refused combinations the type of the exception is compared. Compare on one machine, with the same versions of
all packages: compiled kernels use the vector instructions of the processor. Delete compiled kernels before
(`find skcrf -name "*.nb?" -delete`): numba does not notice that a function in another file has changed.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numba
import numpy as np
from frozen_jobs import CONVERGES, DAG, FITS, HIDDEN, General, Grid, fields, images, networks, sequences
from llvmlite.binding import get_host_cpu_name
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import skcrf
from skcrf import datasets, graph, metrics, preprocessing, uai
from skcrf.gradients import GRADIENTS, Backprop
from skcrf.inference import INFERENCE, TRW, MeanField
from skcrf.losses import LOSSES
from skcrf.optimizers import OPTIMIZERS, SCHEDULES

REGISTRIES = {"inference": INFERENCE, "loss": LOSSES, "gradient": GRADIENTS, "optimizer": OPTIMIZERS}
REGISTRIES["schedule"] = SCHEDULES


def leaves(value):
    """Yield the arrays of a result, and the types of the containers that hold them."""
    if issparse(value):
        value = [value.data, value.indices, value.indptr, value.shape]
    value = list(value.items()) if isinstance(value, dict) else value
    ragged = isinstance(value, np.ndarray) and value.dtype.kind == "O"
    if ragged or (isinstance(value, (list, tuple)) and not all(isinstance(v, (int, float)) for v in value)):
        yield np.array("ndarray" if ragged else "list" if isinstance(value, list) else "tuple")
        for part in value:
            yield from leaves(part)
    else:
        yield np.array("None") if value is None else np.asarray(value)


def digest(value):
    """Digest a result; also sum its numbers, its numbers with weights, and their absolute values."""
    sha, sums = hashlib.sha256(), np.zeros(3)
    for array in leaves(value):
        sha.update(f"{array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        if array.dtype.kind in "biuf":
            x = np.nan_to_num(array.astype(np.float64).ravel(), posinf=1.0, neginf=-1.0)
            sums += x.sum(), (x * np.cos(np.arange(x.size))).sum(), np.abs(x).sum()
    return sha.hexdigest(), sums.tolist()


def keep(parts, name, function, *args, opaque=False, **kwargs):
    """Call a function, digest its result or its exception as a part of a job, and return the result.

    Of an opaque result only its existence counts.
    """
    result, message = None, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
            sha, sums = digest("opaque" if opaque else result)
        except Exception as error:
            kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
            sha, sums, message = f"raises {kind}", [0.0, 0.0, 0.0], str(error)
    warned = any(issubclass(one.category, ConvergenceWarning) for one in caught)
    parts[name] = {"digest": sha, "warned": warned, "sums": sums, "message": message}
    return result


def known(Y):
    """Mask every other label."""
    if np.ndim(Y[0]) == 0:
        return np.ma.masked_array(Y, np.arange(len(Y)) % 2)
    return [np.ma.masked_array(y, np.arange(y.size).reshape(y.shape) % 2) for y in Y]


ATTRIBUTES = ("classes_", "coef_", "intercept_", "edge_coef_", "loss_curve_", "train_error_curve_")
ATTRIBUTES += ("n_iter_", "converged_")
METHODS = {
    "predict": lambda est, X, Y: est.predict(X),
    "predict with labels": lambda est, X, Y: est.predict(X, known(Y)),
    "predict_proba": lambda est, X, Y: est.predict_proba(X),
    "predict_proba with labels": lambda est, X, Y: est.predict_proba(X, known(Y)),
    "predict_log_proba": lambda est, X, Y: est.predict_log_proba(X),
    "predict_edge_proba": lambda est, X, Y: est.predict_edge_proba(X),
    "score": lambda est, X, Y: est.score(X, Y),
    "potentials": lambda est, X, Y: [theta for _, theta in est.potentials(X)],
    "log_likelihood": lambda est, X, Y: est.log_likelihood(X, Y),
    "log_likelihood with labels": lambda est, X, Y: est.log_likelihood(X, known(Y)),
    "sample": lambda est, X, Y: est.sample(X, 2, random_state=3),
}


def run_fit(parts, fit):
    """Fit an estimator, and digest its attributes and the results of its methods."""
    X, Y = fit.data()
    est = fit.estimator(**{"max_iter": 8, "tol": 1e-3, "random_state": 0, **fit.params})
    est = keep(parts, "fit", fit.fit, est, X, Y, opaque=True)
    for name in ATTRIBUTES if est is not None else ():
        keep(parts, name, getattr, est, name)
    for name, method in METHODS.items() if est is not None else ():
        if hasattr(est, name.split()[0]):
            keep(parts, name, method, est, X, Y)


def run_losses(parts, **params):
    """Fit small problems by every loss, or from every loss; many combinations are refused."""
    for kind, data in ((Grid, partial(images, 2, 2, 2, 3)), (General, HIDDEN), (DAG, networks)):
        X, Y = (part[:2] for part in data())
        for loss in sorted(LOSSES):
            est = kind(max_iter=2, random_state=0, **(params | {"loss": loss} if params else {"init": loss}))
            at = f"{kind.__name__}, {loss}"
            if keep(parts, at, est.fit, X, Y, opaque=True) is not None:
                fitted = [est.coef_, est.intercept_, est.edge_coef_, est.loss_curve_]
                keep(parts, f"{at}, weights", list, fitted)
                keep(parts, f"{at}, predict", est.predict, X)


def run_inference(parts, methods):
    """Run methods forward and backward on graphs of every kind, for every task."""
    for label, method in methods.items():
        for name, g, theta in fields():
            odd = np.arange(g.n_nodes) % 2.0
            for task, tau in {"sum": 1.0, "max": 0.0, "mixed": odd, "tempered": 0.5, "default": None}.items():
                run_task(parts, f"{label}, {name}, {task}", method, g, theta, tau)


def run_task(parts, at, method, g, theta, tau):
    """Run a method forward and, where it has a gradient, backward."""
    beliefs = keep(parts, at, method.forward, g, theta, tau, edges=True, tape=True, opaque=True)
    if beliefs is None:
        return
    for field in ("mu", "edge_mu", "log_z", "bound", "n_iter", "converged"):
        keep(parts, f"{at}, {field}", getattr, beliefs, field)
    rng = np.random.RandomState(5)
    d_mu, d_edge_mu = rng.normal(size=beliefs.mu.shape), rng.normal(size=beliefs.edge_mu.shape)
    d_log_z = rng.normal(size=g.n_examples)
    if "mu" in method.differentiates and at.endswith("sum"):
        keep(parts, f"{at}, gradient of mu", method.backward, beliefs, d_mu, d_edge_mu)
    if "log_z" in method.differentiates:
        keep(parts, f"{at}, gradient of log_z", method.backward, beliefs, d_log_z=d_log_z)


def variants(name):
    """Make an inference as it is by default and, where it iterates until `tol`, one that converges."""
    methods = {"default": INFERENCE[name]()}
    if "tol" in methods["default"].get_params():
        methods["converged"] = INFERENCE[name](**CONVERGES)
    return methods


def run_metrics(parts):
    """Compute all metrics and scores."""
    X, Y = images(hide="mask")
    predicted = [np.roll(y.data, 1) for y in Y]
    est = Grid(max_iter=3, tol=1.0).fit(X, Y)
    for name in ("pooled_accuracy", "mean_iou", "sequence_accuracy_score", "flattened"):
        keep(parts, name, getattr(metrics, name), Y, predicted)
    keep(parts, "weights", metrics.mean_iou, Y, predicted, sample_weight=[1, 0, 2, 3], classes=[0, 2])
    keep(parts, "log_loss", metrics.log_loss, Y, est.predict_proba(X), classes=est.classes_)
    for name, scorer in sorted(metrics.SCORERS.items()):
        keep(parts, name, scorer, est, X, Y)


def run_preprocessing(parts):
    """Transform images, sequences and graphs."""
    pixels, sites = preprocessing.PixelWise(StandardScaler()), preprocessing.SiteWise(StandardScaler())
    both = preprocessing.SiteWise(StandardScaler(), edge_transformer=StandardScaler())
    for name, transformer, X in (
        ("PixelWise", pixels, images()[0]),
        ("PixelWise, arrays", pixels, images(ragged=False)[0]),
        ("SiteWise, sequences", sites, sequences()[0]),
        ("SiteWise, graphs", both, networks()[0]),
        ("FourierFeatures", preprocessing.FourierFeatures(), images()[0]),
        ("FourierFeatures, scale", preprocessing.FourierFeatures(position=False, scale=2.0), images()[0]),
    ):
        keep(parts, name, transformer.fit_transform, X)


def run_datasets(parts):
    """Draw all kinds of data."""
    for name in ("make_binary_denoising", "make_potts", "make_snakes", "make_texture_defects"):
        keep(parts, name, getattr(datasets, name), n_images=3, random_state=0)
    keep(parts, "ragged", datasets.make_binary_denoising, 3, (12, 9), ragged=True, random_state=1)


def run_graph(parts):
    """Compute functions of potentials, and all losses with two inferences."""
    methods = {"trw": Backprop().wrap(TRW()), "mean_field": Backprop().wrap(MeanField())}
    for name, g, theta in fields():
        y = np.arange(g.n_nodes) % 2
        hidden = np.where(np.arange(g.n_nodes) % 3, y, -1)
        keep(parts, f"{name}, clamp", graph.clamp, theta, hidden)
        keep(parts, f"{name}, augment", graph.augment, theta, hidden, 2.0)
        keep(parts, f"{name}, score", graph.score, g, theta, y)
        for loss in sorted(LOSSES):
            for label, method in methods.items():
                for n_hidden, labels in ((0, y), ((hidden < 0).sum(), hidden)):
                    at = f"{name}, {loss}, {label}, {n_hidden} hidden"
                    keep(parts, at, evaluate, LOSSES[loss](), method, g, theta, labels)


def evaluate(loss, *args):
    """Return the value and the derivative of a loss."""
    return loss(*args)[:2]


def run_uai(parts):
    """Write, read and solve a model."""
    scopes, rng = [[0], [1, 0], [1, 2, 3], [3, 0]], np.random.RandomState(6)
    cards, evidence = np.array([2, 3, 2, 2]), np.array([-1, 2, -1, -1])
    tables = [rng.random_sample(cards[scope]) for scope in scopes]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.uai"
        uai.write_model(path, uai.Model("MARKOV", cards, [np.array(scope) for scope in scopes], tables))
        keep(parts, "model file", path.read_text)
        model = uai.read_model(path)
        for task in sorted(uai.TASKS):
            query = np.array([0, 3]) if task == "MMAP" else None
            for name in sorted(INFERENCE):
                options = {"inference": name, "evidence": evidence, "query": query}
                keep(parts, f"{task}, {name}", lambda t=task, o=options: uai.solve(model, t, **o).value)
            uai.write_solution(path, uai.solve(model, task, query=query))
            keep(parts, f"{task}, solution file", path.read_text)


def make_jobs():
    """Make the functions that fill the parts of each job, by name."""
    jobs = {name: partial(run_fit, fit=fit) for name, fit in FITS.items()} | {"every init": run_losses}
    for parameter in ("inference", "optimizer", "gradient"):
        more = {"inference": TRW(**CONVERGES)} if parameter == "gradient" else {}
        for name in sorted(REGISTRIES[parameter]):
            jobs[f"every loss, {parameter} {name}"] = partial(run_losses, **more, **{parameter: name})
    for name in sorted(INFERENCE):
        jobs[f"inference, {name}"] = partial(run_inference, methods=variants(name))
    for name, gradient in sorted(GRADIENTS.items()):
        methods = {"trw": TRW(**CONVERGES), "mean_field": MeanField(**CONVERGES)}
        wrapped = {label: gradient().wrap(method) for label, method in methods.items()}
        jobs[f"gradient, {name}"] = partial(run_inference, methods=wrapped)
    own = {"metrics": run_metrics, "preprocessing": run_preprocessing, "datasets": run_datasets}
    return jobs | own | {"potentials and losses": run_graph, "uai": run_uai}


def check_registries():
    """Fail if an entry of a registry has no fit."""
    for parameter, registry in REGISTRIES.items():
        fits = [fit.estimator(**fit.params) for fit in FITS.values() if not fit.refused]
        used = [est.get_params(deep=False)[parameter] for est in fits]
        used = {one if isinstance(one, str) else type(one) for one in used}
        lacking = [name for name, kind in registry.items() if not {name, kind} & used]
        if lacking:
            raise SystemExit(f"FITS must have a fit for every {parameter}, got none for {lacking}.")


def is_refused(part):
    return part["digest"].startswith("raises")


def check_refusals(results):
    """Fail if a job fails as a whole, if a fit is refused that should work, or the other way round."""
    for name, parts in results.items():
        tested = parts if name in FITS else {"job": parts["job"]}
        raised = [f"{part}: {one['message']}" for part, one in tested.items() if is_refused(one)]
        if bool(raised) != (name in FITS and FITS[name].refused):
            raise SystemExit(f"{name!r} must have refused={bool(raised)}, got the exceptions {raised[:1]}.")


def difference(old, new):
    """Describe how a part differs; None if it does not."""
    if old is None or new is None:
        return "is not in the file" if old is None else "is only in the file"
    if is_refused(old) or is_refused(new):
        texts = [one["digest"] if is_refused(one) else "has a result" for one in (old, new)]
        return None if texts[0] == texts[1] else f"{texts[0]} in the file, {texts[1]} now ({new['message']})"
    if old["digest"] != new["digest"]:
        scale = max(old["sums"][2], new["sums"][2], 1e-300)
        change = np.abs(np.subtract(old["sums"], new["sums"])).max() / scale
        return f"relative difference of sums {change:.1e} (sum {old['sums'][0]:.6g} -> {new['sums'][0]:.6g})"
    if old["warned"] != new["warned"]:
        return f"ConvergenceWarning {old['warned']} in the file, {new['warned']} now"
    return None


def compare(old, new):
    """Print the jobs that differ, with some of their parts; return the number of these jobs."""
    n_different = 0
    for job in sorted(old.keys() | new.keys()):
        before, after = old.get(job, {}), new.get(job, {})
        found = {name: difference(before.get(name), after.get(name)) for name in before | after}
        found = [f"    {name}: {text}" for name, text in found.items() if text]
        n_different += bool(found)
        if found:
            print("\n".join([f"{job}: {len(found)} of {len(before | after)} parts differ", *found[:8]]))
    return n_different


def main():
    """Write or check digests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help="write digests to a file")
    parser.add_argument("--check", metavar="FILE", type=Path, help="compare with the digests in a file")
    parser.add_argument("--jobs", metavar="TEXT", default="", help="run only jobs whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the names of the jobs")
    parser.add_argument("--times", action="store_true", help="print the seconds of each job")
    args = parser.parse_args()
    check_registries()
    jobs = {name: job for name, job in make_jobs().items() if args.jobs in name}
    if args.list or not (args.write or args.check):
        print("\n".join([*jobs, f"{len(jobs)} jobs"]))
        return
    begin, results = time.perf_counter(), {}
    with threadpool_limits(1):
        for name, job in jobs.items():
            start, results[name] = time.perf_counter(), {}
            keep(results[name], "job", job, results[name])
            if args.times:
                print(f"{time.perf_counter() - start:7.2f} s  {name}")
    print(f"{len(jobs)} jobs of {Path(skcrf.__file__).parent} took {time.perf_counter() - begin:.0f} s")
    machine = {"cpu": get_host_cpu_name(), "numpy": np.__version__, "numba": numba.__version__}
    if args.write:
        check_refusals(results)
        args.write.write_text(json.dumps({"machine": machine, "jobs": results}, indent=0))
    if args.check:
        file = json.loads(args.check.read_text())
        if file["machine"] != machine:
            print(f"The file was written with {file['machine']}, this is {machine}.")
        old = {name: parts for name, parts in file["jobs"].items() if args.jobs in name}
        n_different = compare(old, results)
        print(f"{len(jobs)} jobs, {n_different} differences")
        sys.exit(n_different > 0)


if __name__ == "__main__":
    main()

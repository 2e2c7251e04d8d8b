"""Which learning goes with which inference: binary denoising beside Table 1 of Kumar et al. (2005).

Five ways to learn the weights of a discriminative random field, three ways to infer labels with them, two
kinds of noise. As in the paper, 10 noisy copies of one image of 64 x 64 pixels are fitted to, and noisy
copies of four images, the same one among them, are tested on. The paper's images are not to be had: these are
words, so that orderings compare and numbers do not. Losses of the marginals, Domke (2013), are added.

Nothing is chosen by the test images. There is no ridge. Losses that have a gradient are minimised by L-BFGS;
the others take fixed steps, of each of the sizes in `STEPS`, and the weights of the least training error
along all of them are kept. Contrastive divergence, which has no inference to count errors by, takes shorter
and shorter steps and the mean of the weights. `STEPS` and the number of iterations were set after a
first run with steps of 0.4 and 2 on other draws of the noise, where under Gaussian noise SPA and MMA had not
yet reached the training error of PMA; its test errors were seen too.
"""

import argparse
import time
import warnings
from copy import copy
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcrf import GridCRFClassifier
from skcrf.inference import BP, ICM, TRW, BaseInference, GraphCut
from skcrf.optimizers import LBFGS, Subgradient

#: Sizes of fixed steps. The paper's 1e-5, of a sum over 40960 pixels, is 0.4 of their mean.
STEPS = (0.4, 2.0, 10.0)


class Row(NamedTuple):
    """A way to learn.

    Attributes
    ----------
    loss : str
        Name of the loss.
    inference : BaseInference
        Inference in learning; also that of MPM, where it gives marginals.
    steps : str
        How it is minimised: a key of `OPTIMIZERS`.
    paper : dict
        Errors of the paper in percent by noise, for MAP, MPM and ICM; empty where it has none.
    """

    loss: str
    inference: BaseInference
    steps: str
    paper: dict


#: Belief propagation, to a tolerance.
MARGINALS = BP(max_iter=50, tol=1e-4)

#: The optimizers that are tried for a row.
OPTIMIZERS = {
    "smooth": [LBFGS()],
    "fixed": [Subgradient(learning_rate=step, decay=0.0, patience=10**6) for step in STEPS],
    "shorter": [Subgradient(learning_rate=2.0, average=True, best="last", patience=10**6)],
}

ROWS = {
    "PMA": Row(
        "likelihood",
        MARGINALS,
        "smooth",
        {"Gaussian": (2.73, 2.51, 3.91), "bimodal": (6.45, 5.48, 17.39)},
    ),
    "SPA": Row(
        "likelihood",
        GraphCut(),
        "fixed",
        {"Gaussian": (2.49, 7.64, 3.98), "bimodal": (5.82, 19.19, 14.88)},
    ),
    "MMA": Row(
        "maximum_marginal",
        MARGINALS,
        "fixed",
        {"Gaussian": (34.34, 2.96, 4.11), "bimodal": (26.53, 5.70, 16.00)},
    ),
    "PL": Row(
        "pseudolikelihood",
        MARGINALS,
        "smooth",
        {"Gaussian": (3.82, 3.10, 3.89), "bimodal": (17.69, 7.31, 22.22)},
    ),
    "CD": Row(
        "contrastive_divergence",
        MARGINALS,
        "shorter",
        {"Gaussian": (3.78, 2.82, 4.09), "bimodal": (8.88, 6.29, 8.92)},
    ),
    "univariate, BP": Row("univariate_logistic", BP(max_iter=20), "smooth", {}),
    "clique, BP": Row("clique_logistic", BP(max_iter=20), "smooth", {}),
    "univariate, TRW": Row("univariate_logistic", TRW(max_iter=20), "smooth", {}),
    "clique, TRW": Row("clique_logistic", TRW(max_iter=20), "smooth", {}),
}


def gaussian(Y, rng):
    """Add noise of standard deviation 0.3."""
    return Y + rng.normal(scale=0.3, size=Y.shape)


def bimodal(Y, rng):
    """Draw each pixel from one of the two normal distributions of its label, either as likely."""
    means = np.array([[0.55, 0.42], [0.08, 0.46]])
    scales = np.array([[0.02, 0.10], [0.03, 0.03]])
    mode = rng.integers(2, size=Y.shape)
    return rng.normal(means[Y, mode], scales[Y, mode])


#: The noises of the paper's table.
NOISES = {"Gaussian": gaussian, "bimodal": bimodal}


def load(folder, noise, n_copies):
    """Read the images and add noise.

    Parameters
    ----------
    folder : Path
        Folder of the data sets.
    noise : str
        A key of `NOISES`.
    n_copies : int
        Noisy copies of each test image.

    Returns
    -------
    train, test : tuple
        Noisy images and labels.
    """
    with np.load(folder / "binary_toys" / "binary_toys.npz") as data:
        images = data["words64"].astype(np.int64)
    parts = []
    for seed, (chosen, copies) in enumerate([(images[:1], 10), (images[:4], n_copies)]):
        Y = np.repeat(chosen, copies, axis=0)
        parts.append((NOISES[noise](Y, np.random.default_rng(seed)), Y))
    return parts


def fitted(row, train, max_iter):
    """Fit a row; of several steps, the one of the least training error by the row's own inference.

    Parameters
    ----------
    row : Row
        What to fit.
    train : tuple
        Noisy images and labels.
    max_iter : int
        Iterations at most.

    Returns
    -------
    crf : GridCRFClassifier
        Fitted.
    """
    crfs = [
        GridCRFClassifier(
            inference=row.inference,
            loss=row.loss,
            optimizer=optimizer,
            alpha=0.0,
            edge_features="contrast",
            symmetric=True,
            max_iter=max_iter,
            tol=1e-5,
        ).fit(*train)
        for optimizer in OPTIMIZERS[row.steps]
    ]
    return max(crfs, key=lambda crf: crf.score(*train)) if len(crfs) > 1 else crfs[0]


def judge(crf, test):
    """Count the errors that the weights make with each inference.

    Parameters
    ----------
    crf : GridCRFClassifier
        Fitted.
    test : tuple
        Noisy images and labels.

    Returns
    -------
    errors : tuple of float
        In percent, for MAP, MPM and ICM.
    """
    errors = []
    for inference in (GraphCut(), crf.inference_ if "sum" in crf.inference_.tasks else MARGINALS, ICM()):
        other = copy(crf)
        other.inference_ = inference  # the same weights, inferred otherwise
        errors.append(100 * (1 - other.score(*test)))
    return tuple(errors)


def verdicts(errors):
    """Tell whether learning and inference are coupled.

    Parameters
    ----------
    errors : dict
        By row the errors for MAP, MPM and ICM.

    Returns
    -------
    lines : list of str
        What holds and what does not.
    """
    own = [name for name, row in ROWS.items() if row.paper]
    best_map, best_mpm = (min(own, key=lambda name: errors[name][column]) for column in (0, 1))
    others = [name for name in ROWS if name not in own]
    better = [name for name in others if errors[name][1] < errors[best_mpm][1]]
    ahead = f": {'; '.join(better)}" if better else ""
    return [
        f"MAP is best with SPA: {'yes' if best_map == 'SPA' else f'no, with {best_map}'}",
        f"MPM is best with PMA or MMA: {'yes' if best_mpm in ('PMA', 'MMA') else 'no'}, with {best_mpm}",
        f"losses of the marginals that beat all five under MPM: {len(better)} of {len(others)}{ahead}",
    ]


def rst_table(results):
    """Write the table that the documentation includes.

    Parameters
    ----------
    results : dict
        By noise, then by row, the errors for MAP, MPM and ICM.

    Returns
    -------
    text : str
        A list-table.
    """
    columns = [f"{noise}, {way}" for noise in NOISES for way in ("MAP", "MPM", "ICM")]
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - learning"]
    lines += [f"     - {column}" for column in columns]
    for name, row in ROWS.items():
        lines.append(f"   * - {name}")
        for noise in NOISES:
            paper = [f" ({value:.2f})" for value in row.paper.get(noise, ())] or [""] * 3
            lines += [f"     - {e:.2f}{told}" for e, told in zip(results[noise][name], paper, strict=True)]
    return "\n".join(lines) + "\n"


def main():
    """Fit, test, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--copies", type=int, default=10, help="of each of four test images; 50 in the paper")
    parser.add_argument("--max-iter", type=int, default=200, help="iterations of the optimizer at most")
    parser.add_argument("--rst", type=Path, help="where to write the table of the documentation")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {noise: {} for noise in NOISES}
    for noise, errors in results.items():
        train, test = load(options.data, noise, options.copies)
        print(f"\n{noise} noise: errors in %, the paper's in brackets; {len(test[0])} test images")
        print(f"{'learning':<18}{'MAP':>15}{'MPM':>15}{'ICM':>15}{'seconds':>9}")
        for name, row in ROWS.items():
            start = time.perf_counter()
            crf = fitted(row, train, options.max_iter)
            taken = time.perf_counter() - start
            errors[name] = judge(crf, test)
            paper = [f" ({value:5.2f})" for value in row.paper.get(noise, ())] or [" " * 8] * 3
            cells = [f"{f'{e:.2f}{told}':>15}" for e, told in zip(errors[name], paper, strict=True)]
            print(f"{name:<18}{''.join(cells)}{taken:9.1f}", flush=True)
        print("\n".join(verdicts(errors)))
    if options.rst:
        options.rst.write_text(rst_table(results))


if __name__ == "__main__":
    main()

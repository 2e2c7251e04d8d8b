"""Walk through a fit: count the files that it enters, and the calls from the optimizer down to a kernel.

    python benchmarks/walk.py

Fits `GridCRFClassifier` with its defaults, but a large `tol`, to two images of 4 x 4 pixels and prints

- the files of the package that are entered during the fit, imports not counted,
- the frames of the package from the optimizer to the first kernel that is called, and to the deepest: the
  frame of `minimize` and the one that calls the kernel are counted, the kernel and other packages are not.

A fit may minimise more than once, here the model without edges first; each has its own lists. Kernels run as
Python functions, so that they can be seen; a kernel is any function that was passed to `numba.njit`.
"""

import argparse
import importlib
import os
import sys
import threading
import warnings
from pathlib import Path


def mark_kernels():
    """Run kernels as Python functions; return the set that will hold their code objects."""
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    import numba

    kernels, njit = set(), numba.njit

    def marking(function=None, *args, **options):
        if function is None or not hasattr(function, "__code__"):
            return lambda inner: marking(inner, **options)
        kernels.add(function.__code__)
        return njit(**options)(function)

    numba.njit = marking
    return kernels


class Walk:
    """A profile function that notes the files of a fit, and the way from each `minimize` to kernels.

    Parameters
    ----------
    package : Path
        The folder of the package.
    kernels : set of code
        The kernels.

    Attributes
    ----------
    files : dict of str to bool
        The files that were entered, and whether any other function than a kernel was called there.
    first, deepest : dict of frame to list of str
        The frames from each `minimize` to its first kernel, and to the kernel that has the most.
    """

    def __init__(self, package, kernels):
        self.package, self.kernels = package, kernels
        self.files, self.first, self.deepest = {}, {}, {}

    def __call__(self, frame, event, arg):
        if event != "call" or not self.is_own(frame):
            return
        file, kernel = self.name_of(frame), frame.f_code in self.kernels
        self.files[file] = self.files.get(file, False) or not kernel
        own = [frame]
        while own[-1].f_code.co_name != "minimize" and (caller := self.caller(own[-1])) is not None:
            own.append(caller)
        inside = kernel and own[1:] and own[1].f_code in self.kernels  # one compiled call for Python
        if not kernel or inside or own[-1].f_code.co_name != "minimize":
            return
        steps = [f"{self.name_of(f)}:{f.f_lineno}  {f.f_code.co_qualname}" for f in own[::-1]]
        self.first.setdefault(own[-1], steps)
        self.deepest[own[-1]] = max(self.deepest.get(own[-1], []), steps, key=len)

    def caller(self, frame):
        """Return the next frame of the package; None if there is none."""
        frame = frame.f_back
        while frame is not None and not self.is_own(frame):
            frame = frame.f_back
        return frame

    def is_own(self, frame):
        return frame.f_code.co_filename.startswith(f"{self.package}{os.sep}")

    def name_of(self, frame):
        return str(Path(frame.f_code.co_filename).relative_to(self.package.parent))


def main():
    """Walk through a fit and print what was met."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    kernels = mark_kernels()
    import numpy as np

    skcrf = importlib.import_module("skcrf")
    rng = np.random.RandomState(0)
    Y = np.arange(32).reshape(2, 4, 4) // 2 % 2
    X = Y + rng.normal(size=Y.shape)
    walk = Walk(Path(skcrf.__file__).parent, kernels)
    est = skcrf.GridCRFClassifier(tol=0.1)
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est.fit(X, Y)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    only_kernels = [file for file, other in walk.files.items() if not other]
    print(
        f"{len(walk.files)} files of {walk.package} are entered, {len(only_kernels)} of them by kernels only:"
    )
    for file in sorted(walk.files):
        print(f"    {file}{' (kernels only)' if file in only_kernels else ''}")
    for number, minimize in enumerate(walk.first, 1):
        for which, (*steps, kernel) in (("first", walk.first[minimize]), ("deepest", walk.deepest[minimize])):
            print(f"{len(steps)} frames from minimize number {number} to its {which} kernel, {kernel}:")
            print("\n".join(f"    {step}" for step in steps))


if __name__ == "__main__":
    main()

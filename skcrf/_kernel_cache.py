"""A cache of compiled kernels that notices edits of callees in other files.

numba accepts a cached kernel as long as the file that defines it is unchanged. But the machine code also
contains the functions that the kernel calls and the constants that it reads, often from other files.
`KernelCache` therefore stamps a kernel with a digest of its own file and of all files of its package, and of
skcrf, that it imports, directly or indirectly. Private names of numba, which are the same from
0.61 to 0.68, are only used here and in `_kernel_dispatcher`.
"""

import hashlib
import inspect
import os
import re
import sys
from functools import cache, lru_cache
from importlib.util import resolve_name

from numba import types
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

# Imports at the top level of a file; a kernel cannot see others. Words in a docstring that look like an
# import do no harm: either no such file exists, or one file too many is read.
_IMPORT = re.compile(rb"^(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|.*)|import\s+([\w.]+))", re.MULTILINE)


class KernelCache(FunctionCache):
    """Cache on disk of the compiled versions of one function.

    Parameters
    ----------
    function : callable
        A module-level Python function.
    stamp : object, optional
        The stamp of the function when it was imported; default: that of the files as they are now.
    """

    def __init__(self, function, stamp=None):
        super().__init__(function)
        path = inspect.getfile(function)
        if stamp is not None:
            self._cache_file._source_stamp = stamp
        elif os.path.exists(path):  # in a notebook there is none, and numba's own stamp is kept
            spec = getattr(sys.modules.get(function.__module__), "__spec__", None)  # a new one after a reload
            self._cache_file._source_stamp = _digest(function.__module__, path, id(spec))

    @property
    def stamp(self):
        """The stamp that code on disk must have."""
        return self._cache_file._source_stamp

    def load_overload(self, sig, target_context):
        """Load the code compiled for a signature; None if there is none."""
        try:
            # numba would refresh the context here, which registers all that can be compiled: a quarter of a
            # second and 10 MB. Code that is compiled already only needs numba's run-time system.
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except (ImportError, AttributeError):
            # numba reads the signatures before the stamp, and one of a former version of the package may name
            # a class that has been moved since.
            try:
                self.flush()
            except OSError:  # read-only
                self.disable()
            return None

    def _index_key(self, sig, codegen):
        # numba compares named tuples by class and types, but compiled code reads their fields by position.
        return (*super()._index_key(sig, codegen), _field_names(getattr(sig, "args", sig)))


def _field_names(arguments):
    """List the field names of all named tuples among the types of arguments, at any depth."""
    tuples = (argument for argument in arguments if isinstance(argument, types.BaseTuple))
    return tuple((getattr(argument, "fields", ()), _field_names(argument)) for argument in tuples)


@lru_cache(maxsize=1)  # the kernels of a module are defined one after the other
def _digest(module, path, spec):
    return hashlib.sha256(b"".join(sorted(source_digests(module, path).values()))).digest()


def source_digests(module, path):
    """Digest the file of a module and the files of all modules that it imports in any way, by module."""
    digests, waiting = {}, [(module, path)]
    while waiting:
        module, path = waiting.pop()
        if module not in digests:
            status = os.stat(path)
            digests[module], imported = _read(module, path, status.st_mtime_ns, status.st_size)
            waiting += imported
    return digests


@cache  # a modified file is read again
def _read(module, path, modified, size):
    """Digest a file, and list the modules of its package and of skcrf that it imports, with their files."""
    with open(path, "rb") as file:
        source = file.read()
    package = module if _is_package(path) else module.rpartition(".")[0]
    followed = {module.split(".")[0], __name__.split(".")[0]}
    imported = {}
    for origin, names, plain in _IMPORT.findall(source):
        name = resolve_name((origin or plain).decode(), package)
        if name.split(".")[0] in followed and (file := _file_of(name)):
            words = re.findall(r"\w+", names.decode())
            submodules = _submodules(file, words) if _is_package(file) else {}
            imported |= {f"{name}.{word}": path for word, path in submodules.items()}
            if not words or len(submodules) < len(words):
                imported[name] = file
    return hashlib.sha256(source).digest(), list(imported.items())


def _is_package(path):
    return os.path.basename(path) == "__init__.py"


def _submodules(path, names):
    """Find which of the names are submodules of a package, and their files."""
    folder = os.path.dirname(path)
    present = set(os.listdir(folder))
    files = {name: os.path.join(folder, f"{name}.py") for name in names if f"{name}.py" in present}
    folders = {name: os.path.join(folder, name, "__init__.py") for name in names if name in present}
    return files | {name: file for name, file in folders.items() if os.path.isfile(file)}


@cache
def _file_of(module):
    """Find the source of a module by the place of its top-level package; None if there is none."""
    package, *parts = module.split(".")
    top = getattr(sys.modules.get(package), "__file__", None)
    if top is None or not parts:
        return top
    base = os.path.join(os.path.dirname(top), *parts)
    files = (f"{base}.py", os.path.join(base, "__init__.py"))
    return next((file for file in files if os.path.isfile(file)), None)

"""Dispatchers that compile a kernel for other kernels without what only calls from Python need.

numba compiles every function for calls from Python, from C and from compiled code, down to machine code. A
kernel that is called by others is linked into them as LLVM code, so that the other parts are left out, which
saves a third of the time. The private names of numba are the same from 0.61 to 0.68.
"""

from functools import cached_property

from llvmlite.binding import parse_bitcode
from numba import types
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, compile_result
from numba.core.registry import CPUDispatcher

from skcrf._kernel_cache import KernelCache


class KernelDispatcher(CPUDispatcher):
    """Compile a function for calls from Python; kernels that call it link its `callee` instead.

    Parameters
    ----------
    py_func : callable
        A module-level Python function.
    locals : dict
        Types of local variables.
    targetoptions : dict
        Options of `numba.njit`.
    """

    def __init__(self, py_func, locals, targetoptions):
        super().__init__(py_func, locals, {**targetoptions, "no_cfunc_wrapper": True})

    @property
    def _numba_type_(self):
        return types.Dispatcher(self.callee)

    @cached_property
    def callee(self):
        """The dispatcher whose code is linked into kernels."""
        options = {**self.targetoptions, "no_cpython_wrapper": True}
        callee = CPUDispatcher(self.py_func, self.locals, options, _CalleeCompiler)
        if self.stats.cache_path is not None:  # the files may have been edited since the import
            callee._cache = _CalleeCache(self.py_func, self._cache.stamp)
        return callee


class _CalleeLibrary(JITCodeLibrary):
    """Optimised LLVM code that is linked into other libraries, and never becomes machine code by itself."""

    class codegen:
        """A stand-in for the code generator, as there is no machine code."""

        @staticmethod
        def set_env(name, environment):
            """Do nothing: the environment of a function belongs to its machine code."""

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """Optimise the code, and return 0 as there is no machine code."""
        self._ensure_finalized()
        return 0

    def serialize(self):
        """Return the code as bytes."""
        return self._get_module_for_linking().as_bitcode()

    @classmethod
    def restore(cls, codegen, name, code):
        """Make a library of serialized code."""
        library = cls(codegen, name)
        library._final_module = library._shared_module = parse_bitcode(code)
        library._finalize_final_module()
        return library


class _CalleeCompiler(Compiler):
    def define_pipelines(self):
        """Provide the library that the function is compiled into."""
        codegen, name = self.state.targetctx.codegen(), self.state.func_id.func_qualname
        self.state.library = _CalleeLibrary(codegen, name)
        return super().define_pipelines()


class _CalleeCacheImpl(CompileResultCacheImpl):
    @property
    def filename_base(self):
        """The name of files: processes that compile the same kernel for Python must not write to them."""
        return f"{super().filename_base}-callee"

    def reduce(self, result):
        """Serialize a compiled function."""
        described = result.fndesc
        described.typemap = described.calltypes = None  # large, and not needed
        library = result.library
        return (
            library.name,
            library.serialize(),
            described,
            result.environment,
            result.signature,
            result.reload_init,
        )

    def rebuild(self, target_context, payload):
        """Restore a compiled function."""
        name, code, described, environment, signature, reload_init = payload
        library = _CalleeLibrary.restore(target_context.codegen(), name, code)
        for initialise in reload_init:
            initialise()
        return compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=target_context.get_executable(library, described, environment),
            typing_error=None,
            signature=signature,
            objectmode=False,
            lifted=(),
            fndesc=described,
            library=library,
            environment=environment,
            reload_init=reload_init,
        )


class _CalleeCache(KernelCache):
    _impl_class = _CalleeCacheImpl

"""A limit of BLAS to one thread, shared by all who need it at the same time."""

from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController  # a requirement of scikit-learn


class _Limit:
    """The limit of this process, and the number of its users."""

    lock, users, limiter = Lock(), 0, None


@cache
def _libraries():
    return ThreadpoolController()  # finding the libraries takes a while


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread until the last concurrent user leaves."""
    with _Limit.lock:
        _Limit.users += 1
        if _Limit.users == 1:
            _Limit.limiter = _libraries().limit(limits=1, user_api="blas")
            _Limit.limiter.__enter__()
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                _Limit.limiter.__exit__(None, None, None)

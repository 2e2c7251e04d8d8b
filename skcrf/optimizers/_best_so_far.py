"""Best weights of a run of an optimizer."""


class BestSoFar:
    """Best weights so far, by training error, then by value.

    Errors are None if they are not known. Only a decrease of value or error by more than `tol` is an
    improvement, which resets `n_idle`.

    Attributes
    ----------
    w, value, error
        The best weights, and their objective and training error.
    nit : int
        Iteration that found them; 0 for the start.
    n_idle : int
        Number of iterations since the last improvement.
    """

    def __init__(self, w, value, error, tol):
        self.w, self.value, self.error, self.nit = w, value, error, 0
        self.n_idle = 0
        self._tol, self._n_updates = tol, 0
        self._lowest = [value, value if error is None else error]

    def update(self, w, value, error):
        """Keep weights if they are better than the best so far."""
        self._n_updates += 1
        self.n_idle += 1
        for i, found in enumerate((value, value if error is None else error)):
            if found < self._lowest[i] - self._tol:
                self._lowest[i], self.n_idle = found, 0
        if _rank(value, error) < _rank(self.value, self.error):
            self.w, self.value, self.error, self.nit = w, value, error, self._n_updates


def _rank(value, error):
    return value if error is None else error, value

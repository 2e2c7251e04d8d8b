"""The best weights of an optimizer's way."""


class Kept:
    """The best weights so far, by error, then by value; and for how long there was no improvement.

    Parameters
    ----------
    w : ndarray of shape (n_weights,)
        Weights to start from.
    value, error : float
        Objective and training error there; None for errors that are not known.
    tol : float
        What counts as an improvement.
    """

    def __init__(self, w, value, error, tol):
        self.w, self.value, self.error = w, value, error
        self.lowest = [value, value if error is None else error]
        self.tol, self.since, self.n_offers, self.nit = tol, 0, 0, 0

    def offer(self, w, value, error):
        """Keep weights if they are better than those before.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        value, error : float
            Objective and training error there.
        """
        self.n_offers += 1
        self.since += 1
        for i, found in enumerate((value, value if error is None else error)):
            if found < self.lowest[i] - self.tol:
                self.lowest[i], self.since = found, 0
        if (value if error is None else error, value) < (self._lowest_error(), self.value):
            self.w, self.value, self.error, self.nit = w, value, error, self.n_offers

    def _lowest_error(self):
        return self.value if self.error is None else self.error

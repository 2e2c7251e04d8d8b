"""Progress of long runs."""

import time

# Seconds between two lines; shorter runs print nothing.
_SECONDS = 2.0


class Progress:
    """Printed lines about the progress of a run.

    Parameters
    ----------
    name : str
        Name of the estimator.
    verbose : int
        Nothing is printed below 2.
    """

    def __init__(self, name, verbose):
        self.name = name
        self.verbose = verbose

    def start(self, title, n_batches):
        """Start a run over `n_batches` batches."""
        self.title, self.n_batches = title, n_batches
        self.start_time = self.print_time = time.monotonic()

    def update(self, n_done):
        """Print a line if the last one is old enough and the run goes on."""
        now = time.monotonic()
        if self.verbose >= 2 and now - self.print_time >= _SECONDS and n_done < self.n_batches:
            self.print_time = now
            seconds = now - self.start_time
            print(  # noqa: T201
                f"[{self.name}] {self.title}: {n_done} of {self.n_batches} batches in {seconds:.0f} s",
                flush=True,
            )

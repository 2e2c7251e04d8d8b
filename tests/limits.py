"""Limits that have no parameter, and that some tests change so that small data reach them."""

LIMITS = {
    "sites per batch": "skcrf.data.batch._BATCH_SITES",
    "numbers to fit edge features": "skcrf.estimators.grid._FITTED_NUMBERS",
    "entries per chunk": "skcrf.losses.clique._ENTRIES_AT_A_TIME",
    "bytes of remembered evaluations": "skcrf.training.objective._REMEMBERED_BYTES",
    "seconds between prints": "skcrf.parallel.threads._SECONDS",
}


def set_limit(monkeypatch, name, value):
    """Change a limit until the end of a test."""
    monkeypatch.setattr(LIMITS[name], value)

"""Estimators."""

from skcrf.estimators.grid import GridCRFClassifier

__all__ = ["GridCRFClassifier"]

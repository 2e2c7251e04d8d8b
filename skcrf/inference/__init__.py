"""Inference methods, by name."""

from skcrf.inference._base import BaseInference, Beliefs

INFERENCE = {}

__all__ = ["INFERENCE", "BaseInference", "Beliefs"]

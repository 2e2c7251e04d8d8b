"""Inference on any pairwise graph."""

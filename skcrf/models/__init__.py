"""Models: from weights to potentials, and gradients back."""

from skcrf.models._families import ancestral_samples, conditionals, conditionals_vjp, families

__all__ = ["ancestral_samples", "conditionals", "conditionals_vjp", "families"]

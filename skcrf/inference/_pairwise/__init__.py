"""Message passing on any pairwise graph."""

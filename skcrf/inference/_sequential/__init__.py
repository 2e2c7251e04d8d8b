"""Sequential TRW on lattices, in strips of rows."""

"""Message passing and mean field on lattices, in tiles."""

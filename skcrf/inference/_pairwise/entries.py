"""Entries of tables, also of Potts tables.

Engines see Potts tables as arrays of shape (n_tables, 2, 1), so that kernels are compiled for one kind of
array: theta of unequal states, then of equal ones.
"""

from skcrf._numerics import inlined_kernel
from skcrf.graph import is_potts


def with_entries(theta):
    """Reshape Potts tables for engines; other tables stay as they are."""
    return theta._replace(tables=theta.tables[:, :, None]) if is_potts(theta.tables) else theta


def without_entries(theta):
    """Undo `with_entries`."""
    return theta._replace(tables=theta.tables[:, :, 0]) if theta.tables.shape[1:] == (2, 1) else theta


@inlined_kernel
def has_two_entries(tables):
    """Return whether tables are Potts tables for engines."""
    return tables.shape[1] != tables.shape[2]


@inlined_kernel
def entry(tables, table, x, z):
    """Look up the entry of a table for a pair of states."""
    if tables.shape[1] != tables.shape[2]:
        return tables[table, 1 if x == z else 0, 0]
    return tables[table, x, z]


@inlined_kernel
def add_to_entry(tables, table, x, z, value):
    """Add to the entry of a table for a pair of states."""
    if tables.shape[1] != tables.shape[2]:
        tables[table, 1 if x == z else 0, 0] += value
    else:
        tables[table, x, z] += value

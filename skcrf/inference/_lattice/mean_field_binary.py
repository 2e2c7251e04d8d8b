"""Mean field of two labels on lattices: one number per site instead of two.

The probability p of label 1 depends only on the difference of the two energies. A table t adds to the
difference of the first end t(1, 0) - t(0, 0) + d p, where p is that of the second end and d is
t(1, 1) - t(1, 0) - t(0, 1) + t(0, 0), and to that of the second end likewise. The constants become part of
the difference of the unary potentials, so that d is all that is left of a table.

The array holds the probability of the less likely label, -(1 - p) if that is label 0: none of its digits
are lost. It is never 0 except where there is no site, so that its sign is known.
"""

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel
from skcrf.inference._lattice.mean_field_layout import BINARY

# Stands for the probability of a forbidden label; all others are larger.
_TINY = 1e-290


@inlined_kernel
def probability(value, kind):
    """Compute the probability of label 1 from what is stored; of a label, it is what is stored."""
    if kind is BINARY:
        return value + 1.0 if value < 0 else value
    return value


@inlined_kernel
def signed_logistic(energy):
    """Compute what is stored of the probability that belongs to a difference of energies."""
    e = vector_exp(-abs(energy))
    smaller = max(e / (1.0 + e), _TINY)
    return smaller if energy < 0 else -smaller


@vector_kernel
def logistic(values):
    """Replace differences of energies by what is stored of probabilities."""
    for i in range(len(values)):
        values[i] = signed_logistic(values[i])


@vector_kernel
def logistic_vjp(values, d_values, d_energies):
    """Pull the adjoint of probabilities back to energies."""
    for i in range(len(values)):
        smaller = abs(values[i])
        d_energies[i] = smaller * (1.0 - smaller) * d_values[i]


@kernel
def encode(mu, values):
    """Compute what is stored of probabilities (n_nodes, 2)."""
    for node in range(len(mu)):
        p, q = mu[node, 1], mu[node, 0]
        values[node, 0] = max(p, _TINY) if p < 0.5 else -max(q, _TINY)


@kernel
def decode(values, mu):
    """Compute the probabilities (n_nodes, 2) of what is stored."""
    for node in range(len(mu)):
        value = values[node, 0]
        smaller = abs(value) if abs(value) > _TINY else 0.0
        mu[node, 0] = smaller if value < 0 else 1.0 - smaller
        mu[node, 1] = 1.0 - smaller if value < 0 else smaller


@kernel
def differences(nodes, out):
    """Subtract the numbers of label 0 from those of label 1."""
    for node in range(len(nodes)):
        out[node, 0] = nodes[node, 1] - nodes[node, 0]


@kernel
def move_constants(graph, tables, unary):
    """Add the constants of all tables to the differences of unary potentials (n_nodes, 1)."""
    for edge in range(len(graph.edges)):
        table = tables[graph.edge_table[edge]]
        unary[graph.edges[edge, 0], 0] += table[1, 0] - table[0, 0]
        unary[graph.edges[edge, 1], 0] += table[0, 1] - table[0, 0]


def couplings(tables):
    """Compute d of each table, shape (n_tables, 1, 1)."""
    return (tables[:, 1:, 1:] - tables[:, 1:, :1]) - (tables[:, :1, 1:] - tables[:, :1, :1])


@kernel
def differences_vjp(graph, d_differences, d_couplings, d_unary, d_tables):
    """Pull the adjoints of differences and of d, (n_tables, 1, 1), back to the potentials."""
    for node in range(len(d_unary)):
        d_unary[node, 1] += d_differences[node, 0]
        d_unary[node, 0] -= d_differences[node, 0]
    edge = 0
    while edge < len(graph.edges):
        table, d_first, d_second = graph.edge_table[edge], 0.0, 0.0
        while edge < len(graph.edges) and graph.edge_table[edge] == table:
            d_first += d_differences[graph.edges[edge, 0], 0]
            d_second += d_differences[graph.edges[edge, 1], 0]
            edge += 1
        d_tables[table, 0, 0] -= d_first + d_second
        d_tables[table, 1, 0] += d_first
        d_tables[table, 0, 1] += d_second
    for table in range(len(d_tables)):
        d = d_couplings[table, 0, 0]
        d_tables[table, 0, 0] += d
        d_tables[table, 1, 0] -= d
        d_tables[table, 0, 1] -= d
        d_tables[table, 1, 1] += d

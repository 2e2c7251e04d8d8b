"""Products of Potts tables and messages, in as many steps as there are labels.

A table is two vectors of lanes, exp(theta / rho) of unequal and then of equal labels. A product sums over all
labels but the receiver's own; these sums come from those before and behind it, as a difference of large sums
would lose digits.
"""

from skcrf._numerics import vector_kernel
from skcrf.inference._lattice.vector import at_least, lanes_of, load, store, width_of, zeros_like


@vector_kernel
def multiply_potts(table, n, c, out, total):
    """Multiply the table by c; adds the sum over labels to `total`."""
    lanes, width = lanes_of(c), width_of(c)
    for half in range(0, lanes, width):
        unequal, equal = load(table.place, table.unequal + half), load(table.place, table.equal + half)
        before = behind = zeros_like(unequal)
        for i in range((n - 1) * lanes + half, -1, -lanes):
            store(behind, out, i)
            behind = behind + load(c, i)
        sums = load(total, half)
        for i in range(half, n * lanes, lanes):
            own = load(c, i)
            product = unequal * (before + load(out, i)) + equal * own
            before, sums = before + own, sums + product
            store(product, out, i)
        store(sums, total, half)


@vector_kernel
def maximise_potts(table, n, c, out, total):
    """Maximise instead of summing; adds the sum over labels to `total`."""
    lanes, width = lanes_of(c), width_of(c)
    for half in range(0, lanes, width):
        unequal, equal = load(table.place, table.unequal + half), load(table.place, table.equal + half)
        before = behind = zeros_like(unequal)
        for i in range((n - 1) * lanes + half, -1, -lanes):
            store(behind, out, i)
            behind = at_least(load(c, i), behind)
        sums = load(total, half)
        for i in range(half, n * lanes, lanes):
            own = load(c, i)
            best = at_least(equal * own, unequal * at_least(load(out, i), before))
            before, sums = at_least(own, before), sums + best
            store(best, out, i)
        store(sums, total, half)


@vector_kernel
def add_to_potts(table, n, c, d_sum, d_table):
    """Add the products of cavities and of adjoints of products to the adjoint of the table."""
    lanes, width = lanes_of(c), width_of(c)
    for half in range(0, lanes, width):
        d_unequal = load(d_table, table.unequal + half)
        d_equal = load(d_table, table.equal + half)
        before = behind = zeros_like(d_equal)
        for i in range(half, n * lanes, lanes):
            own, d = load(c, i), load(d_sum, i)
            d_unequal, d_equal = d_unequal + d * before, d_equal + d * own
            before = before + own
        for i in range((n - 1) * lanes + half, -1, -lanes):
            d_unequal, behind = d_unequal + load(d_sum, i) * behind, behind + load(c, i)
        store(d_unequal, d_table, table.unequal + half)
        store(d_equal, d_table, table.equal + half)


# Marginals


@vector_kernel
def expect_pairs(table, first, second, pairs):
    """Compute the probabilities of unequal and of equal labels from the cavities of both ends, per lane.

    Leaves them in the first two rows of `pairs`, which has four.
    """
    n_labels, lanes = first.shape
    for lane in range(lanes):
        pairs[0, lane] = pairs[1, lane] = pairs[2, lane] = pairs[3, lane] = 0.0
    for x in range(n_labels):
        for lane in range(lanes):
            pairs[0, lane] += first[x, lane] * pairs[2, lane]
            pairs[1, lane] += first[x, lane] * second[x, lane]
            pairs[2, lane] += second[x, lane]
    for x in range(n_labels - 1, -1, -1):
        for lane in range(lanes):
            pairs[0, lane] += first[x, lane] * pairs[3, lane]
            pairs[3, lane] += second[x, lane]
    for lane in range(lanes):
        unequal, equal = table[0, lane] * pairs[0, lane], table[1, lane] * pairs[1, lane]
        pairs[0, lane] = unequal / (unequal + equal)
        pairs[1, lane] = equal / (unequal + equal)


@vector_kernel
def add_pairs(pairs, out):
    """Add both probabilities to the table of the edges."""
    for x in range(2):
        for lane in range(out.shape[1]):
            out[x, lane] += pairs[x, lane]

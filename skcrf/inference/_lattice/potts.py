"""Messages along edges with Potts tables, in as many steps as there are labels: D13 Eq 18.

A table is two vectors of lanes, exp(theta / rho) of unequal and then of equal labels. A message sums over all
labels but the receiver's own; these sums come from those before and behind it, as a difference of large sums
would lose digits. The forms of arrays, and of their adjoints, are those of `message`.
"""

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.message import MAX, TINY, message_cavities, normalise, store_both
from skcrf.inference._lattice.vector import LANES, WIDTH, at_least, load, store, zeros_like


@kernel
def send_potts(table, mode, site, at, rho, work, to):
    """Compute normalised messages from the sites at one place to another."""
    message_cavities(site, at, rho, work)
    if mode == MAX:
        _best(table, work, site.f, to)
    else:
        _sums(table, work, site.f, to)
    normalise(site.f, to, work.size // LANES)


@vector_kernel
def _sums(table, work, out, to):
    unequal, equal = load(table.place, table.start), load(table.place, table.start + LANES)
    unequal_high = load(table.place, table.start + WIDTH)
    equal_high = load(table.place, table.start + LANES + WIDTH)
    low = high = zeros_like(unequal)
    for i in range(work.size - LANES, -1, -LANES):
        store_both(low, high, out, to + i)
        low, high = low + load(work.c, i), high + load(work.c, i + WIDTH)
    low = high = zeros_like(unequal)
    for i in range(0, work.size, LANES):
        c, c_high = load(work.c, i), load(work.c, i + WIDTH)
        others, others_high = low + load(out, to + i), high + load(out, to + i + WIDTH)
        low, high = low + c, high + c_high
        store_both(
            unequal * others + equal * c, unequal_high * others_high + equal_high * c_high, out, to + i
        )


@vector_kernel
def _best(table, work, out, to):
    """Maximise instead of summing."""
    for half in range(0, LANES, WIDTH):
        unequal = load(table.place, table.start + half)
        equal = load(table.place, table.start + LANES + half)
        best = zeros_like(unequal)
        for i in range(work.size - LANES + half, -1, -LANES):
            store(best, out, to + i)
            best = at_least(load(work.c, i), best)
        best = zeros_like(unequal)
        for i in range(half, work.size, LANES):
            c, others = load(work.c, i), at_least(load(out, to + i), best)
            best = at_least(c, best)
            store(at_least(equal * c, unequal * others), out, to + i)


@kernel
def send_potts_vjp(table, site, at, rho, d_message, to, work, d_table):
    """Compute the adjoints of cavities from those of messages; adds to those of the table."""
    message_cavities(site, at, rho, work)
    _sums_vjp(table, site.f, d_message, to, work, d_table)


@vector_kernel
def _sums_vjp(table, message, d_message, to, work, d_table):
    n = work.size // LANES
    for half in range(0, LANES, WIDTH):
        unequal = load(table.place, table.start + half)
        equal = load(table.place, table.start + LANES + half)
        total = d_total = behind = before = d_unequal = d_equal = zeros_like(unequal)
        for i in range(half, work.size, LANES):
            total, d_total = total + load(work.c, i), d_total + load(d_message, to + i)
        scale = 1.0 / (((n - 1.0) * unequal + equal) * total)  # one over the sum of the message
        for i in range(work.size - LANES + half, -1, -LANES):
            d_sum = load(d_message, to + i) / at_least(load(message, to + i), TINY) - d_total
            store(d_sum * scale, work.d_sum, i)
            store(behind, work.d_c, i)
            behind = behind + d_sum * scale
        for i in range(half, work.size, LANES):
            c, d_sum, others = load(work.c, i), load(work.d_sum, i), before + load(work.d_c, i)
            before = before + d_sum
            store(c * (unequal * others + equal * d_sum), work.d_c, i)
            d_unequal, d_equal = d_unequal + c * others, d_equal + c * d_sum
        at = table.start + half
        store(load(d_table, at) + d_unequal, d_table, at)
        store(load(d_table, at + LANES) + d_equal, d_table, at + LANES)


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

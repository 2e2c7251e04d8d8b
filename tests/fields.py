"""Small random fields: graphs, and random potentials and labels for them."""

import numpy as np
from numba import config
from reference import best_configurations, is_forest, links, table_of

from skcrf.graph import FactorGraph, Potentials, chain, from_edges, from_factors, isolated, lattice, pack

#: Graphs of one example, small enough for enumeration.
SINGLES = {
    "single": from_edges(1, []),
    "no_edges": from_edges(3, []),
    "pair": from_edges(2, [(0, 1)]),
    "pair_reversed": from_edges(2, [(1, 0)]),
    "chain": chain(4),
    "chain_untied": chain(4, tied=False),
    "chain_shuffled": from_edges(5, [(3, 0), (4, 2), (0, 4), (2, 1)]),
    "star": from_edges(5, [(0, 1), (2, 0), (0, 3), (4, 0)]),
    "star_tied": from_edges(4, [(3, 0), (3, 1), (3, 2)], tied=True),
    "tree": from_edges(6, [(5, 0), (0, 3), (3, 1), (3, 4), (2, 5)]),
    "forest": from_edges(6, [(1, 4), (3, 0), (3, 5)]),
    "lonely": from_edges(4, [(2, 0), (2, 3)]),
    "cycle": from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "cycle_tied": from_edges(3, [(0, 1), (1, 2), (2, 0)], tied=True),
    "bridge": from_edges(5, [(1, 0), (1, 2), (0, 2), (2, 4), (4, 3)]),
    "lonely_cycle": from_edges(5, [(4, 2), (2, 1), (1, 4)]),
    "parallel": from_edges(3, [(0, 1), (1, 0), (1, 2)]),
    "complete": from_edges(4, [(0, 1), (0, 2), (3, 0), (1, 2), (3, 1), (2, 3)]),
    "lattice_1x1": lattice(1, 1),
    "lattice_1x4": lattice(1, 4),
    "lattice_4x1": lattice(4, 1, tied=False),
    "lattice_2x2": lattice(2, 2),
    "lattice_2x3": lattice(2, 3),
    "lattice_3x2_untied": lattice(3, 2, tied=False),
    "lattice_2x2_diagonal": lattice(2, 2, connectivity=8),
    "lattice_1x3_diagonal": lattice(1, 3, connectivity=8),
    "lattice_2x3_diagonal_untied": lattice(2, 3, connectivity=8, tied=False),
}

#: Graphs of several examples.
BATCHES = {
    "isolated": isolated(3),
    "chains": pack([chain(3), chain(1), chain(4)]),
    "lattices": pack([lattice(2, 2), lattice(1, 3), lattice(2, 3)]),
    "equal_lattices": pack([lattice(2, 2), lattice(2, 2)]),
    "lattices_untied": pack([lattice(2, 2, tied=False), lattice(3, 1, tied=False)]),
    "diagonal_lattices": pack([lattice(2, 2, connectivity=8), lattice(1, 2, connectivity=8)]),
    "small": pack([SINGLES["cycle_tied"], SINGLES["single"], SINGLES["pair_reversed"]]),
    "mixed": pack([SINGLES["single"], SINGLES["cycle"], SINGLES["lonely"], SINGLES["lattice_2x2"]]),
    "edgeless_inside": pack([SINGLES["chain"], SINGLES["no_edges"], SINGLES["cycle_tied"]]),
    "packed_twice": pack([pack([SINGLES["pair_reversed"], SINGLES["forest"]]), chain(2)]),
}

GRAPHS = SINGLES | BATCHES
#: One graph of each kind, for uncompiled kernels, which are about a hundred times slower.
_PLAIN = (
    *("single", "no_edges", "pair_reversed", "chain_untied", "star_tied", "lonely", "cycle_tied", "bridge"),
    *("parallel", "lattice_1x4", "lattice_2x2", "lattice_2x2_diagonal"),
    *("isolated", "lattices_untied", "small", "mixed", "packed_twice"),
)
#: The graphs for tests of claims about every graph.
EVERY = {name: GRAPHS[name] for name in _PLAIN} if config.DISABLE_JIT else GRAPHS
EVERY_SINGLE = {name: graph for name, graph in EVERY.items() if name in SINGLES}
EVERY_BATCH = {name: graph for name, graph in EVERY.items() if name in BATCHES}
FORESTS = {name: graph for name, graph in EVERY.items() if is_forest(graph)}
LOOPY = {name: graph for name, graph in EVERY.items() if name not in FORESTS}
EDGELESS = {name: graph for name, graph in EVERY.items() if graph.n_edges == 0}

#: Factor graphs of one example: all arities, different numbers of states, shared tables.
FACTOR_SINGLES = {
    "lonely_nodes": from_factors([2, 1, 3], []),
    "pair_of_two_and_three": from_factors([2, 3], [(1, 0)]),
    "single_and_none": from_factors([3, 2], [(0,), (), (0,)]),
    "triple": from_factors([2, 3, 2], [(2, 0, 1)]),
    "hypertree": from_factors([2, 3, 1, 2, 2, 3], [(0, 1, 2), (1, 3), (), (4, 3), (5,), (3,)]),
    "tied_chain": from_factors([2, 2, 2, 2], [(0, 1), (1, 2), (3, 2)], edge_table=[0, 0, 0]),
    "four_at_once": from_factors([2, 2, 2, 3], [(3, 1, 0, 2), (1,)]),
    "cycle_of_triples": from_factors([2, 2, 3, 2, 2], [(0, 1, 2), (2, 3), (4, 0, 3)]),
    "overlap": from_factors([2, 2, 2], [(0, 1, 2), (0, 1), (1, 2, 0)], edge_table=[0, 1, 0]),
    "markov_mesh": from_factors([2] * 6, [(0,), (0, 1), (1, 2), (0, 3), (3, 1, 4), (4, 2, 5)]),
    "four_and_pairs": from_factors([2, 1, 2, 2, 2], [(0, 1, 2, 3), (3, 4), (4, 0), (2, 4, 1)]),
}

#: Factor graphs of several examples.
FACTOR_PARTS = {
    "forests": [FACTOR_SINGLES[name] for name in ("triple", "lonely_nodes", "hypertree")],
    "everything": [FACTOR_SINGLES[name] for name in ("overlap", "single_and_none", "cycle_of_triples")],
}
FACTORS = FACTOR_SINGLES | {name: pack(graphs) for name, graphs in FACTOR_PARTS.items()}
_PLAIN_FACTORS = ("single_and_none", "hypertree", "four_at_once", "everything")
EVERY_FACTOR = {name: FACTORS[name] for name in _PLAIN_FACTORS} if config.DISABLE_JIT else FACTORS

#: All graphs of both layouts, and those for tests of claims about every graph.
ALL = GRAPHS | FACTORS
ANY = EVERY | EVERY_FACTOR

#: A few graphs with all properties between them, for slow tests.
FEW = {
    name: GRAPHS[name]
    for name in (
        *("single", "lonely", "star_tied", "lattice_2x2_diagonal", "mixed"),
        *(() if config.DISABLE_JIT else ("complete", "lattice_2x3")),
    )
}


def shapes(graph, n_states):
    """Compute the shapes of unary potentials and tables; `n_states` is ignored for factor graphs."""
    if isinstance(graph, FactorGraph):
        return (graph.n_nodes, int(graph.cards.max())), (int(graph.entry_ptr[-1]),)
    return (graph.n_nodes, n_states), (graph.n_tables, n_states, n_states)


def padded(graph, theta):
    """Set states beyond the cardinality of a node to -inf."""
    if isinstance(graph, FactorGraph):
        missing = np.arange(theta.unary.shape[1]) >= graph.cards[:, None]
        return theta._replace(unary=np.where(missing, -np.inf, theta.unary))
    return theta


def normal(graph, n_states, rng, *, strength=1.0):
    """Draw normal potentials; `strength` is the standard deviation of the tables."""
    unary, tables = shapes(graph, n_states)
    return padded(graph, Potentials(rng.normal(size=unary), strength * rng.normal(size=tables)))


def attractive(graph, n_states, rng, *, strength=1.0):
    """Draw attractive potentials."""
    theta = normal(graph, n_states, rng, strength=0.1 * strength)
    if isinstance(graph, FactorGraph):
        for table in {graph.edge_table[e]: table_of(graph, theta, e) for e in range(graph.n_edges)}.values():
            for x in range(min(table.shape, default=0)):
                table[(x,) * table.ndim] += strength
        return theta
    return theta._replace(tables=theta.tables + strength * np.eye(n_states))


def forbidden(graph, n_states, rng, *, strength=1.0, share=0.4):
    """Draw potentials with a share of -inf such that at least one configuration is possible."""
    theta = normal(graph, n_states, rng, strength=strength)
    x = rng.integers(getattr(graph, "cards", n_states), size=graph.n_nodes)
    unary_off = rng.random(theta.unary.shape) < share
    unary_off[np.arange(graph.n_nodes), x] = False
    tables_off = rng.random(theta.tables.shape) < share
    for e, scope in enumerate(links(graph)[0]):
        table_of(graph, Potentials(theta.unary, tables_off), e)[tuple(x[i] for i in scope)] = False
    return Potentials(
        unary=np.where(unary_off, -np.inf, theta.unary),
        tables=np.where(tables_off, -np.inf, theta.tables),
    )


def forbidden_unary(graph, n_states, rng, *, strength=1.0):
    """Draw potentials with -inf in the unary potentials only."""
    theta = normal(graph, n_states, rng, strength=strength)
    return theta._replace(unary=forbidden(graph, n_states, rng).unary)


def extreme(graph, n_states, rng, *, size=1e4):
    """Draw potentials of the largest size that is supported."""
    unary, tables = shapes(graph, n_states)
    drawn = Potentials(*(size * rng.uniform(-1, 1, size=shape) for shape in (unary, tables)))
    return padded(graph, drawn)


def constant(graph, n_states, rng):
    """Make potentials that are zero."""
    return padded(graph, Potentials(*(np.zeros(shape) for shape in shapes(graph, n_states))))


#: name -> function(graph, n_states, rng) for potentials of moderate range, or with forbidden states.
POTENTIALS = {"normal": normal, "attractive": attractive, "forbidden": forbidden, "constant": constant}


def labels(graph, n_states, rng, *, hidden=0.0):
    """Draw labels, a share of them hidden (-1)."""
    y = rng.integers(getattr(graph, "cards", n_states), size=graph.n_nodes)
    return np.where(rng.random(graph.n_nodes) < hidden, -1, y)


def possible_labels(graph, theta, rng, *, hidden=0.0):
    """Choose labels of positive probability, a share of them hidden (-1)."""
    y = np.concatenate([sorted(best)[0] for best in best_configurations(graph, theta)])
    return np.where(rng.random(graph.n_nodes) < hidden, -1, y)


def with_states(graphs, *counts):
    """List title, graph and number of states, for each of the counts unless the graph has its own."""
    return [
        (title, graph, n_states)
        for title, graph in graphs.items()
        for n_states in ([int(graph.cards.max())] if isinstance(graph, FactorGraph) else counts)
    ]


def split(graph, theta):
    """Split a batch into examples, the inverse of `pack`; returns a list of (graph, theta)."""
    if isinstance(graph, FactorGraph):
        parts = next(parts for name, parts in FACTOR_PARTS.items() if FACTORS[name] is graph)
        starts = [np.cumsum([part.sizes[of] for part in parts])[:-1] for of in ("node", "entry")]
        thetas = zip(*(np.split(*each) for each in zip(theta, starts, strict=True)), strict=True)
        return [(part, Potentials(*one)) for part, one in zip(parts, thetas, strict=True)]
    examples = []
    for e in range(graph.n_examples):
        nodes = slice(graph.node_ptr[e], graph.node_ptr[e + 1])
        edges = slice(graph.edge_ptr[e], graph.edge_ptr[e + 1])
        tables = slice(graph.table_ptr[e], graph.table_ptr[e + 1])
        messages = slice(2 * edges.start, 2 * edges.stop)
        one = graph._replace(
            edges=graph.edges[edges] - nodes.start,
            node_ptr=graph.node_ptr[e : e + 2] - nodes.start,
            edge_ptr=graph.edge_ptr[e : e + 2] - edges.start,
            table_ptr=graph.table_ptr[e : e + 2] - tables.start,
            edge_table=graph.edge_table[edges] - tables.start,
            table_group=graph.table_group[tables],
            incident_ptr=graph.incident_ptr[nodes.start : nodes.stop + 1] - messages.start,
            incident=graph.incident[messages] - messages.start,
            schedule=graph.schedule[messages] - messages.start,
            node_order=graph.node_order[nodes] - nodes.start,
            shapes=graph.shapes[e : e + 1],
        )
        examples.append((one, Potentials(theta.unary[nodes].copy(), theta.tables[tables].copy())))
    return examples

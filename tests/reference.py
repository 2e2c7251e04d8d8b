"""Slow reference implementations, by enumeration and by definition.

Only the containers of the package are used here; everything is computed independently of it, by the formulas
of D13.
"""

from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from skcrf.graph import Potentials


class Part(NamedTuple):
    """One example, with nodes numbered from zero and one table per edge or factor, with one axis per node.

    Rows of `unary` may be longer than the number of states of a node.
    """

    unary: np.ndarray
    cards: list
    edges: np.ndarray | list
    tables: np.ndarray | list


def links(graph):
    """List the nodes of each edge or factor, and the edge and the place in it of each message."""
    if hasattr(graph, "edges"):
        scopes = [tuple(edge) for edge in graph.edges.tolist()]
    else:
        ends = zip(graph.scope_ptr[:-1], graph.scope_ptr[1:], strict=True)
        scopes = [tuple(graph.scope[first:last].tolist()) for first, last in ends]
    return scopes, [(e, s) for e, scope in enumerate(scopes) for s in range(len(scope))]


def cards_of(graph, theta):
    """List the number of states of each node."""
    return getattr(graph, "cards", np.full(len(theta.unary), theta.unary.shape[1])).tolist()


def table_of(graph, theta, e):
    """Look up the table of an edge or a factor, with one axis per node."""
    table = graph.edge_table[e]
    if hasattr(graph, "edges"):
        return theta.tables[table]
    shape = [graph.cards[i] for i in links(graph)[0][e]]
    return theta.tables[graph.entry_ptr[table] : graph.entry_ptr[table + 1]].reshape(shape)


def joint_of(graph, edge_mu, e):
    """Look up the marginal of an edge or a factor."""
    if hasattr(graph, "edges"):
        return edge_mu[e]
    shape = [graph.cards[i] for i in links(graph)[0][e]]
    return edge_mu[graph.belief_ptr[e] : graph.belief_ptr[e + 1]].reshape(shape)


def laid_out(graph, joints, n_states):
    """Bring the marginals of edges or factors to the layout of the package."""
    if hasattr(graph, "edges"):
        return np.array(joints, dtype=float).reshape(-1, n_states, n_states)
    return np.concatenate([np.zeros(0), *map(np.ravel, joints)])


def parts(graph, theta: Potentials):
    """List the examples of a batch."""
    found, scopes, cards = [], links(graph)[0], cards_of(graph, theta)
    for example in range(len(graph.node_ptr) - 1):
        first, last = graph.node_ptr[example], graph.node_ptr[example + 1]
        chosen = range(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        tables = [table_of(graph, theta, e) for e in chosen]
        edges = [tuple(i - first for i in scopes[e]) for e in chosen]
        if hasattr(graph, "edges"):
            k = theta.unary.shape[1]
            edges = np.array(edges, dtype=int).reshape(-1, 2)
            tables = np.array(tables, dtype=float).reshape(-1, k, k)
        found.append(Part(theta.unary[first:last], cards[first:last], edges, tables))
    return found


@cache
def all_configurations(cards):
    """List all configurations of nodes with the given cards, as an array (n_configurations, n_nodes)."""
    every = list(product(*(range(card) for card in cards)))
    return np.array(every, dtype=int).reshape(len(every), len(cards))


def configurations(part):
    """List all configurations of an example."""
    return all_configurations(tuple(part.cards))


def scores(part, x):
    """Compute theta . f(x) for each row of x."""
    total = np.zeros(len(x))
    for i, unary in enumerate(part.unary):
        total += unary[x[:, i]]
    for scope, table in zip(part.edges, part.tables, strict=True):
        total += table[tuple(x[:, i] for i in scope)]
    return total


def logsumexp(values):
    """Compute log(sum(exp(values))); at least one value must be finite."""
    top = np.max(values)
    return top + np.log(np.sum(np.exp(values - top)))


def log_z(graph, theta):
    """Compute the log-partition function of each example (D13 Eq 3)."""
    return np.array([logsumexp(scores(part, configurations(part))) for part in parts(graph, theta)])


def marginals(graph, theta):
    """Compute the marginals of nodes and of edges or factors, mu and edge_mu."""
    k = theta.unary.shape[1]
    mu, joints = [], []
    for part in parts(graph, theta):
        x = configurations(part)
        score = scores(part, x)
        p = np.exp(score - logsumexp(score))
        for i in range(len(part.unary)):
            mu.append([p[x[:, i] == a].sum() for a in range(k)])
        for scope, table in zip(part.edges, part.tables, strict=True):
            joint = np.zeros(table.shape)
            np.add.at(joint, tuple(x[:, i] for i in scope), p if len(scope) else p.sum())
            joints.append(joint)
    return np.array(mu), laid_out(graph, joints, k)


def marginal_map(graph, theta, maximised):
    """Compute the marginal MAP: the largest log-sum over the nodes that are not maximised.

    Returns the value of each example, and all maximisers as dicts from maximised nodes to states.
    """
    values, choices = [], []
    for example, part in enumerate(parts(graph, theta)):
        first = graph.node_ptr[example]
        own = [i for i in range(len(part.unary)) if maximised[first + i]]
        x = configurations(part)
        score = scores(part, x)
        found = {}
        for chosen in product(*(range(part.cards[i]) for i in own)):
            agree = (x[:, own] == chosen).all(axis=1) if own else np.ones(len(x), dtype=bool)
            if score[agree].max() > -np.inf:
                found[chosen] = logsumexp(score[agree])
        values.append(max(found.values()))
        best = [chosen for chosen, value in found.items() if value >= values[-1] - 1e-9]
        choices.append([dict(zip([first + i for i in own], chosen, strict=True)) for chosen in best])
    return np.array(values), choices


def max_score(graph, theta):
    """Compute the score of the best configuration of each example."""
    return np.array([scores(part, configurations(part)).max() for part in parts(graph, theta)])


def best_configurations(graph, theta, *, atol=1e-9):
    """List all configurations with the best score of each example."""
    best = []
    for part in parts(graph, theta):
        x = configurations(part)
        score = scores(part, x)
        best.append({tuple(row) for row in x[score >= score.max() - atol]})
    return best


def log_probability(graph, theta, y):
    """Compute log p(labels) of each example, with hidden labels (-1) summed out (D13 Eq 21)."""
    answers = []
    for example, part in enumerate(parts(graph, theta)):
        labels = y[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        x = configurations(part)
        agree = ((labels < 0) | (x == labels)).all(axis=1)
        score = scores(part, x)
        answers.append(logsumexp(score[agree]) - logsumexp(score))
    return np.array(answers)


def _xlogy(x, y):
    """Compute x log y with 0 log 0 = 0."""
    x, y = np.broadcast_arrays(x, y)
    return np.sum([a * np.log(b) for a, b in zip(x.ravel(), y.ravel(), strict=True) if a > 0])


def _dot(theta, mu):
    """Compute theta . mu, with 0 for forbidden states of probability zero."""
    return np.sum([t * m for t, m in zip(np.ravel(theta), np.ravel(mu), strict=True) if m > 0])


def _independent(rows):
    """Compute the outer product of node marginals."""
    joint = np.ones(())
    for row in rows:
        joint = np.multiply.outer(joint, row)
    return joint


def products(graph, mu):
    """Compute the marginals of edges or factors with independent nodes."""
    scopes = links(graph)[0]
    joints = [
        _independent([mu[i][: getattr(graph, "cards", [mu.shape[1]] * len(mu))[i]] for i in s])
        for s in scopes
    ]
    return laid_out(graph, joints, mu.shape[1])


def free_energy(graph, theta, mu, edge_mu, rho):
    """Compute theta . mu + H(mu) (D13 Eq 13, 16, 17) of each example; rho = 1 is the Bethe approximation.

    `rho` is a number, or one number per edge.
    """
    rho = np.broadcast_to(np.asarray(rho, dtype=float), len(graph.edge_table))
    answers = []
    for example, part in enumerate(parts(graph, theta)):
        m = mu[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        value = _dot(part.unary, m) - _xlogy(m, m)
        for local, (scope, table) in enumerate(zip(part.edges, part.tables, strict=True)):
            e = graph.edge_ptr[example] + local
            joint = joint_of(graph, edge_mu, e)
            apart = _independent([m[i][: part.cards[i]] for i in scope])
            information = _xlogy(joint, joint) - _xlogy(joint, apart)
            value += _dot(table, joint) - rho[e] * information
        answers.append(value)
    return np.array(answers)


def mean_field_objective(graph, theta, mu):
    """Compute theta . mu + H(mu) of a fully factorised mu (D13 Eq 10, 12) of each example."""
    answers = []
    for example, part in enumerate(parts(graph, theta)):
        m = mu[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        value = _dot(part.unary, m) - _xlogy(m, m)
        for scope, table in zip(part.edges, part.tables, strict=True):
            value += _dot(table, _independent([m[i][: part.cards[i]] for i in scope]))
        answers.append(value)
    return np.array(answers)


def trw(graph, theta, rho, n_iter, *, damping=0.0):
    """Run `n_iter` iterations of D13 Eq 18 from uniform messages; return mu, edge_mu and the messages.

    `damping` is the weight of the old message, in the log domain. Message (e, s) goes from edge e to its end
    edges[e, s]; its number in the schedule is 2 e + s.
    """
    k, cards, (scopes, numbered) = theta.unary.shape[1], cards_of(graph, theta), links(graph)
    rho = np.broadcast_to(np.asarray(rho, dtype=float), len(scopes))
    message = {(e, s): np.full(k, 1 / cards[scopes[e][s]]) for e, s in numbered}
    arriving = {i: [(e, s) for e, s in numbered if scopes[e][s] == i] for i in range(len(theta.unary))}

    def product_at(i):
        """Compute e^theta(x_i) prod_d m_d(x_i)^rho_d."""
        value = np.exp(theta.unary[i] - theta.unary[i].max())
        for e, s in arriving[i]:
            value = value * message[e, s] ** rho[e]
        return value

    def factor(e):
        table = table_of(graph, theta, e) / rho[e]
        return np.exp(table - table.max())

    def cavity(e, s):
        """Compute the product at an end of an edge, without the message of the edge."""
        own, i = message[e, s], scopes[e][s]
        return np.divide(product_at(i), own, out=np.zeros(k), where=own > 0)[: cards[i]]

    def joint(e, target=-1):
        """Multiply the table by the cavities of all ends but one."""
        rows = [cavity(e, s) if s != target else np.ones(cards[i]) for s, i in enumerate(scopes[e])]
        return factor(e) * _independent(rows)

    for _ in range(n_iter):
        for e, s in (numbered[number] for number in graph.schedule):
            new = joint(e, s).sum(axis=tuple(t for t in range(len(scopes[e])) if t != s))
            old = message[e, s][: len(new)]
            new = (new / new.sum()) ** (1 - damping) * old**damping
            message[e, s][: len(new)] = new / new.sum()

    mu = np.array([product_at(i) for i in range(len(graph.node_order))])
    joints = [joint(e) / joint(e).sum() for e in range(len(scopes))]
    return mu / mu.sum(axis=1, keepdims=True), laid_out(graph, joints, k), message


def trees_of(part, rho, later):
    """Divide the edges of an example into trees, each a pair of nodes and edges.

    A connected component of edges of weight 1 is a tree. The other edges form chains: `later` is the later
    end of each edge, and an edge is continued by one that starts there.
    """
    n_nodes, edges = len(part.unary), part.edges.tolist()
    whole = [e for e in range(len(edges)) if rho[e] == 1]
    trees = [] if not whole else [(sorted({i for e in whole for i in edges[e]}), whole)]
    waiting = {i: [] for i in range(n_nodes)}  # edges that start at a node
    for e in range(len(edges)):
        if e not in whole:
            waiting[sum(edges[e]) - later[e]].append(e)
    arrivals = {i: [e for e in range(len(edges)) if later[e] == i and e not in whole] for i in range(n_nodes)}
    starts = [e for i in range(n_nodes) for e in waiting[i][len(arrivals[i]) :]]
    following = {
        e: onward for i in range(n_nodes) for e, onward in zip(arrivals[i], waiting[i], strict=False)
    }
    for e in starts:
        chain = [e]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        trees.append((sorted({i for e in chain for i in edges[e]}), chain))
    return trees


def dual(graph, theta, rho, message, later):
    """Sum rho_T log Z(theta_T) over trees by enumeration, where messages distribute theta among the trees.

    `message` is the result of `trw`, `later` the later end of each edge. If the weights of the trees through
    a node sum to less than 1, the node itself is a tree of the remaining weight.
    """
    answers = []
    for example, part in enumerate(parts(graph, theta)):
        first, offset = graph.node_ptr[example], graph.edge_ptr[example]
        own = {(e - offset, s): m for (e, s), m in message.items() if 0 <= e - offset < len(part.edges)}
        weight = np.broadcast_to(np.asarray(rho, dtype=float), len(graph.edges))[offset:][: len(part.edges)]
        with np.errstate(divide="ignore"):
            logs = {key: np.log(m) for key, m in own.items()}
        b = part.unary.copy()
        for (e, s), m in logs.items():
            b[part.edges[e, s]] += weight[e] * m
        left, value = np.ones(len(b)), 0.0
        trees = trees_of(part, weight, later[offset:][: len(part.edges)] - first)
        assert sorted(e for _, chosen in trees for e in chosen) == list(range(len(part.edges)))
        for nodes, chosen in trees:
            rho_tree, place = weight[chosen[0]], {i: n for n, i in enumerate(nodes)}
            unary = b[nodes].copy()
            for e in chosen:
                for s in (0, 1):
                    # impossible states are impossible in every tree
                    m = logs[e, s]
                    unary[place[part.edges[e, s]]] -= np.where(m > -np.inf, m, 0.0)
            edges = np.array([[place[i] for i in part.edges[e]] for e in chosen])
            tree = Part(unary, [unary.shape[1]] * len(nodes), edges, part.tables[chosen] / rho_tree)
            value += rho_tree * logsumexp(scores(tree, configurations(tree)))
            left[nodes] -= rho_tree
        assert left.min() > -1e-12
        value += sum(weight * logsumexp(row) for weight, row in zip(left, b, strict=True) if weight > 1e-12)
        answers.append(value)
    return np.array(answers)


def mean_field(graph, theta, n_iter):
    """Run `n_iter` iterations of the update of D13 section 3.2 from uniform marginals; return mu.

    Nodes are visited in the order of the graph. Tables must be finite; marginals are uniform over the states
    that are not forbidden.
    """
    mu = np.isfinite(theta.unary) / np.isfinite(theta.unary).sum(axis=1, keepdims=True)
    scopes, cards = links(graph)[0], cards_of(graph, theta)
    for _ in range(n_iter):
        for i in graph.node_order:
            field = theta.unary[i].copy()
            for e, scope in enumerate(scopes):
                if i in scope:
                    s = scope.index(i)
                    rows = [np.ones(cards[j]) if j == i else mu[j][: cards[j]] for j in scope]
                    expected = table_of(graph, theta, e) * _independent(rows)
                    field[: cards[i]] += expected.sum(axis=tuple(t for t in range(len(scope)) if t != s))
            weight = np.exp(field - field.max())
            mu[i] = weight / weight.sum()
    return mu


def n_components(n_nodes, edges):
    """Count the connected components of a graph."""
    component = list(range(n_nodes))
    for i, j in edges:
        component = [component[j] if c == component[i] else c for c in component]
    return len(set(component))


def is_forest(graph):
    """Return whether no example of a batch has a cycle."""
    (scopes, numbered), n_nodes = links(graph), len(graph.node_order)
    joined = [(scopes[e][s], n_nodes + e) for e, s in numbered]
    size = n_nodes + len(scopes)
    return len(joined) == size - n_components(size, joined)


def tree_distribution_slack(part, rho):
    """Measure by how much rho violates the conditions of the spanning tree polytope; 0 for a valid one.

    rho are the edge appearance probabilities of a distribution over maximal spanning forests if and only if
    they are non-negative, sum to at most |S| - 1 in every set of nodes S, and to n_nodes - n_components in
    total (Edmonds).
    """
    n_nodes = len(part.unary)
    broken = [max(0.0, -value) for value in rho]
    for size in range(1, n_nodes + 1):
        for chosen in combinations(range(n_nodes), size):
            inside = sum(r for (i, j), r in zip(part.edges, rho, strict=True) if i in chosen and j in chosen)
            broken.append(max(0.0, inside - (size - 1)))
    broken.append(abs(sum(rho) - (n_nodes - n_components(n_nodes, part.edges))))
    return max(broken)

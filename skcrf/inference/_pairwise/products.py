"""Products of the messages to nodes, with all messages and without one, in the log domain.

Messages are numbered as in `Graph`. The loops use neither views nor fields of tuples, as those of sweeps.
"""

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise.hubs import (
    MAX_DIRECT,
    add_message,
    find_hubs,
    hub_cavity_vjp,
    hub_product,
    new_totals,
    shift_adjoint,
)


@kernel
def node_products(graph, theta, rho, messages):
    """Compute log e^theta(x_j) prod_d m_d(x_j)^rho_d for each node j."""
    products, incident, incident_ptr = theta.unary.copy(), graph.incident, graph.incident_ptr
    for node in range(len(products)):
        for p in range(incident_ptr[node], incident_ptr[node + 1]):
            message = incident[p]
            for x in range(products.shape[1]):
                value = messages[message, x]
                products[node, x] += rho[message >> 1] * value if value > -np.inf else value
    return products


@kernel
def node_products_vjp(graph, rho, d_products, d_messages, d_unary):
    """Add the derivatives of the products of nodes to those of messages and unary potentials."""
    incident, incident_ptr = graph.incident, graph.incident_ptr
    for node in range(len(d_products)):
        for x in range(d_products.shape[1]):
            d_unary[node, x] += d_products[node, x]
        for p in range(incident_ptr[node], incident_ptr[node + 1]):
            message = incident[p]
            for x in range(d_products.shape[1]):
                d_messages[message, x] += rho[message >> 1] * d_products[node, x]


@kernel
def cavities_of(graph, theta, rho, messages):
    """Compute log e^theta(x_j) prod_d m_d(x_j)^rho_d / m(x_j) for each message m, to node j."""
    unary, incident, incident_ptr = theta.unary, graph.incident, graph.incident_ptr
    cavities = np.empty_like(messages)
    for node in range(len(unary)):
        first, end = incident_ptr[node], incident_ptr[node + 1]
        if end - first > MAX_DIRECT:
            continue
        for q in range(first, end):
            own = incident[q]
            for x in range(unary.shape[1]):
                cavities[own, x] = unary[node, x]
            for p in range(first, end):
                message = incident[p]
                weight = rho[message >> 1] - (message == own)
                if weight != 0:
                    for x in range(unary.shape[1]):
                        value = messages[message, x]
                        # An impossible state stays impossible, also where the exponent rho - 1 is negative.
                        cavities[own, x] += weight * value if value > -np.inf else value
    _hub_cavities(graph, unary, rho, messages, cavities)
    return cavities


@kernel
def _hub_cavities(graph, unary, rho, messages, cavities):
    """Compute the cavities of hubs."""
    hubs = find_hubs(graph.incident_ptr)
    totals = new_totals(hubs, unary)
    for hub in range(len(totals)):
        node = hubs.node[hub]
        incident = graph.incident[graph.incident_ptr[node] : graph.incident_ptr[node + 1]]
        for message in incident:
            add_message(totals, hub, rho[message >> 1], messages, message)
        for own in incident:
            hub_product(totals, hub, rho[own >> 1], messages, own, cavities, own)


@kernel
def cavities_vjp(graph, rho, d_cavities, direct, d_messages, d_unary):
    """Add the derivatives of cavities to those of messages and unary potentials.

    `direct` is added to the derivatives of messages, in the order of edges; it may have no rows.
    """
    incident, incident_ptr = graph.incident, graph.incident_ptr
    for node in range(len(d_unary)):
        first, end = incident_ptr[node], incident_ptr[node + 1]
        if end - first > MAX_DIRECT:
            continue
        for q in range(first, end):
            own = incident[q]
            for x in range(d_unary.shape[1]):
                d_unary[node, x] += d_cavities[own, x]
                if len(direct) > 0:
                    d_messages[own, x] += direct[own, x]
            for p in range(first, end):
                message = incident[p]
                weight = rho[message >> 1] - (message == own)
                for x in range(d_unary.shape[1]):
                    d_messages[message, x] += weight * d_cavities[own, x]
    _hub_cavities_vjp(graph, rho, d_cavities, direct, d_messages, d_unary)


@kernel
def _hub_cavities_vjp(graph, rho, d_cavities, direct, d_messages, d_unary):
    """Add the derivatives of the cavities of hubs."""
    hubs = find_hubs(graph.incident_ptr)
    d_totals = np.zeros((len(hubs.node), d_unary.shape[1]))
    for hub in range(len(d_totals)):
        node = hubs.node[hub]
        incident = graph.incident[graph.incident_ptr[node] : graph.incident_ptr[node + 1]]
        for own in incident:
            hub_cavity_vjp(d_totals, hub, own, d_cavities, own, d_messages)
            if len(direct) > 0:
                for x in range(d_totals.shape[1]):
                    d_messages[own, x] += direct[own, x]
        for message in incident:
            shift_adjoint(d_totals, hub, rho[message >> 1], d_messages, message)
        for x in range(d_totals.shape[1]):
            d_unary[node, x] += d_totals[hub, x]

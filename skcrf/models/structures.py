"""What graph an example has, which features its edges have, and whether the model is directed."""

from abc import ABC, abstractmethod

import numpy as np

from skcrf.graph import from_edges
from skcrf.models._families import families


class BaseStructure(ABC):
    """Says which graph and edge features an example has; all that other machines need to know of the model.

    It can be pickled, and has the attribute `n_edge_features`, the number of features of a table.
    """

    #: The layout of the graphs that inference sees.
    layout = "pairwise"

    @abstractmethod
    def graph(self, outline):
        """Make the graph of an example.

        Parameters
        ----------
        outline : hashable
            What the reader says of it.

        Returns
        -------
        graph : Graph
            The graph.
        """

    @abstractmethod
    def edge_values(self, graph, outline, X):
        """Compute the features of the tables of an example.

        Parameters
        ----------
        graph : Graph
            Its graph.
        outline : hashable
            What the reader says of it.
        X : ndarray or CSR matrix of shape (n_nodes, n_features)
            Features of its sites.

        Returns
        -------
        V : ndarray of shape (n_tables, n_edge_features)
            Features.
        """

    def factors(self, graph, outlines=None):
        """Make the factors that inference sees of a directed model.

        Parameters
        ----------
        graph : Graph
            The graph of a batch.
        outlines : list of hashable, default=None
            What the reader says of its examples; None for the rows of a table.

        Returns
        -------
        factors : FactorGraph or None
            The factors; None where the model is not directed, and inference sees the graph.
        """
        return None

    def hidden(self, outlines):
        """Tell which sites of a batch are hidden variables.

        Parameters
        ----------
        outlines : list of hashable
            What the reader says of its examples.

        Returns
        -------
        hidden : ndarray of shape (n_nodes,) or None
            Which are; None if none is.
        """
        return None


class DirectedStructure(BaseStructure):
    """A structure whose edges lead from parents to children.

    It has the attribute `n_states`, the number of classes.
    """

    layout = "factor"

    def factors(self, graph, outlines=None):
        return families(graph, self.n_states)


class Links(BaseStructure):
    """Says which graph and edge features an example has.

    Parameters
    ----------
    n_edge_features : int
        Number of features of an edge; 0 for none, so that all edges share one table.
    """

    def __init__(self, n_edge_features):
        self.tied = n_edge_features == 0
        self.n_edge_features = max(1, n_edge_features)

    def graph(self, outline):
        return from_edges(outline.n_nodes, outline.edges, tied=self.tied)

    def edge_values(self, graph, outline, X):
        if self.tied:
            return np.ones((graph.n_tables, 1))
        nothing = outline.edge_features is None  # as there is no edge
        return np.zeros((0, self.n_edge_features)) if nothing else outline.edge_features

    def hidden(self, outlines):
        if all(outline.hidden is None for outline in outlines):
            return None
        visible = (np.zeros(outline.n_nodes, dtype=bool) for outline in outlines)
        pairs = zip(outlines, visible, strict=True)
        return np.concatenate([none if outline.hidden is None else outline.hidden for outline, none in pairs])

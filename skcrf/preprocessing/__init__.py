"""Transformers of the pixels of images, the items of sequences and the nodes of graphs; features of edges."""

from skcrf.data import BaseEdgeFeatures, Contrast
from skcrf.preprocessing.edge_features import ContrastThresholds, EdgeUnion, SobelThresholds, make_edge_union
from skcrf.preprocessing.fourier import FourierFeatures
from skcrf.preprocessing.pixel_wise import PixelWise
from skcrf.preprocessing.site_wise import SiteWise

__all__ = [
    "BaseEdgeFeatures",
    "Contrast",
    "ContrastThresholds",
    "EdgeUnion",
    "FourierFeatures",
    "PixelWise",
    "SiteWise",
    "SobelThresholds",
    "make_edge_union",
]

"""Transformers of the pixels of images, the items of sequences and the nodes of graphs; features of edges."""

from skcrf.data import BaseEdgeFeatures, Contrast
from skcrf.preprocessing.downscale import DownscaledClassifier
from skcrf.preprocessing.edge_features import ContrastThresholds, EdgeUnion, SobelThresholds, make_edge_union
from skcrf.preprocessing.feature_stack import FeatureStack, make_feature_stack
from skcrf.preprocessing.filter_bank import FilterBank
from skcrf.preprocessing.fourier import FourierFeatures
from skcrf.preprocessing.hog import HOGFeatures
from skcrf.preprocessing.pixel_wise import PixelWise
from skcrf.preprocessing.positions import PixelPositions
from skcrf.preprocessing.probabilities import ProbabilityFeatures
from skcrf.preprocessing.site_wise import SiteWise

__all__ = [
    "BaseEdgeFeatures",
    "Contrast",
    "ContrastThresholds",
    "DownscaledClassifier",
    "EdgeUnion",
    "FeatureStack",
    "FilterBank",
    "FourierFeatures",
    "HOGFeatures",
    "PixelPositions",
    "PixelWise",
    "ProbabilityFeatures",
    "SiteWise",
    "SobelThresholds",
    "make_edge_union",
    "make_feature_stack",
]

"""Transformers of the pixels of images, the items of sequences and the nodes of graphs."""

from skcrf.preprocessing.fourier import FourierFeatures
from skcrf.preprocessing.pixel_wise import PixelWise
from skcrf.preprocessing.site_wise import SiteWise

__all__ = ["FourierFeatures", "PixelWise", "SiteWise"]

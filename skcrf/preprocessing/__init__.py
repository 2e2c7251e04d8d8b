"""Transformers of examples: what scikit-learn does to rows, done to pixels, items and nodes."""

from skcrf.preprocessing.fourier import FourierFeatures
from skcrf.preprocessing.wise import PixelWise, SiteWise

__all__ = ["FourierFeatures", "PixelWise", "SiteWise"]

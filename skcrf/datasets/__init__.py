"""Labelled images: generators, which every example, test and benchmark can use, and lazy loading."""

from skcrf.datasets.figures import make_binary_denoising, make_potts
from skcrf.datasets.lazy import LazyImages
from skcrf.datasets.snakes import make_snakes
from skcrf.datasets.textures import make_texture_defects

__all__ = ["LazyImages", "make_binary_denoising", "make_potts", "make_snakes", "make_texture_defects"]

"""Published photographs with labels, generators of labelled images, and lazy loading."""

from skcrf.datasets.denoising import make_binary_denoising
from skcrf.datasets.lazy_images import LazyImages
from skcrf.datasets.photographs import (
    fetch_bsds_binary,
    fetch_msrc,
    fetch_stanford_background,
    fetch_weizmann_horses,
)
from skcrf.datasets.potts import make_potts
from skcrf.datasets.snakes import make_snakes
from skcrf.datasets.textures import make_texture_defects

__all__ = [
    "LazyImages",
    "fetch_bsds_binary",
    "fetch_msrc",
    "fetch_stanford_background",
    "fetch_weizmann_horses",
    "make_binary_denoising",
    "make_potts",
    "make_snakes",
    "make_texture_defects",
]

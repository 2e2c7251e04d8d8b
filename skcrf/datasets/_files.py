"""Files of published data sets: finding, reading and checking them."""

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

#: Folder of the data sets if `data_home` is None.
DATA_HOME = "~/skcrf_data"


class Source(NamedTuple):
    """A data set: its folder below `data_home`, prepared file, original files, and where to get them."""

    title: str
    folder: str
    file: str
    originals: str
    how: str

    def find(self, data_home):
        """Return the folder of the data set, and the path of the prepared file or None.

        Parameters
        ----------
        data_home : path-like or None
            Folder that holds the data sets; None for `DATA_HOME`.
        """
        home = Path(DATA_HOME if data_home is None else data_home).expanduser()
        for folder in (home / self.folder, home):
            if (folder / self.file).is_file():
                return folder, folder / self.file
            if next(folder.glob(self.originals), None) is not None:
                return folder, None
        raise FileNotFoundError(
            f"data_home must be a folder with {self.folder}/{self.file} or {self.folder}/{self.originals}, "
            f"got {home} without them. {self.how} Nothing is downloaded."
        )


def read_prepared(path, labels, n_classes, extra=(), least=-1):
    """Read a prepared file of padded images.

    Parameters
    ----------
    path : Path
        File with arrays `images`, `labels` and, if sizes differ, `sizes`.
    labels : str or None
        Name of the array of labels; None if there is none.
    n_classes : int
        Number of classes; labels are `least` to n_classes - 1.
    extra : sequence of str
        Names of arrays with one row per image that are returned too.
    least : {-1, 0}
        Least label: -1 if labels may be hidden.

    Returns
    -------
    images : list of ndarray of shape (height, width) or (height, width, 3)
        Images, uint8.
    targets : list of ndarray of shape (height, width)
        Labels.
    extra : list of ndarray
        The other arrays.
    """
    with np.load(path) as file:
        wanted = ["images", *([labels] if labels else []), *extra]
        missing = [name for name in wanted if name not in file.files]
        if missing:
            raise ValueError(f"{path} must hold the arrays {wanted}, got none called {missing}.")
        images, found = file["images"], [file[name] for name in extra]
        targets = file[labels] if labels else None
        sizes = file["sizes"] if "sizes" in file.files else np.full((len(images), 2), images.shape[1:3])
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise ValueError(
            f"images in {path} must be grey or colour images of type uint8, got {images.dtype} of shape "
            f"{images.shape}."
        )
    for name, array in zip(["sizes", *extra], [sizes, *found], strict=True):
        if len(array) != len(images):
            raise ValueError(f"{name} in {path} must have {len(images)} rows, got {len(array)}.")
    if (sizes < 1).any() or (sizes > images.shape[1:3]).any():
        raise ValueError(f"sizes in {path} must be those of parts of images of shape {images.shape[1:3]}.")
    cut = [(slice(height), slice(width)) for height, width in sizes.tolist()]
    images_cut = [image[part] for image, part in zip(images, cut, strict=True)]
    if targets is None:
        return images_cut, None, found
    if targets.shape != images.shape[:3]:
        raise ValueError(f"{labels} in {path} must have shape {images.shape[:3]}, got {targets.shape}.")
    targets = [target[part] for target, part in zip(targets, cut, strict=True)]
    for i, target in enumerate(targets):
        check_labels(target, n_classes, f"{labels}[{i}] in {path}", least)
    return images_cut, targets, found


def check_labels(labels, n_classes, name, least=-1):
    """Raise an error unless labels are integers from -1 (hidden), or 0, to n_classes - 1."""
    if labels.dtype.kind not in "iu" or labels.min() < least or labels.max() >= n_classes:
        raise ValueError(
            f"{name} must hold integers from {least} to {n_classes - 1}, got {labels.dtype} from "
            f"{labels.min()} to {labels.max()}."
        )


def read_image(path):
    """Read an image file as an array of type uint8."""
    try:
        io = import_module("skimage.io")
    except ImportError as error:
        raise ImportError(
            "Reading image files requires scikit-image. Install it with `pip install skcrf[image]`."
        ) from error
    image = io.imread(path)
    if image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise ValueError(f"{path} must be an image of type uint8, got {image.dtype} of shape {image.shape}.")
    return image[:, :, :3] if image.ndim == 3 else image


def pair_files(folder, images, labels, stem):
    """Return pairs of an image file and a label file, sorted by name.

    Parameters
    ----------
    folder : Path
        Folder of the data set.
    images, labels : str
        Patterns of the files.
    stem : callable
        Returns the common part of both file names.

    Returns
    -------
    pairs : list of tuple of Path
        Files.
    """
    found = [{stem(path.name): path for path in folder.glob(pattern)} for pattern in (images, labels)]
    alone = sorted(found[0].keys() ^ found[1].keys())
    if alone:
        raise FileNotFoundError(
            f"{folder} must hold an image and a label file for each name, got one of them for {alone[:3]}."
        )
    return [(found[0][name], found[1][name]) for name in sorted(found[0])]


def resize_labels(labels, shape):
    """Resize labels to a shape by nearest neighbours."""
    rows, columns = [
        ((np.arange(new) + 0.5) * old / new).astype(np.int64)
        for old, new in zip(labels.shape[:2], shape, strict=True)
    ]
    return labels[np.ix_(rows, columns)]


def luma(image):
    """Return the luma of a colour image, rounded, of type uint8; grey images are returned as they are."""
    if image.ndim == 2:
        return image
    return np.round(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)

"""Published sets of labelled photographs, read from files that the user has."""

import warnings
from numbers import Real

import numpy as np
from sklearn.utils import Bunch, check_random_state, check_scalar

from skcrf.datasets._files import (
    Source,
    check_labels,
    luma,
    pair_files,
    read_image,
    read_prepared,
    resize_labels,
)
from skcrf.datasets.denoising import add_noise

_HORSES = Source(
    "Weizmann horses",
    "weizmann_horses",
    "horses.npz",
    "figure_ground/*.*",
    "Get weizmann_horse_db from the Weizmann Institute (E. Borenstein and S. Ullman, ECCV 2002): folders rgb "
    "and figure_ground with files such as horse001.jpg.",
)
_SCENES = Source(
    "Stanford background",
    "stanford_background",
    "stanford_background_half.npz",
    "labels/*.regions.txt",
    "Get iccv09Data from the Stanford background data set (S. Gould, R. Fulton and D. Koller, ICCV 2009): "
    "folders images and labels.",
)
_BERKELEY = Source(
    "Berkeley segmentation",
    "bsds",
    "bsds_train200_gray_200x300.npz",
    "**/train/*.jpg",
    "Get BSDS300 or BSDS500 from the Berkeley segmentation data set (D. Martin et al., ICCV 2001): the "
    "folder images/train with 200 files.",
)
_CAMBRIDGE = Source(
    "MSRC",
    "msrc",
    "msrc9_120_half.npz",
    "**/*_GT.bmp",
    "Get the pixel-wise labelled images of Microsoft Research Cambridge (J. Winn, A. Criminisi and T. Minka, "
    "ICCV 2005): files such as 1_1_s.bmp and 1_1_s_GT.bmp.",
)

_SCENE_CLASSES = ["sky", "tree", "road", "grass", "water", "building", "mountain", "foreground"]
#: Colours of the 23 classes of MSRC in its label images; black and other colours are void.
_MSRC_COLOURS = {
    "building": (128, 0, 0),
    "grass": (0, 128, 0),
    "tree": (128, 128, 0),
    "cow": (0, 0, 128),
    "horse": (128, 0, 128),
    "sheep": (0, 128, 128),
    "sky": (128, 128, 128),
    "mountain": (64, 0, 0),
    "aeroplane": (192, 0, 0),
    "water": (64, 128, 0),
    "face": (192, 128, 0),
    "car": (64, 0, 128),
    "bicycle": (192, 0, 128),
    "flower": (64, 128, 128),
    "sign": (192, 128, 128),
    "bird": (0, 64, 0),
    "book": (128, 64, 0),
    "chair": (0, 192, 0),
    "road": (128, 64, 128),
    "cat": (0, 192, 128),
    "dog": (128, 192, 128),
    "body": (64, 64, 0),
    "boat": (192, 64, 0),
}
_MSRC_CLASSES = {
    9: ["building", "grass", "tree", "cow", "sky", "aeroplane", "face", "car", "bicycle"],
    23: list(_MSRC_COLOURS),
}


def fetch_weizmann_horses(*, data_home=None, return_X_y=False):
    """Load the Weizmann horses: 328 photographs with horses as foreground.

    Nothing is downloaded: the folder ``weizmann_horses`` in `data_home` must hold the original folders
    ``rgb`` and ``figure_ground``, whose files require scikit-image, or a prepared file ``horses.npz``.

    Parameters
    ----------
    data_home : path-like, default=None
        Folder of the data sets; None for ``~/skcrf_data``.
    return_X_y : bool, default=False
        Whether to return images and labels only.

    Returns
    -------
    data : Bunch
        Data set with the following items.

        images : list of ndarray of shape (height, width, 3)
            Photographs, float32 in [0, 1].
        target : list of ndarray of shape (height, width)
            0 for the background, 1 for the horse, int8.
        target_names : list of str
            Names of the classes.
        train, test : ndarray of int
            Positions of 200 and 128 images, drawn here as D13 names no split.
        DESCR : str
            Description.
    (images, target) : tuple
        If `return_X_y`.

    Examples
    --------
    >>> from skcrf.datasets import fetch_weizmann_horses
    >>> horses = fetch_weizmann_horses()  # doctest: +SKIP
    >>> X_train = [horses.images[i] for i in horses.train]  # doctest: +SKIP
    """
    folder, prepared = _HORSES.find(data_home)
    if prepared is not None:
        images, target, _ = read_prepared(prepared, "labels", 2, least=0)
    else:
        images, target = [], []
        for image, mask in pair_files(folder, "rgb/*.*", "figure_ground/*.*", _before_dot):
            images.append(read_image(image))
            horse = luma(read_image(mask)) > 127
            target.append(resize_labels(horse.astype(np.int8), images[-1].shape[:2]))
    _check_number(images, 328, _HORSES)
    order = np.random.RandomState(0).permutation(len(images))
    n_train = round(len(images) * 200 / 328)
    return _bunch(
        _HORSES,
        images,
        target,
        return_X_y,
        target_names=["background", "horse"],
        train=np.sort(order[:n_train]),
        test=np.sort(order[n_train:]),
    )


def fetch_stanford_background(*, data_home=None, return_X_y=False):
    """Load the Stanford background data: 715 scenes with eight classes and some unknown pixels.

    Nothing is downloaded: the folder ``stanford_background`` in `data_home` must hold the original folders
    ``images`` and ``labels``, whose files require scikit-image, or a prepared file
    ``stanford_background_half.npz``, at half resolution.

    Parameters
    ----------
    data_home : path-like, default=None
        Folder of the data sets; None for ``~/skcrf_data``.
    return_X_y : bool, default=False
        Whether to return images and labels only.

    Returns
    -------
    data : Bunch
        Data set with the following items.

        images : list of ndarray of shape (height, width, 3)
            Photographs, float32 in [0, 1].
        target : list of MaskedArray of shape (height, width)
            Classes 0 to 7, int8, masked where unknown.
        target_names : list of str
            Names of the classes.
        fold : ndarray of int
            Fold of each image, 1 to 5: that of the prepared file, else drawn here.
        DESCR : str
            Description.
    (images, target) : tuple
        If `return_X_y`.

    Examples
    --------
    >>> from skcrf.datasets import fetch_stanford_background
    >>> scenes = fetch_stanford_background()  # doctest: +SKIP
    >>> X_test = [x for x, fold in zip(scenes.images, scenes.fold) if fold == 5]  # doctest: +SKIP
    """
    folder, prepared = _SCENES.find(data_home)
    if prepared is not None:
        images, target, (fold,) = read_prepared(prepared, "labels", 8, ["fold"])
        fold = fold.astype(np.int64)
    else:
        images, target = [], []
        for image, regions in pair_files(folder, "images/*.jpg", "labels/*.regions.txt", _before_dot):
            images.append(read_image(image))
            labels = np.maximum(np.loadtxt(regions, dtype=np.int64, ndmin=2), -1)
            check_labels(labels, 8, str(regions))
            if labels.shape != images[-1].shape[:2]:
                raise ValueError(
                    f"{regions} must have the shape of its image, {images[-1].shape[:2]}, got {labels.shape}."
                )
            target.append(labels.astype(np.int8))
        fold = np.empty(len(images), dtype=np.int64)
        fold[np.random.RandomState(0).permutation(len(images))] = np.arange(len(images)) % 5 + 1
    _check_number(images, 715, _SCENES)
    target = [np.ma.masked_equal(labels, -1) for labels in target]
    return _bunch(_SCENES, images, target, return_X_y, target_names=list(_SCENE_CLASSES), fold=fold)


def fetch_bsds_binary(*, data_home=None, noise=1.25, random_state=0, return_X_y=False):
    """Load binary images from the Berkeley segmentation data, with noise.

    The labels of the central 200 x 300 pixels of 200 photographs are 1 where the pixel is brighter than the
    mean, and the images are these labels with the noise of D13 section 8.2. Nothing is downloaded: the folder
    ``bsds`` in `data_home` must hold the original folder ``images/train``, whose files require scikit-image,
    or a prepared file ``bsds_train200_gray_200x300.npz``.

    Parameters
    ----------
    data_home : path-like, default=None
        Folder of the data sets; None for ``~/skcrf_data``.
    noise : float, default=1.25
        Noise level, as for `make_binary_denoising`.
    random_state : int, RandomState instance or None, default=0
        Seed of the noise.
    return_X_y : bool, default=False
        Whether to return images and labels only.

    Returns
    -------
    data : Bunch
        Data set with the following items.

        images : list of ndarray of shape (200, 300)
            Noisy images, float32 in [0, 1].
        target : list of ndarray of shape (200, 300)
            Labels, 0 or 1, int8.
        grey : list of ndarray of shape (200, 300)
            Photographs, uint8.
        target_names : list of str
            Names of the classes.
        train, test : ndarray of int
            Positions of 32 and 100 images, as many as in D13, drawn here.
        DESCR : str
            Description.
    (images, target) : tuple
        If `return_X_y`.

    Examples
    --------
    >>> from skcrf.datasets import fetch_bsds_binary
    >>> X, Y = fetch_bsds_binary(noise=1.5, return_X_y=True)  # doctest: +SKIP
    """
    check_scalar(noise, "noise", Real, min_val=1)
    folder, prepared = _BERKELEY.find(data_home)
    if prepared is not None:
        grey, *_ = read_prepared(prepared, None, 0)
    else:
        # Photographs are in the order of their numbers, as in the prepared file.
        paths = sorted(folder.glob(_BERKELEY.originals), key=lambda path: int(path.stem))
        grey = [_centre(luma(read_image(path)), path) for path in paths]
    _check_number(grey, 200, _BERKELEY)
    target = [(image > image.mean()).astype(np.int8) for image in grey]
    rng = check_random_state(random_state)
    order = np.random.RandomState(0).permutation(len(grey))
    return _bunch(
        _BERKELEY,
        [add_noise(labels, noise, rng).astype(np.float32) for labels in target],
        target,
        return_X_y,
        grey=grey,
        target_names=["dark", "bright"],
        train=np.sort(order[:32]),
        test=np.sort(order[32:132]),
    )


def fetch_msrc(*, data_home=None, n_classes=9, return_X_y=False):
    """Load photographs of Microsoft Research Cambridge with pixel-wise labels.

    Nothing is downloaded: the folder ``msrc`` in `data_home` must hold the original files, such as
    ``1_1_s.bmp`` and ``1_1_s_GT.bmp`` in any folders, which require scikit-image, or a prepared file
    ``msrc9_120_half.npz`` with 120 photographs at half resolution.

    Parameters
    ----------
    data_home : path-like, default=None
        Folder of the data sets; None for ``~/skcrf_data``.
    n_classes : {9, 23}, default=9
        Number of classes; pixels of others are hidden.
    return_X_y : bool, default=False
        Whether to return images and labels only.

    Returns
    -------
    data : Bunch
        Data set with the following items.

        images : list of ndarray of shape (height, width, 3)
            Photographs, float32 in [0, 1].
        target : list of MaskedArray of shape (height, width)
            Classes 0 to n_classes - 1, int8, masked where void: about a quarter of the pixels.
        target_names : list of str
            Names of the classes.
        fold : ndarray of int
            Fold of each image, 0 or 1, alternating; chosen here.
        DESCR : str
            Description.
    (images, target) : tuple
        If `return_X_y`.

    Examples
    --------
    >>> from skcrf.datasets import fetch_msrc
    >>> X, Y = fetch_msrc(return_X_y=True)  # doctest: +SKIP
    """
    if n_classes not in _MSRC_CLASSES:
        raise ValueError(f"n_classes must be one of {list(_MSRC_CLASSES)}, got {n_classes!r}.")
    names = _MSRC_CLASSES[n_classes]
    folder, prepared = _CAMBRIDGE.find(data_home)
    if prepared is not None:
        images, target, (fold,) = read_prepared(prepared, f"labels{n_classes}", n_classes, ["fold"])
        fold = fold.astype(np.int64)
    else:
        images, target = [], []
        for image, labels in pair_files(folder, "**/*_s.bmp", "**/*_GT.bmp", _without_suffix):
            images.append(read_image(image))
            target.append(_decode_colours(read_image(labels), names, labels))
        fold = np.arange(len(images)) % 2
    target = [np.ma.masked_equal(labels, -1) for labels in target]
    return _bunch(_CAMBRIDGE, images, target, return_X_y, target_names=list(names), fold=fold)


def _before_dot(name):
    return name.split(".")[0]


def _without_suffix(name):
    return _before_dot(name).removesuffix("_GT")


def _decode_colours(colours, names, path):
    """Return the classes of the colours of a label image, -1 where void."""
    if colours.ndim != 3:
        raise ValueError(f"{path} must be a colour image, got shape {colours.shape}.")
    labels = np.full(colours.shape[:2], -1, dtype=np.int8)
    for label, name in enumerate(names):
        labels[(colours == np.array(_MSRC_COLOURS[name])).all(axis=2)] = label
    return labels


def _centre(image, path, shape=(200, 300)):
    """Cut out the centre of an image."""
    top, left = [(size - wanted) // 2 for size, wanted in zip(image.shape, shape, strict=True)]
    if top < 0 or left < 0:
        raise ValueError(f"{path} must have at least {shape} pixels, got {image.shape}.")
    return image[top : top + shape[0], left : left + shape[1]]


def _check_number(images, expected, source):
    if len(images) != expected:
        warnings.warn(
            f"{source.title} has {expected} images, got {len(images)}: some files are missing.", stacklevel=3
        )


def _bunch(source, images, target, return_X_y, **items):
    """Return a Bunch, or images and labels, after a check that they have the same sizes."""
    for i, (image, labels) in enumerate(zip(images, target, strict=True)):
        if image.shape[:2] != labels.shape:
            raise ValueError(
                f"target[{i}] must have the shape of its image, {image.shape[:2]}, got {labels.shape}."
            )
    images = [image.astype(np.float32) / 255 if image.dtype == np.uint8 else image for image in images]
    if return_X_y:
        return images, target
    n_pixels = sum(labels.size for labels in target)
    n_hidden = sum(int(np.ma.count_masked(labels)) for labels in target)
    description = (
        f"{source.title}: {len(images)} images of {n_pixels} pixels, of which {n_hidden} have no label; "
        f"classes {', '.join(items['target_names'])}.\n\n{source.how}"
    )
    return Bunch(images=images, target=target, **items, DESCR=description)

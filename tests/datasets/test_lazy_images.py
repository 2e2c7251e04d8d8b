"""LazyImages: indexing without loading, pickles, errors."""

import pickle

import numpy as np
import pytest
from messages import says
from sklearn.model_selection import KFold, train_test_split

from skcrf.datasets import LazyImages


def test_indexing_loads_nothing_but_single_images():
    loaded = []

    def loader(path):
        loaded.append(path)
        return np.full((2, 2), int(path))

    images = LazyImages([str(i) for i in range(6)], loader)
    for key, paths in [
        (slice(1, 4), "123"),
        (slice(None, None, -2), "531"),
        (np.array([4, 0]), "40"),
        ([5, -1], "55"),
        (np.array([True, False, False, True, False, False]), "03"),
        ([False] * 5 + [True], "5"),
        ([], ""),
        ((np.array([1, 2]), Ellipsis), "12"),
    ]:
        part = images[key]
        assert isinstance(part, LazyImages)
        assert part.paths == list(paths)
        assert part.shape == (len(part),) == (len(paths),)
    assert not loaded
    assert images[np.int64(2)].max() == 2
    assert images[-1].max() == 5
    assert [image.max() for image in images[:3]] == [0, 1, 2]
    assert loaded == ["2", "5", "0", "1", "2"]
    with pytest.raises(IndexError):
        images[6]
    with pytest.raises(IndexError):
        images[[6]]
    with pytest.raises(IndexError, match=says("one axis", r"\(0, 1\)")):
        images[0, 1]


def test_repr_names_some_images_and_the_loader():
    images = LazyImages([f"image{i}.png" for i in range(9)], np.load)
    assert repr(images) == "LazyImages(9 images by load: image0.png, image1.png, image2.png, ..., image8.png)"
    assert repr(images[:4]).endswith("image2.png, image3.png)")
    assert repr(images[:0]) == "LazyImages(0 images by load: )"


def test_pickles_hold_paths_and_loader():
    images = LazyImages([f"image{i}.png" for i in range(9)], np.load)
    copied = pickle.loads(pickle.dumps(images))
    assert copied.paths == images.paths
    assert copied.loader is np.load


@pytest.mark.parametrize(
    "paths", ["image.png", {1, 2}, {"a": 1}, iter(["a"])], ids=lambda p: type(p).__name__
)
def test_paths_must_be_a_sequence(paths):
    with pytest.raises(TypeError, match=says("paths must be a sequence", f"got {type(paths).__name__}")):
        LazyImages(paths, np.load)


def test_loader_must_be_a_function():
    with pytest.raises(TypeError, match=says("loader must be a function", "got str")):
        LazyImages(["image.png"], "load")


def test_scikit_learn_splits_without_loading():
    def loader(path):
        raise AssertionError("loaded")

    X, Y = LazyImages(range(10), loader), LazyImages(range(10), loader)
    parts = train_test_split(X, Y, test_size=3, random_state=0)
    assert all(isinstance(part, LazyImages) for part in parts)
    assert [len(part) for part in parts] == [7, 3, 7, 3]
    assert parts[0].paths == parts[2].paths
    assert len(list(KFold(5).split(X, Y))) == 5


def test_index_error_of_the_loader_does_not_end_an_iteration():
    images = LazyImages(range(4), [np.zeros((2, 2)), np.ones((2, 2))].__getitem__)
    with pytest.raises(RuntimeError, match=says("loader failed on 2", "IndexError")):
        list(images)

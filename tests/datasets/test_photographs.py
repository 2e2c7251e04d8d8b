"""Published photographs: prepared and original files, written here, and errors about them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.utils import Bunch
from small_images import quick

from skcrf.datasets import (
    fetch_bsds_binary,
    fetch_msrc,
    fetch_stanford_background,
    fetch_weizmann_horses,
)

FETCH = {
    "weizmann_horses": (fetch_weizmann_horses, "horses.npz"),
    "stanford_background": (fetch_stanford_background, "stanford_background_half.npz"),
    "bsds": (fetch_bsds_binary, "bsds_train200_gray_200x300.npz"),
    "msrc": (fetch_msrc, "msrc9_120_half.npz"),
}
every = pytest.mark.parametrize("name", FETCH)
pytestmark = pytest.mark.filterwarnings("ignore:.* some files are missing:UserWarning")


def draw(*shape, most=256, seed=0):
    return np.random.default_rng(seed).integers(most, size=shape)


def prepared(name):
    """Make the arrays of a tiny prepared file."""
    arrays = {
        "images": draw(5, 8, 9, 3).astype(np.uint8),
        "labels": draw(5, 8, 9, most=2).astype(np.int8),
        "sizes": np.array([[8, 9], [5, 9], [8, 4], [1, 1], [7, 7]]),
        "fold": np.array([1, 2, 3, 4, 5], dtype=np.int8),
    }
    if name == "bsds":
        return {"images": draw(5, 8, 9).astype(np.uint8)}
    if name == "msrc":
        arrays["labels23"] = arrays["labels9"] = arrays.pop("labels")
    if name in ("stanford_background", "msrc"):
        arrays["labels9" if name == "msrc" else "labels"][0, 0, 0] = -1
    return arrays


def write(folder, name, **changes):
    """Write a tiny prepared file with some arrays changed, or left out where None."""
    path = folder / name / FETCH[name][1]
    path.parent.mkdir(exist_ok=True)
    arrays = {key: value for key, value in (prepared(name) | changes).items() if value is not None}
    np.savez(path, **arrays)
    return path


def imsave(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    pytest.importorskip("skimage.io").imsave(path, image, check_contrast=False)


@every
def test_prepared_files_are_read_and_cut_to_size(name, tmp_path):
    fetch, _ = FETCH[name]
    write(tmp_path, name)
    data = fetch(data_home=tmp_path)
    assert isinstance(data, Bunch) and len(data.images) == len(data.target) == 5
    sizes = prepared(name).get("sizes", np.full((5, 2), (8, 9))).tolist()
    assert [list(image.shape[:2]) for image in data.images] == sizes
    assert [list(labels.shape) for labels in data.target] == sizes
    assert {image.dtype for image in data.images} == {np.dtype(np.float32)}
    assert max(image.max() for image in data.images) <= 1.0
    assert set(
        np.unique(
            data.target[0].astype(int).compressed()
            if name in ("stanford_background", "msrc")
            else data.target[0]
        )
    ) == {0, 1}
    assert "5 images" in data.DESCR and len(data.target_names) >= 2
    X, y = fetch(data_home=str(tmp_path / name), return_X_y=True)
    assert_array_equal(X[1], data.images[1])
    if name in ("stanford_background", "msrc"):
        assert data.target[0].mask[0, 0] and data.target[0].mask.sum() == 1
        assert_array_equal(data.fold, prepared(name)["fold"])
    else:
        together = np.concatenate([data.train, data.test])
        assert_array_equal(np.sort(together), np.arange(5))
    assert quick(max_iter=60, tol=0.5).fit(X[:3], y[:3]).predict(X)[4].shape == X[4].shape[:2]


def test_number_of_images_is_checked(tmp_path):
    write(tmp_path, "weizmann_horses")
    with pytest.warns(UserWarning, match="Weizmann horses has 328 images, got 5: some files are missing"):
        fetch_weizmann_horses(data_home=tmp_path)


@every
def test_absent_data_are_explained(name, tmp_path):
    fetch, file = FETCH[name]
    with pytest.raises(FileNotFoundError, match=f"data_home must .*{name}/{file}.*Get .*Nothing is downl"):
        fetch(data_home=tmp_path)


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("weizmann_horses", {"labels": None}, "must hold the arrays .* none called .'labels'"),
        ("weizmann_horses", {"labels": np.full((5, 8, 9), 2)}, r"labels\[0\] in .* from 0 to 1, got int64"),
        ("weizmann_horses", {"labels": np.full((5, 8, 9), -1)}, r"labels\[0\] in .* from 0 to 1, got int64"),
        (
            "weizmann_horses",
            {"labels": np.zeros((5, 8, 8), int)},
            r"must have shape \(5, 8, 9\), got",
        ),
        ("weizmann_horses", {"images": np.zeros((5, 8, 9, 3))}, "images in .* must be grey or colour images"),
        ("weizmann_horses", {"images": np.zeros((5, 8, 9, 2), np.uint8)}, "images in .* must be grey or col"),
        ("weizmann_horses", {"sizes": np.full((5, 2), 9)}, "sizes in .* must be those of parts of images"),
        ("weizmann_horses", {"sizes": np.full((4, 2), 8)}, "sizes in .* must have 5 rows, got 4"),
        ("stanford_background", {"labels": np.full((5, 8, 9), 8)}, r"from -1 to 7, got int64 from 8 to 8"),
        ("stanford_background", {"fold": None}, "none called .'fold'"),
        ("msrc", {"labels9": np.full((5, 8, 9), 9)}, r"labels9\[0\] in .* from -1 to 8"),
    ],
)
def test_wrong_prepared_files_are_refused(name, changes, message, tmp_path):
    write(tmp_path, name, **changes)
    with pytest.raises(ValueError, match=message):
        FETCH[name][0](data_home=tmp_path)


def test_original_horses(tmp_path):
    horse = np.zeros((16, 24), np.uint8)
    horse[:, 12:] = 255
    for i, shape in ((1, (8, 12)), (2, (32, 48))):
        imsave(tmp_path / "weizmann_horses" / "rgb" / f"horse00{i}.png", draw(*shape, 3).astype(np.uint8))
        imsave(tmp_path / "weizmann_horses" / "figure_ground" / f"horse00{i}.png", horse)
    data = fetch_weizmann_horses(data_home=tmp_path)
    assert_array_equal(data.target[0], np.tile(np.arange(12) >= 6, (8, 1)))
    assert_array_equal(data.target[1], np.tile(np.arange(48) >= 24, (32, 1)))
    assert_array_equal(data.images[0], (draw(8, 12, 3) / np.float32(255)).astype(np.float32))
    (tmp_path / "weizmann_horses" / "rgb" / "horse002.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"one of them for .'horse002'"):
        fetch_weizmann_horses(data_home=tmp_path)


def test_original_scenes(tmp_path):
    folder = tmp_path / "stanford_background"
    (folder / "labels").mkdir(parents=True)
    for name in ("0000047", "0000051"):
        imsave(folder / "images" / f"{name}.jpg", draw(6, 7, 3).astype(np.uint8))
        np.savetxt(folder / "labels" / f"{name}.regions.txt", draw(6, 7, most=9) - 1, fmt="%d")
    data = fetch_stanford_background(data_home=tmp_path)
    expected = draw(6, 7, most=9) - 1
    assert_array_equal(data.target[1].mask, expected == -1)
    assert_array_equal(data.target[1].filled(-1), expected)
    assert sorted(data.fold) == [1, 2]
    np.savetxt(folder / "labels" / "0000051.regions.txt", draw(6, 7, most=9), fmt="%d")
    with pytest.raises(ValueError, match=r"0000051.regions.txt must hold integers from -1 to 7"):
        fetch_stanford_background(data_home=tmp_path)
    np.savetxt(folder / "labels" / "0000051.regions.txt", draw(5, 7, most=8), fmt="%d")
    with pytest.raises(ValueError, match=r"must have the shape of its image, \(6, 7\), got \(5, 7\)"):
        fetch_stanford_background(data_home=tmp_path)


def test_original_berkeley_images(tmp_path):
    folder = tmp_path / "bsds" / "images" / "train"
    imsave(folder / "100.jpg", draw(321, 481, 3).astype(np.uint8))
    imsave(folder / "20.jpg", draw(481, 321, 3, seed=1).astype(np.uint8))
    data = fetch_bsds_binary(data_home=tmp_path, noise=5)
    assert [image.shape for image in data.images] == [(200, 300)] * 2
    for grey, target, image in zip(data.grey, data.target, data.images, strict=True):
        assert_array_equal(target, grey > grey.mean())
        assert ((image > 0.5) == target).mean() > 0.8
    again = fetch_bsds_binary(data_home=tmp_path, noise=5)
    assert_array_equal(again.images[0], data.images[0])
    other = fetch_bsds_binary(data_home=tmp_path, noise=5, random_state=1)
    assert not np.array_equal(other.images[0], data.images[0])
    with pytest.raises(ValueError, match=r"noise == 0.5, must be >= 1"):
        fetch_bsds_binary(data_home=tmp_path, noise=0.5)
    imsave(folder / "3.jpg", draw(100, 481, 3).astype(np.uint8))
    with pytest.raises(ValueError, match=r"3.jpg must have at least \(200, 300\) pixels, got \(100, 481\)"):
        fetch_bsds_binary(data_home=tmp_path)


def test_original_cambridge_images(tmp_path):
    colours = np.zeros((4, 5, 3), np.uint8)
    colours[0], colours[1] = (128, 0, 0), (64, 128, 0)  # building and water
    imsave(tmp_path / "msrc" / "Images" / "1_1_s.bmp", draw(4, 5, 3).astype(np.uint8))
    imsave(tmp_path / "msrc" / "GroundTruth" / "1_1_s_GT.bmp", colours)
    nine, all_classes = (fetch_msrc(data_home=tmp_path, n_classes=n) for n in (9, 23))
    assert_array_equal(nine.target[0].filled(-1), [[0] * 5] + [[-1] * 5] * 3)
    assert_array_equal(all_classes.target[0].filled(-1), [[0] * 5, [9] * 5] + [[-1] * 5] * 2)
    assert nine.target_names[0] == "building" and all_classes.target_names[9] == "water"
    with pytest.raises(ValueError, match=r"n_classes must be one of \[9, 23\], got 10"):
        fetch_msrc(data_home=tmp_path, n_classes=10)

"""Reading images."""

from skcrf.data.arrays import as_image
from skcrf.data.reader import BaseReader, Example


class ImageReader(BaseReader):
    """Reader of images of shape (height, width) or (height, width, n_features)."""

    one, many = "image", "images"
    advice = "images are (height, width, n_features), labels (height, width), one image is [image]."

    def __call__(self, example, name):
        image = as_image(example, name, self.n_features, self.as_in)
        shape = image.shape[:2]
        return Example(image.reshape(-1, image.shape[2]), shape, shape)

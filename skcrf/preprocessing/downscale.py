"""Learning at reduced size."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skcrf.data import ImageReader, Labels, check_weights, is_table, like_container
from skcrf.preprocessing._image import interpolate


def _estimator_has(name):
    """Make the check that the estimator has a method, for `available_if`."""

    def check(self):
        getattr(vars(self).get("estimator_", self.estimator), name)
        return True

    return check


class DownscaledClassifier(CallbackSupportMixin, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Classifier of images that learns and predicts at reduced size.

    In `fit`, features are averaged over blocks of ``factor * factor`` pixels, and a block has the most
    frequent of its labels. Predictions have the size of the images: marginals are interpolated linearly
    between the centres of blocks, and a pixel has the label with the largest one. Compute the features
    before, at full size, in a pipeline: D13 section 8.4 found that this and a factor of 5 give lower errors
    on photographs than full size. Learning takes a fraction ``1 / factor**2`` of the time.

    Parameters
    ----------
    estimator : classifier
        Classifier of images, such as `GridCRFClassifier`.
    factor : int, default=2
        Height and width of a block in pixels. Blocks at the lower and right border may be smaller.
    missing_label : object, default=None
        Value in y that marks a hidden label; must be that of the classifier, if it has one. Masked entries of
        y are hidden as well; a block is hidden if all its labels are.

    Attributes
    ----------
    estimator_ : classifier
        The classifier fitted to images of reduced size.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features per pixel.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.datasets import make_binary_denoising
    >>> from skcrf.preprocessing import DownscaledClassifier
    >>> X, Y = make_binary_denoising(n_images=3, shape=(15, 16), noise=1.5, random_state=0)
    >>> crf = DownscaledClassifier(GridCRFClassifier(tol=0.1), factor=2).fit(X, Y)
    >>> crf.predict(X).shape, crf.predict_proba(X).shape
    ((3, 15, 16), (3, 15, 16, 2))
    """

    def __init__(self, estimator, factor=2, missing_label=None):
        self.estimator = estimator
        self.factor = factor
        self.missing_label = missing_label

    @with_callbacks
    def fit(self, X, y, **fit_params):
        """Fit the classifier to images and labels of reduced size.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images. A table is passed to the classifier as it is.
        y : sequence of array-like of shape (height, width)
            Labels; hidden where masked or equal to `missing_label`.
        **fit_params : dict
            Parameters of the classifier's `fit`, such as `sample_weight`.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_scalar(self.factor, "factor", Integral, min_val=1)
        own = {"missing_label": self.missing_label, **self.estimator.get_params()}["missing_label"]
        if own is not self.missing_label and own != self.missing_label:
            raise ValueError(
                f"missing_label must be that of the classifier, {own!r}, got {self.missing_label!r}. "
                "Set it in both, or mask hidden labels."
            )
        context = self._init_callback_context(max_subtasks=1)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        small = (X, y) if is_table(X) else self._reduce_both(X, y)
        estimator, part = clone(self.estimator), context.subcontext(task_name="fit-estimator")
        with part.propagate_callback_context(estimator):
            part.call_on_fit_task_begin(estimator=self, X=small[0], y=small[1])
            self.estimator_ = estimator.fit(*small, **fit_params)
            part.call_on_fit_task_end(estimator=self, X=small[0], y=small[1])
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _reduce_both(self, X, y):
        """Return images and labels of reduced size."""
        images, shapes = self._reduce(X)
        labels = Labels(y, shapes, missing_label=self.missing_label, name="y", advice=ImageReader.advice)
        classes = labels.classes()
        return images, [self._reduce_labels(index, classes) for index in labels.encode(classes)]

    def _reduce(self, X):
        """Return the images of reduced size, and the sizes of the images."""
        reader, images, shapes = ImageReader(), [], []
        for i in range(len(X)):
            example = reader(X[i], f"X[{i}]")
            reader = reader.like(example, f"X[{i}]")
            images.append(self._average(example.X.reshape(*example.shape, -1)))
            shapes.append(example.shape)
        return images, shapes

    def _sums(self, image):
        """Sum an image (height, width, n) over blocks."""
        for axis in (0, 1):
            image = np.add.reduceat(image, np.arange(0, image.shape[axis], self.factor), axis=axis)
        return image

    def _average(self, image):
        return (self._sums(image) / self._sums(np.ones((*image.shape[:2], 1)))).astype(
            image.dtype, copy=False
        )

    def _reduce_labels(self, index, classes):
        counts = self._sums((index[:, :, None] == np.arange(len(classes))).astype(np.int64))
        return np.ma.masked_array(classes[counts.argmax(axis=2)], ~counts.any(axis=2))

    @property
    def classes_(self):
        """Labels, sorted."""
        return self.estimator_.classes_

    @property
    def n_features_in_(self):
        """Number of features per pixel."""
        return self.estimator_.n_features_in_

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X):
        """Compute the marginals of every pixel.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.

        Returns
        -------
        P : sequence of ndarray of shape (height, width, n_classes)
            Probabilities of the classes, in the kind of container that X is.
        """
        check_is_fitted(self)
        if is_table(X):
            return self.estimator_.predict_proba(X)
        images, shapes = self._reduce(X)
        marginals = self.estimator_.predict_proba(images)
        return like_container(X, [self._enlarge(*pair) for pair in zip(marginals, shapes, strict=True)])

    def _enlarge(self, P, shape):
        starts = [np.arange(0, size, self.factor) for size in shape]
        ends = [np.minimum(start + self.factor, size) for start, size in zip(starts, shape, strict=True)]
        centres = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
        P = interpolate(P, centres, shape)
        return P / P.sum(axis=2, keepdims=True)

    @available_if(_estimator_has("predict_proba"))
    def predict_log_proba(self, X):
        """Compute the logarithms of the marginals of every pixel.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.

        Returns
        -------
        P : sequence of ndarray of shape (height, width, n_classes)
            Log-probabilities of the classes.
        """
        P = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return np.log(P) if is_table(X) else like_container(X, [np.log(p) for p in P])

    def predict(self, X):
        """Predict the label of every pixel.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.

        Returns
        -------
        labels : sequence of ndarray of shape (height, width)
            Labels with the largest interpolated marginals; those of the blocks if the classifier has no
            `predict_proba`.
        """
        check_is_fitted(self)
        if is_table(X):
            return self.estimator_.predict(X)
        if hasattr(self, "predict_proba"):
            return like_container(X, [self.classes_[p.argmax(axis=2)] for p in self.predict_proba(X)])
        images, shapes = self._reduce(X)
        blocks = zip(self.estimator_.predict(images), shapes, strict=True)
        return like_container(
            X, [labels.repeat(self.factor, 0).repeat(self.factor, 1)[:h, :w] for labels, (h, w) in blocks]
        )

    def score(self, X, y, sample_weight=None):
        """Compute the pooled accuracy: the fraction of labelled pixels that are predicted right.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        y : sequence of array-like of shape (height, width)
            True labels at full size; hidden ones do not count.
        sample_weight : array-like of shape (n_images,), default=None
            Weight of each image.

        Returns
        -------
        score : float
            Accuracy.
        """
        predicted = self.predict(X)
        if is_table(X):
            return self.estimator_.score(X, y, sample_weight)
        weight = check_weights(sample_weight, len(predicted))
        shapes = [labels.shape for labels in predicted]
        labels = Labels(y, shapes, missing_label=self.missing_label, name="y", advice=ImageReader.advice)
        true = zip(labels.values, labels.hidden, predicted, strict=True)
        right = [[((values == found) & ~hidden).sum(), (~hidden).sum()] for values, hidden, found in true]
        right, total = weight @ np.array(right)
        if not total > 0:
            raise ValueError(
                "y and sample_weight must leave a labelled pixel with a weight above 0, got none."
            )
        return float(right / total)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

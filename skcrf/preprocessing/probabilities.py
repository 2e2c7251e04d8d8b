"""Out-of-fold probabilities of a classifier of pixels, as features."""

from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.callback import with_callbacks
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skcrf.data import ImageReader, Labels, check_classes, like_container
from skcrf.preprocessing._base import BaseSiteTransformer, has_table_rows

# Transformations of probabilities (n_pixels, n_classes) to features, and names of the features.
_METHODS = {
    "predict_log_proba": (lambda P, min_proba: np.log(np.maximum(P, min_proba)), "log_proba"),
    "predict_proba": (lambda P, min_proba: P, "proba"),
}


class ProbabilityFeatures(BaseSiteTransformer):
    """Probabilities that a scikit-learn classifier of pixels predicts, as features for a random field.

    `fit_transform` predicts the probabilities of each training image by a classifier that was fitted to other
    images (as `cross_val_predict` does), and `transform` by one that was fitted to all of them. The random
    field therefore learns from probabilities that are as unreliable as those of new images. As for
    `sklearn.preprocessing.TargetEncoder`, ``fit(X, y).transform(X)`` differs from ``fit_transform(X, y)``,
    which a pipeline calls. The features that the classifier uses are left out: use `FeatureStack` to keep
    them.

    Parameters
    ----------
    classifier : classifier
        Classifier with `predict_proba`, of rows of pixel features.
    cv : int, cross-validation splitter or iterable of splits, default=5
        Folds of whole images; each image must be held out once. A number means that images are shuffled, as
        for `TargetEncoder`. Pass splits to keep similar images together.
    n_samples : int or None, default=1000
        Number of pixels per image that the classifier is fitted to, drawn from those with a label; None for
        all.
    method : {"predict_log_proba", "predict_proba"}, default="predict_log_proba"
        Features: logarithms suit the random fields, whose potentials are linear in the features.
    min_proba : float, default=1e-3
        Smaller probabilities are raised to this value before the logarithm.
    missing_label : object, default=None
        Value in y that marks a hidden label. Masked entries of y are hidden as well.
    classes : array-like of shape (n_classes,), default=None
        All labels, if the training set may lack some; None for those in y.
    n_jobs : int, default=None
        Number of processes, one per fold at most. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds and of the pixels that are drawn; if it is set, also of the classifier.

    Attributes
    ----------
    classifier_ : classifier
        Classifier fitted to pixels of all images.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted: one feature each. A classifier that has not seen a label gives it the probability 0.
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    See Also
    --------
    sklearn.ensemble.StackingClassifier : Stacking without images.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.datasets import make_potts
    >>> from skcrf.preprocessing import ProbabilityFeatures
    >>> X, Y = make_potts(n_images=6, shape=(8, 8), n_classes=3, random_state=0)
    >>> forest = RandomForestClassifier(10, random_state=0)
    >>> crf = make_pipeline(ProbabilityFeatures(forest, cv=2, random_state=0), GridCRFClassifier(tol=0.1))
    >>> crf.fit(X, Y)[:-1].get_feature_names_out().tolist()
    ['log_proba(0)', 'log_proba(1)', 'log_proba(2)']
    """

    _unfitted_reader = ImageReader()

    def __init__(
        self,
        classifier,
        cv=5,
        n_samples=1000,
        method="predict_log_proba",
        min_proba=1e-3,
        missing_label=None,
        classes=None,
        n_jobs=None,
        random_state=None,
    ):
        self.classifier = classifier
        self.cv = cv
        self.n_samples = n_samples
        self.method = method
        self.min_proba = min_proba
        self.missing_label = missing_label
        self.classes = classes
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    def fit(self, X, y):
        """Fit the classifier to pixels of all images.

        Parameters
        ----------
        X : sequence of images, or array-like of shape (n_samples, n_features)
            Images, or a table whose rows are images of one pixel.
        y : sequence of array-like
            Labels; hidden where masked or equal to `missing_label`.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        return self._fit_with_callbacks(X, y, partial(self._fit_examples, y=y), reset=True)

    def _fit_examples(self, examples, y):
        self._fit_images(examples, y)

    def fit_transform(self, X, y):
        """Fit the classifier, and predict each image by a classifier that was fitted to other images.

        Parameters
        ----------
        X : sequence of images, or array-like of shape (n_samples, n_features)
            Images, or a table whose rows are images of one pixel.
        y : sequence of array-like
            Labels; hidden where masked or equal to `missing_label`.

        Returns
        -------
        X_out : sequence of ndarray of shape (height, width, n_classes)
            Out-of-fold probabilities in the same kind of container as X, or a table.
        """
        rows, examples = [], []

        def fit_examples(found):
            examples[:] = found
            rows[:] = self._predict_folds(*self._fit_images(found, y))

        self._fit_with_callbacks(X, y, fit_examples, reset=True)
        if has_table_rows(examples[0]):
            return _wrap_data_with_container("transform", np.concatenate(rows), X, self)
        shapes = [(*example.shape, len(self.classes_)) for example in examples]
        return like_container(X, [row.reshape(shape) for row, shape in zip(rows, shapes, strict=True)])

    def _fit_images(self, examples, y):
        """Fit the classifier to drawn pixels; return the images with these, and the folds."""
        if not hasattr(self.classifier, "predict_proba") or isinstance(self.classifier, type):
            raise TypeError(f"classifier must be a classifier with predict_proba, got {self.classifier!r}.")
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {sorted(_METHODS)}, got {self.method!r}.")
        check_scalar(self.min_proba, "min_proba", Real, min_val=0, max_val=1, include_boundaries="right")
        if self.n_samples is not None:
            check_scalar(self.n_samples, "n_samples", Integral, min_val=1)
        images = self._draw(examples, y)
        folds = self._folds(len(images))
        self.classifier_ = _fit_classifier(self._classifier(), [image.drawn for image in images])
        return images, folds

    def _predict_folds(self, images, folds):
        """Return the features of each image by a classifier that was fitted to other images."""
        predicted = Parallel(n_jobs=self.n_jobs)(
            delayed(_predict_fold)(
                self._classifier(), [images[i].drawn for i in train], [images[i].rows for i in test]
            )
            for train, test in folds
        )
        rows = [self._features(*pair) for fold in predicted for pair in fold]
        return [rows[i] for i in np.argsort(np.concatenate([test for _, test in folds]))]

    def _draw(self, examples, y):
        """Set the classes, and return the pixels of each image with those that are drawn."""
        table = has_table_rows(examples[0])
        rows = list(examples[0].X[:, None]) if table else [example.X for example in examples]
        shapes = [()] * len(rows) if table else [example.shape for example in examples]
        labels = Labels(
            y, shapes, missing_label=self.missing_label, name="y", advice=self._unfitted_reader.advice
        )
        classes = labels.classes()
        self.classes_ = classes if self.classes is None else check_classes(self.classes, self.missing_label)
        indices = labels.encode(self.classes_)
        indices = indices[0][:, None] if table else [index.ravel() for index in indices]
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=len(rows))
        return [self._draw_pixels(*image) for image in zip(rows, indices, seeds, strict=True)]

    def _draw_pixels(self, rows, index, seed):
        labelled = np.flatnonzero(index >= 0)
        if self.n_samples is not None and len(labelled) > self.n_samples:
            labelled = np.random.RandomState(seed).choice(labelled, self.n_samples, replace=False)
            labelled.sort()
        return _Pixels(rows, (rows[labelled], self.classes_[index[labelled]]))

    def _folds(self, n_images):
        """Return the folds of the images, each of which is held out once."""
        if isinstance(self.cv, Integral) and n_images < self.cv:
            raise ValueError(f"cv must be at most the number of images, n_samples={n_images}, got {self.cv}.")
        cv = self.cv
        if isinstance(cv, Integral):
            # Data sets are often sorted by scene, which would keep whole classes out of a fold.
            cv = KFold(cv, shuffle=True, random_state=self.random_state)
        folds = list(check_cv(cv).split(np.zeros(n_images)))
        held_out = np.concatenate([test for _, test in folds])
        if not np.array_equal(np.sort(held_out), np.arange(n_images)):
            raise ValueError(f"cv must hold out each of {n_images} images once, got {self.cv!r}.")
        return folds

    def _classifier(self):
        """Return an unfitted classifier, seeded by `random_state` if that is set."""
        classifier = clone(self.classifier)
        if self.random_state is None:
            return classifier
        rng = check_random_state(self.random_state)
        seeds = {
            name: rng.randint(np.iinfo(np.int32).max)
            for name in sorted(classifier.get_params())
            if name == "random_state" or name.endswith("__random_state")
        }
        return classifier.set_params(**seeds)

    def _features(self, P, classes):
        """Return features from probabilities of some of the classes."""
        every = np.zeros((len(P), len(self.classes_)), P.dtype)
        every[:, np.searchsorted(self.classes_, classes)] = P
        return _METHODS[self.method][0](every, self.min_proba)

    def _transform_rows(self, example):
        return self._features(*_predict(self.classifier_, example.X))

    def get_feature_names_out(self, input_features=None):
        """Get the names of the output features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Ignored.

        Returns
        -------
        feature_names_out : ndarray of str
            One name per class, such as "log_proba(sky)".
        """
        check_is_fitted(self)
        return np.array([f"{_METHODS[self.method][1]}({label})" for label in self.classes_], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class _Pixels(NamedTuple):
    """The rows of an image, and the rows and labels that a classifier is fitted to."""

    rows: np.ndarray
    drawn: tuple


def _fit_classifier(classifier, drawn):
    rows, labels = zip(*drawn, strict=True)
    if not any(map(len, rows)):
        raise ValueError(
            "cv must leave a labelled pixel in the training images of each fold, got a fold with none."
        )
    return classifier.fit(np.concatenate(rows), np.concatenate(labels))


def _predict(classifier, rows):
    """Return probabilities of the type of the rows, and their classes."""
    return classifier.predict_proba(rows).astype(rows.dtype, copy=False), classifier.classes_


def _predict_fold(classifier, drawn, images):
    """Fit a classifier to some images and predict others."""
    fitted = _fit_classifier(classifier, drawn)
    return [_predict(fitted, rows) for rows in images]

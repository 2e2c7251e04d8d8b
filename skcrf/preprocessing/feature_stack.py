"""Features of several transformers side by side."""

from contextlib import contextmanager

import numpy as np
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.pipeline import FeatureUnion, _name_estimators
from sklearn.utils._set_output import _wrap_data_with_container

from skcrf.data import as_image, is_table, like_container
from skcrf.preprocessing.pixel_wise import PixelWise


class _ImageUnion(CallbackSupportMixin, FeatureUnion, auto_wrap_output_keys=None):
    """Methods of `FeatureStack`.

    Its subclass has `set_output`, which applies to tables only: scikit-learn must not wrap lists of images.
    """

    @with_callbacks
    def fit(self, X, y=None, **fit_params):
        """Fit all transformers.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        y : sequence of array-like, default=None
            Labels, for transformers that use them.
        **fit_params : dict
            Parameters of the transformers' `fit`, as for `FeatureUnion`.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        with self._task(X, y):
            super().fit(X, y, **fit_params)
        return self

    @with_callbacks
    def fit_transform(self, X, y=None, **params):
        """Fit all transformers, transform the images and stack the features.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        y : sequence of array-like, default=None
            Labels, for transformers that use them.
        **params : dict
            Parameters of the transformers' `fit`, as for `FeatureUnion`.

        Returns
        -------
        X_out : sequence of ndarray of shape (height, width, n_features_out)
            Images in the same kind of container as X.
        """
        with self._task(X, y):
            return self._like(X, FeatureUnion.fit_transform.__wrapped__(self, X, y, **params))

    def transform(self, X, **params):
        """Transform the images by each transformer and stack the features.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        **params : dict
            Parameters of the transformers' `transform`, as for `FeatureUnion`.

        Returns
        -------
        X_out : sequence of ndarray of shape (height, width, n_features_out)
            Images in the same kind of container as X.
        """
        return self._like(X, FeatureUnion.transform.__wrapped__(self, X, **params))

    @contextmanager
    def _task(self, X, y):
        """Check that there is a transformer, and call the callbacks before and after a fit."""
        if all(isinstance(choice, str) and choice == "drop" for _, choice in self.transformer_list):
            raise ValueError(
                f"transformer_list must hold at least one transformer, got {self.transformer_list!r}."
            )
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        yield
        context.call_on_fit_task_end(estimator=self, X=X, y=y)

    def _iter(self):
        # The identity of FeatureUnion neither validates images nor makes arrays of them.
        for name, transformer, weight in super()._iter():
            chosen = dict(self.transformer_list)[name]
            kept = isinstance(chosen, str) and chosen == "passthrough"
            yield name, PixelWise() if kept else transformer, None if weight is None else _Weight(weight)

    def _hstack(self, Xs):
        if is_table(Xs[0]):
            return super()._hstack(Xs)
        stacked = []
        for i, parts in enumerate(zip(*Xs, strict=True)):
            images = [as_image(part, f"X[{i}]") for part in parts]
            for image, (name, *_) in zip(images, self._iter(), strict=True):
                if image.shape[:2] != images[0].shape[:2]:
                    raise ValueError(
                        f"transformer {name!r} must keep the size of images, got shape {image.shape[:2]} "
                        f"and {images[0].shape[:2]} of others in X[{i}]."
                    )
            stacked.append(np.concatenate(images, axis=2))
        return stacked

    def _like(self, X, found):
        if is_table(X):
            return _wrap_data_with_container("transform", found, X, self)
        return like_container(X, found)


class _Weight(float):
    """A factor that multiplies each image of a list."""

    def __rmul__(self, images):
        return [float(self) * image for image in images] if isinstance(images, list) else images * float(self)


class FeatureStack(_ImageUnion):
    """Features of several transformers of images, stacked along the last axis.

    This is scikit-learn's `FeatureUnion` for images, which may differ in size. Each transformer, or pipeline
    of transformers, gets the images, and its features follow those of the one before.

    Parameters
    ----------
    transformer_list : list of tuple
        Pairs of a name and a transformer of images; "passthrough" keeps the features of the pixels, "drop"
        leaves a transformer out. Parameters can be set as ``name__parameter``.
    n_jobs : int, default=None
        Number of processes or threads, as in joblib: one per transformer at most.
    transformer_weights : dict, default=None
        Factors of the features by the name of the transformer.
    verbose : bool, default=False
        Whether to print the time of each fit.
    verbose_feature_names_out : bool, default=True
        Whether names of features start with the name of the transformer.

    See Also
    --------
    make_feature_stack : The same with automatic names.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import FeatureStack, FilterBank, PixelPositions
    >>> X = [np.ones((2, 4, 3)), np.zeros((3, 5, 3))]
    >>> stack = FeatureStack([("colour", "passthrough"), ("position", PixelPositions())])
    >>> [x.shape for x in stack.fit_transform(X)]
    [(2, 4, 5), (3, 5, 5)]
    >>> stack.get_feature_names_out().tolist()
    ['colour__x0', 'colour__x1', 'colour__x2', 'position__row', 'position__column']
    """

    def __init__(
        self,
        transformer_list,
        *,
        n_jobs=None,
        transformer_weights=None,
        verbose=False,
        verbose_feature_names_out=True,
    ):
        super().__init__(
            transformer_list,
            n_jobs=n_jobs,
            transformer_weights=transformer_weights,
            verbose=verbose,
            verbose_feature_names_out=verbose_feature_names_out,
        )


def make_feature_stack(*transformers, n_jobs=None, verbose=False):
    """Make a `FeatureStack` with names that are the lower-case names of the classes.

    Parameters
    ----------
    *transformers : transformer, "passthrough" or "drop"
        Transformers of images.
    n_jobs : int, default=None
        Number of processes or threads.
    verbose : bool, default=False
        Whether to print the time of each fit.

    Returns
    -------
    stack : FeatureStack
        Their stack.

    Examples
    --------
    >>> from skcrf.preprocessing import FourierFeatures, HOGFeatures, make_feature_stack
    >>> stack = make_feature_stack(FourierFeatures(), HOGFeatures())  # 100 features of D13 section 8.3
    >>> [name for name, _ in stack.transformer_list]
    ['fourierfeatures', 'hogfeatures']
    """
    return FeatureStack(_name_estimators(transformers), n_jobs=n_jobs, verbose=verbose)

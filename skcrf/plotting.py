"""Displays of predicted marginals of images and of the objective during a fit.

As in scikit-learn, a display stores the data of a plot, `plot` draws it, and the class methods do both.
"""

import numpy as np
from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

from skcrf.metrics import check_images, check_labels, check_proba, check_sorted_classes, final_estimator

# The palette of Okabe and Ito, safe for colour-blind readers, with the most distinct colours first.
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_HIDDEN = {"facecolor": "0.93", "edgecolor": "0.6", "hatch": "/////", "linewidth": 0}


class MarginalsDisplay:
    """Display of images, labels, predictions and marginals, one row per image.

    A row shows the input, the true labels if given, the predicted labels with the error rate over labelled
    pixels, and the marginal of one class, or the largest marginal of each pixel if there are more than two
    classes and no `target`. Hidden labels are hatched. Create it by `from_estimator` or `from_predictions`.

    Parameters
    ----------
    images : list of ndarray of shape (height, width, n_features)
        Images. Three features are shown as red, green and blue; otherwise the first feature is shown.
    proba : list of ndarray of shape (height, width, n_classes)
        Marginals.
    predicted : list of ndarray of shape (height, width)
        Predicted labels, as indices of classes.
    classes : ndarray of shape (n_classes,)
        The classes.
    labels : list of ndarray of shape (height, width), default=None
        True labels, as indices of classes, -1 where hidden; None if unknown.
    target : int, default=None
        Index of the class whose marginal is shown; None for class 1 of two, or the largest marginal of more.

    Attributes
    ----------
    figure_ : matplotlib Figure or SubFigure
        The figure.
    axes_ : ndarray of Axes of shape (n_images, n_panels)
        The panels.
    colorbar_ : matplotlib Colorbar
        The colour bar of the marginals.
    legend_ : matplotlib Legend
        The legend of the labels.

    Examples
    --------
    >>> from skcrf.plotting import MarginalsDisplay
    >>> display = MarginalsDisplay.from_estimator(est, X, Y, n_images=3)  # doctest: +SKIP
    """

    def __init__(self, *, images, proba, predicted, classes, labels=None, target=None):
        self.images = images
        self.proba = proba
        self.predicted = predicted
        self.classes = classes
        self.labels = labels
        self.target = target

    @classmethod
    def from_estimator(cls, estimator, X, Y=None, *, n_images=4, target=None, **kwargs):
        """Plot predictions of an estimator for the first images.

        Parameters
        ----------
        estimator : estimator
            A fitted classifier of images, or a pipeline that ends in one.
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        Y : sequence of array-like of shape (height, width), default=None
            True labels, masked or `missing_label` where hidden.
        n_images : int, default=4
            Maximum number of images to show.
        target : label, default=None
            Class whose marginal is shown; None for the second of two, or the largest marginal of more.
        **kwargs : dict
            Parameters of `plot`: `fig` and `cmap`.

        Returns
        -------
        display : MarginalsDisplay
            The display.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        field = final_estimator(estimator)
        X, Y = X[:n_images], None if Y is None else Y[:n_images]
        options = {"classes": field.classes_, "missing_label": getattr(field, "missing_label", None)}
        options |= {"Y_pred": estimator.predict(X), "n_images": n_images, "target": target}
        return cls.from_predictions(X, estimator.predict_proba(X), Y, **options, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        X,
        Y_proba,
        Y=None,
        *,
        classes=None,
        Y_pred=None,
        missing_label=None,
        n_images=4,
        target=None,
        **kwargs,
    ):
        """Plot given predictions.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        Y_proba : sequence of array-like of shape (height, width, n_classes)
            Marginals, as returned by `predict_proba`.
        Y : sequence of array-like of shape (height, width), default=None
            True labels, masked or `missing_label` where hidden.
        classes : array-like of shape (n_classes,), default=None
            Sorted classes; None for 0, 1, ...
        Y_pred : sequence of array-like of shape (height, width), default=None
            Predicted labels; None for the labels with the largest marginals.
        missing_label : object, default=None
            Value in `Y` that marks a hidden label; None if there is no such value.
        n_images : int, default=4
            Maximum number of images to show.
        target : label, default=None
            Class whose marginal is shown; None for the second of two, or the largest marginal of more.
        **kwargs : dict
            Parameters of `plot`: `fig` and `cmap`.

        Returns
        -------
        display : MarginalsDisplay
            The display.
        """
        check_matplotlib_support(f"{cls.__name__}.from_predictions")
        if n_images < 1:
            raise ValueError(f"n_images must be at least 1, got {n_images}.")
        images = check_images(X[:n_images])
        shapes = [image.shape[:2] for image in images]
        classes = np.arange(np.shape(Y_proba[0])[-1]) if classes is None else check_sorted_classes(classes)
        if len(Y_proba[:n_images]) != len(images):
            raise ValueError(f"Y_proba must have {len(X)} examples, as X has, got {len(Y_proba)}.")
        proba = [
            check_proba(p, (*shape, len(classes)), f"Y_proba[{i}]")
            for i, (p, shape) in enumerate(zip(Y_proba[:n_images], shapes, strict=True))
        ]
        predicted = [p.argmax(axis=2) for p in proba]
        if Y_pred is not None:
            predicted = check_labels(Y_pred[:n_images], shapes, classes, name="Y_pred")
        labels = None
        if Y is not None:
            labels = check_labels(Y[:n_images], shapes, classes, missing_label=missing_label)
        if target is not None:
            if target not in classes:
                raise ValueError(f"target must be one of the classes {list(classes)}, got {target!r}.")
            target = int(np.flatnonzero(classes == target)[0])
        display = cls(
            images=images, proba=proba, predicted=predicted, classes=classes, labels=labels, target=target
        )
        return display.plot(**kwargs)

    def plot(self, *, fig=None, cmap="cividis"):
        """Draw the display.

        Parameters
        ----------
        fig : matplotlib Figure or SubFigure, default=None
            Figure to draw into; None for a new one.
        cmap : str or matplotlib Colormap, default="cividis"
            Colour map of the marginals.

        Returns
        -------
        display : MarginalsDisplay
            This display.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        from matplotlib import colormaps

        cmap = colormaps[cmap] if isinstance(cmap, str) else cmap
        panels, colours = self._panels(cmap)
        self.figure_, self.axes_ = _grid(fig, self.images, len(panels))
        # At most 10 points, and smaller in narrow panels, where titles would overlap.
        fontsize = min(10, 5 * self.figure_.bbox.width / self.figure_.dpi / len(panels))
        for i, axes in enumerate(self.axes_):
            for (title, arrays, style), ax in zip(panels, axes, strict=True):
                ax.imshow(arrays[i], interpolation="nearest", **style)
                if np.ma.is_masked(arrays[i]):
                    ax.patch.set(**_HIDDEN)  # visible through the masked pixels
                texts = [title if i == 0 else "", self._error_rate(i) if title == "Predicted" else ""]
                ax.set_title(", ".join(filter(None, texts)), fontsize=fontsize, pad=4)
        height = sum(image.shape[0] / image.shape[1] for image in self.images)
        self.colorbar_ = self.figure_.colorbar(
            self.axes_[0, -1].images[0], ax=self.axes_, aspect=18 * height, fraction=0.05, pad=0.01
        )
        self.colorbar_.ax.tick_params(labelsize=fontsize, length=2)
        self.colorbar_.outline.set_visible(False)
        self.legend_ = self._draw_legend(colours, fontsize)
        return self

    def _panels(self, cmap):
        """Return the title, arrays and style of each column, and the colours of the labels."""
        from matplotlib.colors import ListedColormap

        colours = self._label_colours(cmap)
        marginals, low, name = self._displayed_marginals()
        style = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": len(colours) - 0.5}
        panels = [("Input", _displayed_inputs(self.images), {"cmap": "gray", "vmin": 0, "vmax": 1})]
        if self.labels is not None:
            panels.append(("True labels", [np.ma.masked_less(y, 0) for y in self.labels], style))
        panels.append(("Predicted", self.predicted, style))
        panels.append((name, marginals, {"cmap": cmap, "vmin": low, "vmax": 1}))
        return panels, colours

    def _displayed_marginals(self):
        """Return the marginals to draw, their smallest possible value, and their title."""
        n_classes = len(self.classes)
        target = 1 if self.target is None and n_classes == 2 else self.target
        if target is None:
            return [p.max(axis=2) for p in self.proba], 1 / n_classes, "Largest marginal"
        return [p[..., target] for p in self.proba], 0, f"P(y = {self.classes[target]})"

    def _label_colours(self, cmap):
        n_classes = len(self.classes)
        if n_classes == 2:  # the colours of the marginals 0 and 1
            ends = [cmap(0.0), cmap(1.0)]
            return ends[::-1] if self.target == 0 else ends
        if n_classes <= len(_PALETTE):
            return list(_PALETTE[:n_classes])
        return list(cmap(np.linspace(0, 1, n_classes)))

    def _error_rate(self, i):
        known = self.labels is not None and self.labels[i] >= 0
        if not np.any(known):
            return ""
        return f"{np.mean((self.predicted[i] != self.labels[i])[known]):.1%} wrong"

    def _draw_legend(self, colours, fontsize):
        from matplotlib.patches import Patch

        handles = [
            Patch(facecolor=colour, edgecolor="0.6", linewidth=0.5, label=str(label))
            for colour, label in zip(colours, self.classes, strict=True)
        ]
        if self.labels is not None and any((y < 0).any() for y in self.labels):
            handles.append(Patch(**_HIDDEN, label="hidden"))
        position = {"loc": "outside lower center", "ncols": min(len(handles), 8)}
        return self.figure_.legend(handles=handles, frameon=False, fontsize=fontsize, **position)


def _grid(fig, images, n_panels):
    """Make axes without ticks, with columns of equal width and rows as high as their images."""
    import matplotlib.pyplot as plt

    heights = np.array([image.shape[0] / image.shape[1] for image in images])
    if fig is None:
        size = (2.1 * n_panels + 0.6, 2.1 * heights.sum() + 0.2 * len(images) + 0.4)
        fig = plt.figure(figsize=size, layout="constrained")
        fig.get_layout_engine().set(w_pad=0.04, h_pad=0.04, wspace=0.01, hspace=0)
    axes = fig.subplots(len(images), n_panels, squeeze=False, gridspec_kw={"height_ratios": heights})
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(color="0.6", linewidth=0.5)
    return fig, axes


def _displayed_inputs(images):
    """Return the colours or the first feature of images, scaled to [0, 1] over all images."""
    shown = [image if image.shape[2] == 3 else image[..., 0] for image in images]
    low, high = min(image.min() for image in shown), max(image.max() for image in shown)
    if low >= 0 and high <= 1:
        return shown
    if low >= 0 and high <= 255 and images[0].shape[2] == 3:
        low, high = 0, 255
    return [(image - low) / (high - low or 1) for image in shown]


class LossCurveDisplay:
    """Display of the objective after each iteration of a fit.

    Parameters
    ----------
    loss_curve : array-like of shape (n_iter,)
        Values of the objective.
    name : str, default=None
        Name of the curve in the legend; None for no legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    Examples
    --------
    >>> from skcrf.plotting import LossCurveDisplay
    >>> display = LossCurveDisplay.from_loss_curve([0.7, 0.4, 0.3], name="TRW")  # doctest: +SKIP
    """

    def __init__(self, *, loss_curve, name=None):
        self.loss_curve = loss_curve
        self.name = name

    @classmethod
    def from_estimator(cls, estimator, *, name=None, ax=None, **kwargs):
        """Plot the loss curve of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator with `loss_curve_`, or a pipeline or a search that contains one.
        name : str, default=None
            Name of the curve in the legend; None for the name of the estimator's class.
        ax : matplotlib Axes, default=None
            Axes to draw into, which displays may share; None for new axes.
        **kwargs : dict
            Parameters of matplotlib's `plot`.

        Returns
        -------
        display : LossCurveDisplay
            The display.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        field = final_estimator(estimator)
        if not hasattr(field, "loss_curve_"):
            raise TypeError(f"estimator must have a loss_curve_, got {type(field).__name__} without one.")
        name = type(field).__name__ if name is None else name
        return cls.from_loss_curve(field.loss_curve_, name=name, ax=ax, **kwargs)

    @classmethod
    def from_loss_curve(cls, loss_curve, *, name=None, ax=None, **kwargs):
        """Plot a loss curve.

        Parameters
        ----------
        loss_curve : array-like of shape (n_iter,)
            Values of the objective.
        name : str, default=None
            Name of the curve in the legend; None for no legend.
        ax : matplotlib Axes, default=None
            Axes to draw into, which displays may share; None for new axes.
        **kwargs : dict
            Parameters of matplotlib's `plot`.

        Returns
        -------
        display : LossCurveDisplay
            The display.
        """
        check_matplotlib_support(f"{cls.__name__}.from_loss_curve")
        return cls(loss_curve=loss_curve, name=name).plot(ax=ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into, which displays may share; None for new axes.
        **kwargs : dict
            Parameters of matplotlib's `plot`.

        Returns
        -------
        display : LossCurveDisplay
            This display.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator

        if ax is None:
            _, ax = plt.subplots(figsize=(5.5, 3.5), layout="constrained")
        iterations = np.arange(1, len(self.loss_curve) + 1)
        options = {"label": self.name, "marker": "." if len(iterations) <= 50 else None, **kwargs}
        (self.line_,) = ax.plot(iterations, self.loss_curve, **options)
        ax.set(xlabel="Iteration", ylabel="Objective")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        if self.name is not None:
            ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

"""What all classifiers of fields have in common: they arrange the rooms and speak scikit-learn."""

import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from skcrf._examples import Labels, like_container, sorted_classes
from skcrf._registry import resolve
from skcrf.features import Batch, Weights, potentials, zero_weights
from skcrf.gradients import GRADIENTS, Backprop, BaseGradient
from skcrf.graph import clamp, isolated, pack, without_edges
from skcrf.inference import BP, INFERENCE, BaseInference
from skcrf.losses import LOSSES, BaseLoss, UnivariateLogistic
from skcrf.metrics import pooled_accuracy
from skcrf.objective import Objective, workers
from skcrf.optimizers import LBFGS, OPTIMIZERS, BaseOptimizer

# Sites that make a batch worth its overhead. Larger examples are batches of their own, and their features
# are not copied; smaller ones are packed together. A constant, so that results do not depend on n_jobs.
_BATCH_SITES = 2048


class Fields(NamedTuple):
    """Validated examples.

    Attributes
    ----------
    features : list of ndarray of shape (n_sites, n_features), or one ndarray
        The features of each example; for a table one array whose rows are the examples.
    shapes : list of tuple
        The shape of the labels of each example; () for the rows of a table.
    """

    features: list | np.ndarray
    shapes: list

    @property
    def is_table(self):
        """Whether the examples are rows of a table."""
        return self.shapes[0] == ()


class BaseFieldClassifier(ClassifierMixin, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the classifiers.

    Conventions
    -----------
    - A subclass says how X is read (`_read`), which graph an example has (`_graph`) and which features its
      edges have (`_edge_features`); the rest is here.
    - Objective = mean loss per labelled site + alpha / 2 (||coef_||^2 + ||edge_coef_||^2).
    """

    _components = {
        "inference": INFERENCE,
        "loss": LOSSES,
        "gradient": GRADIENTS,
        "optimizer": OPTIMIZERS,
    }

    _parameter_constraints = {
        "inference": [StrOptions(set(INFERENCE)), BaseInference],
        "loss": [StrOptions(set(LOSSES)), BaseLoss],
        "gradient": [StrOptions(set(GRADIENTS)), BaseGradient],
        "optimizer": [StrOptions(set(OPTIMIZERS)), BaseOptimizer],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "missing_label": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "classes": ["array-like", None],
        "n_jobs": [Integral, None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _read(self, X, *, reset):
        """Validate X and return Fields; with `reset` also set `n_features_in_`."""

    @abstractmethod
    def _fit_edge_features(self, fields):
        """Learn what edge features need; sets attributes that end in an underscore."""

    @abstractmethod
    def _graph(self, shape):
        """Return the Graph of an example with labels of this shape."""

    @abstractmethod
    def _edge_features(self, graph, X):
        """Return the features of the tables of one example, (n_tables, n_edge_features_of_a_group)."""

    @property
    @abstractmethod
    def _n_edge_features(self):
        """Number of edge features of each group, and number of groups."""

    def set_params(self, **params):
        """Set parameters.

        A component that was given by name becomes an instance when one of its own parameters is set,
        so that ``inference__max_iter`` works whether `inference` is "trw" or ``TRW()``.

        Parameters
        ----------
        **params : dict
            Parameters of the estimator or, as ``component__parameter``, of its components.

        Returns
        -------
        self : object
            The estimator.
        """
        for name, registry in self._components.items():
            choice = params.get(name, getattr(self, name))
            nested = any(key.startswith(f"{name}__") for key in params)
            if nested and isinstance(choice, str) and choice in registry:
                params = {name: registry[choice](), **{k: v for k, v in params.items() if k != name}}
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, Y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like
            Labels of every site: ints or strings; hidden where masked or equal to `missing_label`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        start = self._weights() if self.warm_start and hasattr(self, "coef_") else None
        batches, shape = self._prepare(X, Y, sample_weight, reset=True)
        if start is None or any(a.shape != b.shape for a, b in zip(start, shape, strict=True)):
            start = None
        context = self._init_callback_context(max_subtasks=self.max_iter)
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        told = {"estimator": self, "X": X, "y": Y, "metadata": metadata}
        context.call_on_fit_task_begin(**told)
        with workers(self.n_jobs) as run:
            if start is None:
                start = self._independent(batches, shape, run)
            objective = self._objective(batches, shape, run)
            monitor = _Monitor(self, start, context, told)
            self._learn(objective, start, monitor)
        context.call_on_fit_task_end(**told, reconstruction_attributes=lambda: {})
        return self

    @available_if(lambda self: _is_incremental(self.optimizer))
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, Y, classes=None, sample_weight=None):
        """Make one pass over some more examples; needs a mini-batch optimizer such as "adam".

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like
            Labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come. Needed in the first call, unless the parameter `classes` of the
            estimator has them or Y holds them all.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The estimator.
        """
        first = not hasattr(self, "coef_")
        batches, shape = self._prepare(X, Y, sample_weight, reset=first, classes=classes)
        w = (shape if first else self._weights()).ravel()
        state = self.optimizer_.start(w) if first else self._optimizer_state
        rng = check_random_state(self.random_state) if first else self._rng
        with workers(self.n_jobs) as run:
            objective = self._objective(batches, shape, run)
            w, value, state = self.optimizer_.epoch(objective, w, state, rng)
        self._optimizer_state, self._rng = state, rng
        self._set_weights(shape.unravel(w))
        self.n_iter_ = 1 if first else self.n_iter_ + 1
        self.loss_curve_ = [value] if first else [*self.loss_curve_, value]
        self.converged_ = False
        return self

    def _prepare(self, X, Y, sample_weight, *, reset, classes=None):
        """Validate everything, then set what does not depend on the weights; return batches and weights."""
        before = vars(self).copy()
        try:
            fields = self._read(X, reset=reset)
            labels = Labels(Y, fields.shapes, missing_label=self.missing_label)
            if reset:
                self.classes_ = self._find_classes(labels, classes)
                self._fit_edge_features(fields)
                for name, registry in self._components.items():
                    setattr(self, f"{name}_", resolve(registry, getattr(self, name), name=name))
            y = labels.encode(self.classes_)
            y = y[0] if fields.is_table else y
            weight = self._check_weight(sample_weight, X)
            batches = self._pack(fields, y, weight, batch_size=self.optimizer_.batch_size)
        except Exception:
            # What is refused loses nothing: the estimator is as it was.
            vars(self).clear()
            vars(self).update(before)
            raise
        n_edge_features, n_groups = self._n_edge_features
        return batches, zero_weights(len(self.classes_), self.n_features_in_, n_edge_features * n_groups)

    def _find_classes(self, labels, classes):
        classes = self.classes if classes is None else classes
        return labels.classes() if classes is None else sorted_classes([classes], name="classes")

    def _check_weight(self, sample_weight, X):
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not (weight > 0).any():
            raise ValueError("sample_weight is zero for every example: at least one must be positive.")
        return weight

    def _class_weights(self, y, weight):
        """Return the weight of each class, or None."""
        if self.class_weight is None:
            return None
        if not self.loss_.site_weighted:
            able = sorted(name for name, loss in LOSSES.items() if loss.site_weighted)
            raise ValueError(
                f"class_weight={self.class_weight!r} needs a loss that is a sum over sites, which "
                f"{type(self.loss_).__name__} is not; take one of {able}."
            )
        if self.class_weight != "balanced":
            return compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        n_classes = len(self.classes_)
        counts = sum(
            w * np.bincount(np.ravel(one)[np.ravel(one) >= 0], minlength=n_classes)
            for one, w in zip(y, weight, strict=True)
        )
        present = counts > 0
        return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)

    def _pack(self, fields, y, weight, *, batch_size=None):
        """Pack examples into batches, leaving out those that teach nothing.

        `y` None packs all examples, for prediction.
        """
        keep = np.arange(len(fields.shapes))
        class_weights = None
        if y is None:
            y = np.full(len(keep), -1) if fields.is_table else [np.full(s, -1) for s in fields.shapes]
        else:
            taught = y >= 0 if fields.is_table else np.array([(one >= 0).any() for one in y])
            keep = np.flatnonzero(taught & (weight > 0))
            if len(keep) == 0:
                raise ValueError("No example has both a label in Y and a positive sample_weight.")
            class_weights = self._class_weights(y, weight)
        make = self._table_batch if fields.is_table else self._batch
        return [
            make(fields, y, weight, class_weights, chosen)
            for chosen in _partition(keep, fields.shapes, batch_size)
        ]

    def _table_batch(self, fields, y, weight, class_weights, chosen):
        X, y = fields.features, y[chosen]
        whole = chosen[-1] - chosen[0] + 1 == len(chosen)
        X = X[chosen[0] : chosen[-1] + 1] if whole else X[chosen]
        V = np.zeros((0, self._n_edge_features[0]))
        return Batch(isolated(len(chosen)), X, V, y, weight[chosen], _of_sites(class_weights, y))

    def _batch(self, fields, y, weight, class_weights, chosen):
        graphs = [self._graph(fields.shapes[i]) for i in chosen]
        features = [fields.features[i] for i in chosen]
        V = [self._edge_features(graph, X) for graph, X in zip(graphs, features, strict=True)]
        y = np.concatenate([np.ravel(y[i]) for i in chosen])
        single = len(chosen) == 1
        return Batch(
            pack(graphs),
            features[0] if single else np.concatenate(features),
            V[0] if single else np.concatenate(V),
            y,
            weight[chosen],
            _of_sites(class_weights, y),
        )

    def _objective(self, batches, shape, run):
        return Objective(
            batches,
            shape,
            loss=self.loss_,
            inference=self.gradient_.wrap(self.inference_),
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            run=run,
        )

    def _independent(self, batches, shape, run):
        """Fit the model without edges, from which the others start (D13 section 8)."""
        if not any(batch.graph.n_edges for batch in batches):
            return shape
        none = np.zeros((0, self._n_edge_features[0]))
        alone = [batch._replace(graph=without_edges(batch.graph), V=none) for batch in batches]
        objective = Objective(
            alone,
            shape,
            loss=UnivariateLogistic(),
            inference=Backprop().wrap(BP(max_iter=0)),
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            run=run,
        )
        result = LBFGS().minimize(
            objective,
            shape.ravel(),
            max_iter=self.max_iter,
            tol=self.tol,
            callback=lambda w, value: False,
            rng=None,
        )
        return shape.unravel(result.x)

    def _learn(self, objective, start, monitor):
        """Run the optimizer, set the fitted attributes, and tell if it did not converge."""
        try:
            result = self.optimizer_.minimize(
                objective,
                start.ravel(),
                max_iter=self.max_iter,
                tol=self.tol,
                callback=monitor,
                rng=check_random_state(self.random_state),
            )
            w, finished, message = result.x, result.success, result.message
        except KeyboardInterrupt:
            w, finished, message = monitor.best_w, False, "interrupted, the best weights so far are kept"
        self._set_weights(start.unravel(w))
        self.n_iter_ = len(monitor.loss_curve)
        self.loss_curve_ = monitor.loss_curve
        self.converged_ = bool(finished and objective.converged)
        if not finished and not monitor.stopped:
            problem = f"{type(self.optimizer_).__name__} did not converge ({message})"
            advice = "raise max_iter or tol, or scale the features"
        elif not objective.converged:
            problem = f"{type(self.inference_).__name__} did not converge on every example"
            advice = "raise its max_iter, tol or damping, or truncate it with tol=0"
        else:
            return
        warnings.warn(f"{problem}: {advice}.", ConvergenceWarning, stacklevel=4)

    def _weights(self):
        return Weights(self.coef_, self.intercept_, self.edge_coef_)

    def _set_weights(self, weights):
        for name, values in weights._asdict().items():
            setattr(self, f"{name}_", np.array(values))

    def _infer(self, X, Y, *, edges=False):
        """Read X, and yield each batch with its beliefs."""
        check_is_fitted(self)
        fields = self._read(X, reset=False)
        y = None
        weight = np.ones(len(fields.shapes))
        batches = self._pack(fields, None, weight)
        if Y is not None:
            labels = Labels(Y, fields.shapes, missing_label=self.missing_label)
            y = np.concatenate([np.ravel(one) for one in labels.encode(self.classes_)])
        weights, known, first = self._weights(), [], 0
        for batch in batches:
            last = first + batch.graph.n_nodes
            known.append(batch if y is None else batch._replace(y=y[first:last]))
            first = last

        def infer(batch):
            theta = clamp(potentials(weights, batch), batch.y)
            beliefs = self.inference_.forward(batch.graph, theta, edges=edges)
            return batch.graph, beliefs.mu, beliefs.edge_mu, beliefs.converged.all()

        with workers(self.n_jobs) as run:
            results = run(infer, known)
        if not all(converged for _, _, _, converged in results):
            name = type(self.inference_).__name__
            warnings.warn(
                f"{name} did not converge on every example: raise its max_iter, tol or damping.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return fields, results

    def predict_proba(self, X, Y=None):
        """Infer the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known: labels of some sites, hidden where masked or equal to `missing_label`. The answer is
            then given these labels.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Probabilities of the classes, in the order of `classes_`, in the kind of container that X is.
        """
        fields, results = self._infer(X, Y)
        mu = [mu for _, mu, _, _ in results]
        if fields.is_table:
            return np.concatenate(mu)
        split = [np.split(mu, graph.node_ptr[1:-1]) for graph, mu, _, _ in results]
        examples = [one for batch in split for one in batch]
        shaped = [one.reshape(*shape, -1) for one, shape in zip(examples, fields.shapes, strict=True)]
        return like_container(X, shaped)

    def predict_log_proba(self, X, Y=None):
        """Infer the logarithms of the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Log-probabilities of the classes.
        """
        with np.errstate(divide="ignore"):
            return _map_examples(np.log, self.predict_proba(X, Y))

    def predict(self, X, Y=None):
        """Predict the label of every site: the one of the largest marginal.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        Y : sequence of ndarray
            Labels, in the kind of container that X is.
        """
        return _map_examples(lambda p: self.classes_[np.argmax(p, axis=-1)], self.predict_proba(X, Y))

    def score(self, X, Y, sample_weight=None):
        """Compute the pooled accuracy: the share of labelled sites that are predicted right.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like
            True labels; hidden ones do not count.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        score : float
            Accuracy.
        """
        predicted = self.predict(X)
        return pooled_accuracy(Y, predicted, missing_label=self.missing_label, sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_incremental(optimizer):
    optimizer = OPTIMIZERS.get(optimizer, optimizer) if isinstance(optimizer, str) else optimizer
    if not hasattr(optimizer, "epoch"):
        able = sorted(name for name, one in OPTIMIZERS.items() if hasattr(one, "epoch"))
        raise AttributeError(f"partial_fit needs a mini-batch optimizer: one of {able}, got {optimizer!r}.")
    return True


def _partition(keep, shapes, batch_size):
    """Cut the examples into runs of few examples and of few sites, whichever is less."""
    sizes = np.array([int(np.prod(shapes[i])) for i in keep])
    start, sites = 0, 0
    for i, size in enumerate(sizes):
        full = sites + size > _BATCH_SITES or (batch_size is not None and i - start >= batch_size)
        if i > start and full:
            yield keep[start:i]
            start, sites = i, 0
        sites += size
    yield keep[start:]


def _of_sites(class_weights, y):
    return None if class_weights is None else np.where(y >= 0, class_weights[y], 0.0)


def _map_examples(function, P):
    """Apply a function to the array of each example, whatever the container."""
    if isinstance(P, np.ndarray) and P.dtype != object:
        return function(P)
    return like_container(P, [function(p) for p in P])


class _Monitor:
    """Follows an optimizer: keeps the curve and the best weights, and tells callbacks."""

    def __init__(self, estimator, start, context, told):
        self.estimator = estimator
        self.shape = start
        self.context = context
        self.told = told
        self.loss_curve = []
        self.best_value, self.best_w = np.inf, start.ravel()
        self.stopped = False

    def __call__(self, w, value):
        self.loss_curve.append(value)
        if value <= self.best_value:
            self.best_value, self.best_w = value, w.copy()
        if self.estimator.verbose:
            name = type(self.estimator).__name__
            print(f"[{name}] iteration {len(self.loss_curve)}: objective {value:.6g}")

        def attributes():
            weights = self.shape.unravel(w.copy())
            fitted = {f"{name}_": values for name, values in weights._asdict().items()}
            return {**fitted, "n_iter_": len(self.loss_curve), "loss_curve_": list(self.loss_curve)}

        iteration = self.context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(**self.told)
        self.stopped = iteration.call_on_fit_task_end(**self.told, reconstruction_attributes=attributes)
        return self.stopped

"""What all classifiers of fields have in common: they arrange the rooms and speak scikit-learn."""

from abc import ABC, abstractmethod
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from skcrf._registry import Instances, all_or_nothing, resolve
from skcrf.data import Labels, LazyLabels, Source, check_weights, is_lazy, is_table, sorted_classes
from skcrf.data.batches import (
    Fields,
    Reading,
    class_weights_of,
    count_labels,
    make_batches,
    partition,
    refuse_labelled,
)
from skcrf.data.lazy import lazy_batches
from skcrf.estimators._decoding import DECODINGS, Errors
from skcrf.estimators._prediction import PredictionMixin
from skcrf.gradients import GRADIENTS, BaseGradient
from skcrf.inference import INFERENCE, BaseInference
from skcrf.losses import LOSSES, BaseLoss
from skcrf.models.weights import TIES, Weights, zero_weights
from skcrf.optimizers import OPTIMIZERS, SCHEDULES, BaseOptimizer, BaseSchedule
from skcrf.parallel import prefetched
from skcrf.training.convergence import not_inferred, not_minimised, warn_of
from skcrf.training.learning import (
    STARTS,
    Monitor,
    learn,
    refuse_tasks,
    refuse_weights,
    suited,
    weights_of,
)
from skcrf.training.objective import Objective, workers

# The component that others choose, and how a user says so.
_AUTO = ("optimizer", "auto")


def _is_incremental(estimator):
    optimizer = estimator.optimizer
    if not hasattr(OPTIMIZERS.get(optimizer) if isinstance(optimizer, str) else optimizer, "epoch"):
        able = sorted(name for name, one in OPTIMIZERS.items() if hasattr(one, "epoch"))
        raise AttributeError(f"partial_fit needs optimizer to be one of {able}, got {optimizer!r}.")
    return True


class BaseFieldClassifier(PredictionMixin, ClassifierMixin, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the classifiers.

    Conventions
    -----------
    - A subclass says how an example is read (`_reads`, `_reader`), and which graph it has and which features
      its edges have (`_fit_edge_features`, `_structure`); the rest is here.
    - What is done with a batch is a small object that can be sent to another machine; it never holds the
      estimator.
    - Objective = mean loss per labelled site + alpha / 2 (||coef_||^2 + ||edge_coef_||^2).
    """

    _components = {
        "inference": INFERENCE,
        "loss": LOSSES,
        "gradient": GRADIENTS,
        "optimizer": OPTIMIZERS,
        "schedule": SCHEDULES,
    }

    _parameter_constraints = {
        "inference": [StrOptions(set(INFERENCE)), Instances(BaseInference, but=BaseGradient)],
        "loss": [StrOptions(set(LOSSES)), BaseLoss],
        "gradient": [StrOptions(set(GRADIENTS)), BaseGradient],
        "optimizer": [StrOptions({"auto", *OPTIMIZERS}), BaseOptimizer],
        "schedule": [StrOptions(set(SCHEDULES)), BaseSchedule],
        "init": [StrOptions({"auto", *STARTS}), HasMethods(["fit", "predict"])],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "decoding": [StrOptions({"auto", *DECODINGS})],
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

    #: What reads an example, before anything is known: a BaseReader.
    _reads = None
    #: What the weights of edges are allowed to be: a key of `TIES`.
    _symmetric = False
    #: Whether potentials are linear in the weights.
    _linear = True

    def _start_reading(self, X):
        """Make the reader for a fit, which expects nothing yet."""
        return self._reads

    @property
    def _reader(self):
        """The reader of examples that go with those of the fit."""
        return type(self._reads)(self.n_features_in_)

    @abstractmethod
    def _fit_edge_features(self, fields):
        """Learn what edge features need: sets `n_edge_features_`, those of each group of edges."""

    @property
    @abstractmethod
    def _structure(self):
        """What says which graph and edge features an example has: a BaseStructure."""

    @property
    @abstractmethod
    def _n_groups(self):
        """Number of groups of edges that have weights of their own."""

    def set_params(self, **params):
        """Set parameters.

        A component that was given by name becomes an instance when one of its own parameters is set,
        so that ``inference__max_iter`` works whether `inference` is "trw" or ``TRW()``. An optimizer that is
        "auto" becomes the one that suits the loss and the inference at this time.

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
            if nested and (name, choice) == _AUTO:  # the others first: it is theirs to choose
                own = {key: value for key, value in params.items() if key.partition("__")[0] == name}
                self.set_params(**{key: value for key, value in params.items() if key not in own})
                params = {**own, name: self._made(name, {**self.get_params(deep=False), name: choice})}
            elif nested and isinstance(choice, str) and choice in registry:
                params = {**params, name: registry[choice]()}
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        y : sequence of array-like
            Labels of every site: ints or strings; hidden where masked or equal to `missing_label`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with all_or_nothing(self) as before:
            batches, shape = self._prepare(X, y, sample_weight, reset=True)
            stages = self.schedule_.stages(sum(batch.n_examples for batch in batches), self.max_iter)
            context = self._init_callback_context(max_subtasks=sum(max_iter for _, max_iter in stages))
            metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
            told = {"estimator": self, "X": X, "y": y, "metadata": metadata}
            context.call_on_fit_task_begin(**told)
            with self._workers() as run:
                objective = self._objective(batches, shape, run)
                self._learn(objective, before, Monitor(self, shape, context, told))
            context.call_on_fit_task_end(**told, reconstruction_attributes=self._weights().fitted)
        return self

    @available_if(_is_incremental)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Make one pass over some more examples; needs a mini-batch optimizer such as "adam".

        The shape of the model, such as the number of neighbours and the features of edges, is that of the
        first call, and where dictionaries name features, these are the ones that it names: others, in later
        calls, are left out. The start, too, is that of the first call: `init` as for `fit`, with "auto" for
        zeros; where it names the model without edges or a loss, that is fitted to the examples of that call.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        y : sequence of array-like
            Labels, as for `fit`.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come. Needed in the first call, unless the parameter `classes` of
            the estimator has them or `y` holds them all.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The estimator.
        """
        first = not hasattr(self, "coef_")
        with all_or_nothing(self):
            self._pass_over(*self._prepare(X, y, sample_weight, reset=first, classes=classes), first)
        return self

    def _pass_over(self, batches, shape, first):
        if not batches:  # a chunk without labels or weights has nothing to teach
            return
        with self._workers() as run:
            objective = self._objective(batches, shape, run)
            # Few examples may come in the first call: it fits to them only what the user asks for by name.
            init = "zeros" if isinstance(self.init, str) and self.init == "auto" else self.init
            monitor = Monitor(self, shape)
            w = (self._start(init, objective, monitor) if first else self._weights()).ravel()
            # After a fit, or by another optimizer, it starts afresh from the fitted weights.
            fresh = (
                type(self.optimizer_),
                w,
                self.optimizer_.init_state(w),
                check_random_state(self.random_state),
            )
            before = vars(self).get("_pass", fresh)
            _, w, state, rng = before if before[0] is fresh[0] else fresh
            w, value, state = self.optimizer_.epoch(objective, w, state, rng)
        self._pass = fresh[0], w, state, rng
        monitor.loss_curve = [*([] if first else self.loss_curve_), value]
        self._set_fitted(shape.unravel(self.optimizer_.averaged(w, state)), monitor, converged=False)

    @property
    def _init(self):
        """What `fit` starts from: the name of a start, or an estimator."""
        if not (isinstance(self.init, str) and self.init == "auto"):
            return self.init
        return self.loss_.starts_from if self.optimizer_.uses_init else "zeros"

    def _start(self, init, objective, monitor):
        """Find the weights to start from."""
        if isinstance(init, str):
            return STARTS[init](objective, monitor.minimise)
        return self._allowed(weights_of(init, objective.shape, self.classes_))

    def _allowed(self, start):
        """Make weights those of a model with these parameters."""
        if not self.fit_intercept:
            start = start._replace(intercept=np.zeros_like(start.intercept))
        return start._replace(edge_coef=self._tie(start.edge_coef))

    @property
    def _tie(self):
        return partial(TIES[self._symmetric], n_groups=self._n_groups)

    def _warm_start(self, before, shape):
        """Return the weights from before the fit, None if they are those of another model."""
        if "coef_" not in before or not np.array_equal(before["classes_"], self.classes_):
            return None
        start = self._weights()
        return self._allowed(start) if start.shapes() == shape.shapes() else None

    def _read(self, X, *, reset):
        """Validate X and return Fields; with `reset` also set `n_features_in_`."""
        if is_table(X, self._reads.is_example, self._reads.many):
            self._reads.check_table(X)
            X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
            return Fields(X, [()] * len(X), self._reads)
        if len(X) == 0:
            raise ValueError(f"X is empty: expected at least one {self._reads.one}.")
        source = Source(X, "X") if is_lazy(X) else None
        given = X if source is None else prefetched(source.__getitem__, range(len(X)))
        reader = self._start_reading(X) if reset else self._reader
        examples, shapes = [], []
        for i, one in enumerate(given):
            example = reader(one, f"X[{i}]" if source is None else source.called(i))
            reader = reader.like(example, f"X[{i}]") if reset else reader
            shapes.append(example.shape)
            if source is None:
                examples.append(example)
        if reset:
            self.n_features_in_ = reader.n_features
            vars(self).pop("feature_names_in_", None)
        return Fields(examples if source is None else source, shapes, reader)

    def _prepare(self, X, y, sample_weight, *, reset, classes=None):
        """Validate everything, set what does not depend on weights; return batches and zero weights."""
        fields = self._read(X, reset=reset)
        lazy_y = is_lazy(y) and not fields.is_table  # the labels of a table are read at once
        kind = LazyLabels if lazy_y else Labels
        missing_label, advice = self.missing_label, self._reads.advice
        labels = kind(y, fields.shapes, missing_label=missing_label, name="y", advice=advice)
        if reset:
            self.classes_ = self._find_classes(labels, classes)
            self._fit_edge_features(fields)
            vars(self).pop("_pass", None)
        elif classes is not None and not np.array_equal(
            sorted_classes([classes], name="classes"), self.classes_
        ):
            raise ValueError(f"classes={classes!r} differs from {self.classes_.tolist()} in an earlier call.")
        for name in self._components:
            setattr(self, f"{name}_", self._made(name, self.get_params(deep=False)))
        refuse_tasks(self._losses(), self.inference_)
        # What would be refused after a long fit is refused now.
        self.inference_.check_layout(self._structure.layout)
        self._decoding()
        weight = check_weights(sample_weight, len(fields.shapes))
        encoded = None if lazy_y else labels.encode(self.classes_)
        if not (lazy_y or fields.is_lazy or fields.is_table):
            for i, example in enumerate(fields.examples):
                refuse_labelled(example.outline, encoded[i].ravel(), f"y[{i}]")
        counts = labels.counts(self.classes_) if lazy_y else None
        n_labels, totals = count_labels(encoded, counts, weight, len(self.classes_), fields.is_table)
        for _, loss in self._losses():
            loss.check(self.inference_, n_labels * (weight > 0), fields.sizes, len(self.classes_))
        reading = self._reading(self._class_weights(totals, fields.sizes))
        keep = np.flatnonzero((n_labels > 0) & (weight > 0))
        chosen = partition(
            keep, fields.sizes, self.optimizer_.batch_size, check_random_state(self.random_state)
        )
        if fields.is_lazy or lazy_y:
            batches = lazy_batches(X, y, reading, chosen, weight, fields.shapes, n_labels)
        else:
            batches = make_batches(fields, encoded, reading, chosen, weight)
        if reset and not batches:
            raise ValueError("No example has both a label in y and a non-zero weight in sample_weight.")
        n_edge_features = self.n_edge_features_ * self._n_groups
        return batches, zero_weights(len(self.classes_), self.n_features_in_, n_edge_features)

    def _made(self, component, params):
        """Make a component of what the user says in some parameters, or of what suits others."""
        choice = params[component]
        if (component, choice) == _AUTO:
            choice = suited(self._made("loss", params), self._made("inference", params), self._linear)
        return resolve(self._components[component], choice, name=component)

    def _reading(self, class_weights=None):
        return Reading(self._reader, self.classes_, self.missing_label, class_weights, self._structure)

    def _workers(self):
        return workers(self.n_jobs, verbose=self.verbose, name=type(self).__name__)

    def _find_classes(self, labels, classes):
        found = labels.classes()  # also where the classes are given: refuses labels that are all hidden
        classes = self.classes if classes is None else classes
        if classes is None:
            return found
        if np.ndim(classes) != 1 or len(classes) == 0:
            raise ValueError(f"classes must be a list of labels, got {classes!r}.")
        classes = sorted_classes([classes], name="classes")
        if self.missing_label is not None and self.missing_label in classes.tolist():
            raise ValueError(
                f"classes holds missing_label={self.missing_label!r}, which stands for no label."
            )
        return classes

    def _losses(self):
        """Yield the parameter and the loss that it asks for: of the fit, and of all that it starts from."""
        yield "loss", self.loss_
        init = self._init
        while isinstance(init, str) and init in LOSSES:
            yield "init", LOSSES[init]()
            init = LOSSES[init].starts_from

    def _class_weights(self, totals, sizes):
        if self.class_weight is not None and (sizes > 1).any():
            refuse_weights(self._losses(), self.class_weight)
        return class_weights_of(self.class_weight, self.classes_, totals)

    def _objective(self, batches, shape, run):
        infers = any(
            loss.needs | loss.tasks for _, loss in self._losses()
        )  # if not, a strategy has nothing to refuse
        return Objective(
            batches,
            shape,
            loss=self.loss_,
            inference=self.gradient_.wrap(self.inference_) if infers else self.inference_,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            tie=self._tie,
            run=run,
            judge=partial(Errors, inference=self.inference_, decoding=self._decoding()),
        )

    def _learn(self, objective, before, monitor):
        """Run the optimizer, set the fitted attributes, and tell if it did not converge.

        `before` are the attributes from before the fit.
        """

        def start():
            warm = self._warm_start(before, objective.shape) if self.warm_start else None
            return self._start(self._init, objective, monitor) if warm is None else warm

        result = learn(
            objective,
            start,
            optimizer=self.optimizer_,
            schedule=self.schedule_,
            max_iter=self.max_iter,
            tol=self.tol,
            monitor=monitor,
            rng=check_random_state(self.random_state),
        )
        if (self.inference_.tol or 0) > 0 and result.success is not None:
            objective(result.x)  # the last evaluation need not have been of these weights, or of all examples
        converged = bool(result.success and objective.converged)
        self._set_fitted(self._allowed(objective.shape.unravel(result.x)), monitor, converged=converged)
        if result.success is None:
            warn_of("The fit was interrupted", "the best weights so far are kept")
        elif not result.success and not monitor.stopped:
            fitted = self.optimizer_, self.loss_, self.inference_, self._linear
            warn_of(*not_minimised(result, *fitted))
        elif not objective.converged:
            warn_of(*not_inferred(self.inference_))

    def _weights(self):
        return Weights(self.coef_, self.intercept_, self.edge_coef_)

    def _set_fitted(self, weights, monitor, *, converged):
        for name, values in (weights.fitted() | monitor.curves()).items():
            setattr(self, name, values)
        self.converged_ = converged

    def __sklearn_is_fitted__(self):
        return hasattr(self, "coef_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

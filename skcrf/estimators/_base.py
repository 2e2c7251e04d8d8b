"""The base class of the classifiers: it arranges the other packages behind the scikit-learn API."""

from abc import ABC, abstractmethod
from copy import deepcopy
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import validate_data

from skcrf._registry import Instances, resolve, restore_on_error
from skcrf.data import (
    Examples,
    Labels,
    check_classes,
    check_unlabelled,
    check_weights,
    compute_class_weights,
    is_lazy,
    is_table,
    make_batches,
    partition,
    read_examples,
    sorted_classes,
)
from skcrf.estimators._decoding import DECODINGS, CountErrors
from skcrf.estimators._partial_fit import PartialFitMixin
from skcrf.estimators._prediction import PredictionMixin
from skcrf.gradients import GRADIENTS, BaseGradient
from skcrf.inference import INFERENCE, BaseInference
from skcrf.losses import LOSSES, BaseLoss
from skcrf.models import PairwiseModel
from skcrf.optimizers import OPTIMIZERS, SCHEDULES, BaseOptimizer, BaseSchedule
from skcrf.parallel import workers
from skcrf.training import (
    STARTS,
    Monitor,
    Objective,
    calls_inference,
    check_class_weight,
    check_inference,
    check_layout,
    choose_decoding,
    default_optimizer,
    fitted_attributes,
    inferences_of,
    run_stages,
    start_from_estimator,
    warn_inference,
    warn_interrupted,
    warn_optimizer,
)

# The component that is chosen to suit the others, and the value that asks for it.
_AUTO = ("optimizer", "auto")


class BaseFieldClassifier(
    PartialFitMixin, PredictionMixin, ClassifierMixin, CallbackSupportMixin, BaseEstimator, ABC
):
    """Base class of the classifiers.

    Conventions
    -----------
    - A subclass gives the reader of its examples (`_reader`), learns what the features of edges need
      (`_fit_edge_features`), and gives the graphs of examples (`_topology`) and the model (`_model`).
    - Work on a batch is a small object that can be sent to another machine; it never holds the estimator.
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

    #: Reader of examples before a fit: a BaseReader.
    _reader = None
    #: Class of the model; `_model_options` are its arguments.
    _model_class = PairwiseModel

    def _first_reader(self, X):
        """Return the reader of a fit, which expects no number of features yet."""
        return self._reader

    @property
    def _fitted_reader(self):
        """The reader of examples that agree with those of the fit."""
        return type(self._reader)(self.n_features_in_)

    @abstractmethod
    def _fit_edge_features(self, examples):
        """Learn what the features of edges need, before `_topology` is asked for."""

    @property
    @abstractmethod
    def _topology(self):
        """The Topology of the fit: graphs and edge features of examples."""

    def _model(self):
        """Return the model of the fit."""
        return self._model_class(**self._model_options())

    def _model_options(self):
        """Return the arguments of the model; a subclass may add its own."""
        topology = self._topology
        return {
            "n_classes": len(self.classes_),
            "n_features": self.n_features_in_,
            "n_edge_features": topology.n_edge_features,
            "n_groups": topology.n_groups,
            "fit_intercept": self.fit_intercept,
        }

    def _params(self, model):
        """Return the fitted parameters of the model."""
        fitted = vars(self)
        return {name: fitted[f"{name}_"] for name in model.shapes}

    def _fitted_model(self):
        """Return the model and its fitted weight vector."""
        model = self._model()
        return model, model.pack(self._params(model))

    def set_params(self, **params):
        """Set parameters.

        A component given by name becomes an instance when one of its own parameters is set, so that
        ``inference__max_iter`` works whether `inference` is "trw" or ``TRW()``. The optimizer "auto" becomes
        the one that suits the loss and the inference at that time.

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
            choice = params.get(name, self.get_params(deep=False)[name])
            nested = any(key.startswith(f"{name}__") for key in params)
            if nested and (name, choice) == _AUTO:  # set the others first, as the choice depends on them
                own = {key: value for key, value in params.items() if key.partition("__")[0] == name}
                self.set_params(**{key: value for key, value in params.items() if key not in own})
                params = {**own, name: self._component(name, {**self.get_params(deep=False), name: choice})}
            elif nested and isinstance(choice, str) and choice in registry:
                params = {**params, name: registry[choice]()}
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : sequence of examples
            Training examples; see the class.
        y : sequence of array-like
            Labels of every site, integers or strings; hidden where masked or equal to `missing_label`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with restore_on_error(self) as before:
            batches = self._prepare(X, y, sample_weight, reset=True)
            stages = self.schedule_.stages(sum(batch.n_examples for batch in batches), self.max_iter)
            context = self._init_callback_context(max_subtasks=sum(max_iter for _, max_iter in stages))
            metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
            arguments = {"estimator": self, "X": X, "y": y, "metadata": metadata}
            context.call_on_fit_task_begin(**arguments)
            with self._workers() as run:
                objective = self._objective(batches, run)
                monitor = Monitor(self, objective.model, context, arguments)
                self._minimise(objective, before, monitor)
            attributes = fitted_attributes(self._params(objective.model)) | monitor.curves()
            context.call_on_fit_task_end(**arguments, reconstruction_attributes=lambda: attributes)
        return self

    @property
    def _init(self):
        """The start of `fit`: a name, or an estimator."""
        if not (isinstance(self.init, str) and self.init == "auto"):
            return self.init
        return self.loss_.starts_from if self.optimizer_.uses_init else "zeros"

    def _start(self, init, objective, monitor):
        """Return the weights to start from."""
        if isinstance(init, str):
            # Other draws do not depend on the start. NumPy's own generator would be copied in the same state.
            rng = np.random.RandomState()
            if self.random_state is not None:
                rng = deepcopy(check_random_state(self.random_state))
            return STARTS[init](objective, monitor.fit_start, rng)
        model = objective.model
        return model.pack(model.project(start_from_estimator(init, model, self.classes_)))

    def _warm_start(self, before, model):
        """Return the weights of the last fit, or None if they are those of another model."""
        if not all(f"{name}_" in before for name in model.shapes):
            return None
        params = {name: before[f"{name}_"] for name in model.shapes}
        same_shapes = all(params[name].shape == shape for name, shape in model.shapes.items())
        if not same_shapes or not np.array_equal(before["classes_"], self.classes_):
            return None
        return model.pack(model.project(params))

    def _read(self, X, *, reset):
        """Validate X and return Examples; with `reset` also set `n_features_in_`."""
        if is_table(X, self._reader.is_example, self._reader.many):
            self._reader.check_table(X)
            X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
            return Examples(X, self._reader, [()] * len(X))
        if len(X) == 0:
            raise ValueError(f"X must hold at least one {self._reader.one}, got none.")
        reader = self._first_reader(X) if reset else self._fitted_reader
        examples = read_examples(X, reader, agree=reset)
        if reset:
            self.n_features_in_ = examples.reader.n_features
            vars(self).pop("feature_names_in_", None)
        return examples

    def _prepare(self, X, y, sample_weight, *, reset, classes=None):
        """Validate everything, set all attributes that do not depend on weights, and return batches."""
        examples = self._read(X, reset=reset)
        labels = Labels(
            y,
            examples.shapes,
            missing_label=self.missing_label,
            name="y",
            advice=self._reader.advice,
            keep=not is_lazy(y),
        )
        if reset:
            self.classes_ = self._find_classes(labels, classes)
            self._fit_edge_features(examples)
            vars(self).pop("_partial_fit_state", None)
        elif classes is not None and not np.array_equal(
            sorted_classes([classes], name="classes"), self.classes_
        ):
            raise ValueError(
                f"classes must be {self.classes_.tolist()}, as in an earlier call, got {classes!r}."
            )
        self._set_components()
        weight = check_weights(sample_weight, len(examples))
        y, n_labels, totals = self._encode(labels, examples, weight)
        for _, loss in self._losses():
            loss.check(self.inference_, n_labels * (weight > 0), examples.sizes, len(self.classes_))
        if self.class_weight is not None and (examples.sizes > 1).any():
            check_class_weight(self._losses(), self.class_weight)
        keep = np.flatnonzero((n_labels > 0) & (weight > 0))
        rng = check_random_state(self.random_state)
        parts = list(partition(keep, examples.sizes, self.optimizer_.batch_size, rng))
        class_weights = None
        if self.class_weight is not None:
            class_weights = compute_class_weights(self.class_weight, self.classes_, totals)
        if reset and not parts:
            raise ValueError(
                "y and sample_weight must leave an example with a label and a non-zero weight, got none."
            )
        return make_batches(
            examples, y, self._topology, parts, weight, class_weights=class_weights, n_labels=n_labels
        )

    def _find_classes(self, labels, classes):
        found = labels.classes()  # also if classes are given: raises an error if all labels are hidden
        classes = self.classes if classes is None else classes
        return found if classes is None else check_classes(classes, self.missing_label)

    def _set_components(self):
        """Resolve the components, and raise the errors now that would come after a long fit."""
        for name in self._components:
            setattr(self, f"{name}_", self._component(name, self.get_params(deep=False)))
        check_inference(self._losses(), self.inference_, self.gradient_)
        check_layout(self._losses(), self.inference_, self._model_class.layout)
        self._decoding()

    def _decoding(self):
        """Return the name of the decoding, or raise an error if the inference cannot do it."""
        return choose_decoding(self.decoding, self.loss_, self.inference_)

    def _component(self, name, params):
        """Return a component from its parameter, or the one that suits the others."""
        choice = params[name]
        if (name, choice) == _AUTO:
            loss, inference = (self._component(other, params) for other in ("loss", "inference"))
            choice = default_optimizer(loss, inference, self._model_class.is_linear)
        return resolve(self._components[name], choice, name=name)

    def _encode(self, labels, examples, weight):
        """Return class indices, the number of labels of each example, and the weight of each class."""
        y = labels.encode(self.classes_)
        if examples.is_table:
            known = y[0] >= 0
            totals = np.bincount(y[0][known], weights=weight[known], minlength=len(self.classes_))
            return y, known.astype(np.int64), totals
        if not (examples.is_lazy or labels.is_lazy):
            for i, example in enumerate(examples.items):
                check_unlabelled(self._topology, example, y[i].ravel(), f"y[{i}]")
        counts = labels.counts(self.classes_)
        return y, counts.sum(axis=1), weight @ counts

    def _losses(self):
        """Yield pairs of a parameter and the loss that it asks for: of the fit, and of its starts."""
        yield "loss", self.loss_
        init = self._init
        while isinstance(init, str) and init in LOSSES:
            loss = LOSSES[init]()
            yield "init", loss
            init = loss.starts_from

    def _workers(self):
        return workers(self.n_jobs, verbose=self.verbose, name=type(self).__name__)

    def _objective(self, batches, run):
        # Wrap the inference only if a loss calls it: a strategy that does not fit it has nothing to refuse.
        infers = any(calls_inference(loss) for _, loss in self._losses())
        return Objective(
            batches,
            self._model(),
            loss=self.loss_,
            inference=self.gradient_.wrap(self.inference_) if infers else self.inference_,
            alpha=self.alpha,
            run=run,
            count_errors=partial(CountErrors, inference=self.inference_, decoding=self._decoding()),
        )

    def _minimise(self, objective, before, monitor):
        """Run the optimizer, set the fitted attributes, and warn if it did not converge.

        `before` are the attributes from before the fit.
        """

        def start():
            warm = self._warm_start(before, objective.model) if self.warm_start else None
            return self._start(self._init, objective, monitor) if warm is None else warm

        result = run_stages(
            objective,
            start,
            optimizer=self.optimizer_,
            schedule=self.schedule_,
            max_iter=self.max_iter,
            tol=self.tol,
            monitor=monitor,
            rng=check_random_state(self.random_state),
        )
        inferences = inferences_of(self.loss_, self.inference_)
        if result.success is not None and any(one.tol != 0 for one in inferences):
            objective(result.x)  # the last evaluation may have been of other weights, or of some examples
        converged = bool(result.success and objective.converged)
        params = objective.model.project(objective.model.unpack(result.x))
        self._set_fitted(params, monitor, converged=converged)
        if result.success is None:
            warn_interrupted()
        elif not result.success and not monitor.stopped:
            warn_optimizer(result, self.optimizer_, self.loss_, self.inference_, objective.model)
        elif not objective.converged:
            warn_inference(*inferences)

    def _set_fitted(self, params, monitor, *, converged):
        for name, values in (fitted_attributes(params) | monitor.curves()).items():
            setattr(self, name, values)
        self.converged_ = converged

    def __sklearn_is_fitted__(self):
        return "n_iter_" in vars(self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

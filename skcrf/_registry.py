"""Components chosen by name or passed as instances."""

from contextlib import contextmanager

from sklearn.base import clone
from sklearn.utils._param_validation import Options


class Instances(Options):
    """Parameter constraint: instances of a class, except those of one of its subclasses.

    Parameters
    ----------
    type : type
        The class.
    but : type
        The subclass, which has a parameter of its own.
    """

    def __init__(self, type, but):
        super().__init__(type, set())
        self.but = but

    def is_satisfied_by(self, val):
        """Return whether a value satisfies the constraint."""
        return isinstance(val, self.type) and not isinstance(val, self.but)

    def __str__(self):
        return f"an instance of {self.type.__qualname__!r} that is not a {self.but.__qualname__!r}"


def resolve(registry, choice, *, name):
    """Make a component from a name in the registry, or clone an instance; validate its parameters.

    `name` is the name of the parameter in error messages.
    """
    if isinstance(choice, str):
        if choice not in registry:
            raise ValueError(f"{name} must be one of {sorted(registry)} or an instance, got {choice!r}.")
        component = registry[choice]()
    else:
        component = clone(choice)
    component._validate_params()
    return component


def names_of(registry, condition):
    """List the names of the components that meet a condition with their default parameters."""
    return sorted(name for name, component in registry.items() if condition(component()))


@contextmanager
def restore_on_error(estimator):
    """Restore all attributes of an estimator if an error is raised; yield the attributes from before."""
    before = vars(estimator).copy()
    try:
        yield before
    except BaseException:
        # Callbacks are torn down later and need the attributes that they set.
        callbacks = {name: value for name, value in vars(estimator).items() if "callback" in name}
        vars(estimator).clear()
        vars(estimator).update({**before, **callbacks})
        raise

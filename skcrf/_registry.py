"""How a component parameter becomes a component."""

from contextlib import contextmanager

from sklearn.base import clone
from sklearn.utils._param_validation import Options


class Instances(Options):
    """Constraint of a parameter: instances of a class, but not of one that derives from it.

    Parameters
    ----------
    type : type
        The class.
    but : type
        What is refused; it has a parameter of its own.
    """

    def __init__(self, type, but):
        super().__init__(type, set())
        self.but = but

    def is_satisfied_by(self, val):
        """Whether a value is right.

        Parameters
        ----------
        val : object
            The value.

        Returns
        -------
        is_satisfied : bool
            Whether it is.
        """
        return isinstance(val, self.type) and not isinstance(val, self.but)

    def __str__(self):
        return f"an instance of {self.type.__qualname__!r} that is no {self.but.__qualname__!r}"


def resolve(registry, choice, *, name):
    """Make the component that a parameter asks for.

    Parameters
    ----------
    registry : dict
        Names and classes.
    choice : str or estimator
        A name, or an instance, which is cloned.
    name : str
        The parameter, for messages.

    Returns
    -------
    component : estimator
        A fresh one, its parameters validated.
    """
    if isinstance(choice, str):
        if choice not in registry:
            raise ValueError(
                f"{name}={choice!r} is unknown, choose one of {sorted(registry)} or pass an instance."
            )
        component = registry[choice]()
    else:
        component = clone(choice)
    component._validate_params()
    return component


@contextmanager
def all_or_nothing(estimator):
    """Put an estimator back as it was if anything fails: what is refused loses nothing.

    Parameters
    ----------
    estimator : estimator
        The estimator that is about to change.

    Yields
    ------
    before : dict
        Its attributes before the change.
    """
    before = vars(estimator).copy()
    try:
        yield before
    except BaseException:
        # The callbacks still have to be torn down, for which they need what they left here.
        callbacks = {name: value for name, value in vars(estimator).items() if "callback" in name}
        vars(estimator).clear()
        vars(estimator).update({**before, **callbacks})
        raise

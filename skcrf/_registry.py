"""How a component parameter becomes a component."""

from sklearn.base import clone


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

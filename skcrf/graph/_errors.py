"""Errors about one example of a batch."""


class ExampleError(ValueError):
    """Error about one example of a batch.

    Parameters
    ----------
    problem : str
        Message; "{example}" is replaced by, for instance, "example 3".
    example : int
        Index of the example in the batch.
    """

    def __init__(self, problem, example):
        super().__init__(problem, example)
        self.problem, self.example = problem, int(example)

    def __str__(self):
        return self.problem.replace("{example}", f"example {self.example}")


class ImpossibleError(ExampleError):
    """Error about an example all of whose configurations have probability zero.

    Parameters
    ----------
    problem : str
        Message; "{example}" is replaced by, for instance, "example 3".
    example : int
        Index of the example in the batch.
    """

"""Errors that name an example of a batch."""


class ExampleError(ValueError):
    """Error about one example of a batch.

    Parameters
    ----------
    problem : str
        Message; "{example}" stands for the example.
    example : int
        Its index in the batch.
    """

    def __init__(self, problem, example):
        super().__init__(problem, example)
        self.problem, self.example = problem, int(example)

    def __str__(self):
        return self.problem.replace("{example}", f"example {self.example}")


class ImpossibleError(ExampleError):
    """Error about an example that has no possible configuration.

    Parameters
    ----------
    problem : str
        Message; "{example}" stands for the example.
    example : int
        Its index in the batch.
    """

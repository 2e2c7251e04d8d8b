"""Errors that name an example of a batch."""


class ExampleError(ValueError):
    """Something is wrong with one example of a batch.

    Parameters
    ----------
    problem : str
        What is wrong; "{example}" stands for the example.
    example : int
        Its number in the batch.
    """

    def __init__(self, problem, example):
        super().__init__(problem, example)
        self.problem, self.example = problem, int(example)

    def __str__(self):
        return self.problem.replace("{example}", f"example {self.example}")


class ImpossibleError(ExampleError):
    """No configuration of an example is possible.

    Parameters
    ----------
    problem : str
        Message; "{example}" stands for the example.
    example : int
        Its index in the batch.
    """

"""Reading and writing of models, evidence, queries and solutions.

A model file has a preamble (kind, number of variables, their cardinalities, the variables of each function)
and then, for each function, the number of entries and the entries, where the last variable changes fastest.
Words are separated by white space. Files may be compressed by gzip.
"""

import gzip
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcrf.graph import clamp, factor_potentials, from_factors
from skcrf.uai._tokens import Tokens, UAIError

_KINDS = ("MARKOV", "BAYES")
#: Task of a solution file by its first word.
_TASK_NAMES = {"PR": "PR", "MAR": "MAR", "BEL": "MAR", "MAP": "MAP", "MPE": "MAP", "MMAP": "MMAP"}


class Model(NamedTuple):
    """Model of a UAI file.

    Attributes
    ----------
    kind : {"MARKOV", "BAYES"}
        Kind of the model. In a Bayesian network the last variable of a function is the child.
    cards : ndarray of shape (n_variables,)
        Number of states of each variable.
    scopes : list of ndarray
        The variables of each function.
    tables : list of ndarray
        The values of each function, not their logarithms, with one axis per variable.
    """

    kind: str
    cards: np.ndarray
    scopes: list
    tables: list

    def potentials(self, evidence=None):
        """Compute the graph and the potentials for an inference method.

        Parameters
        ----------
        evidence : ndarray of shape (n_variables,), default=None
            The state of each observed variable, -1 elsewhere.

        Returns
        -------
        graph : FactorGraph
            The structure, with one node per variable and one factor per function.
        theta : Potentials
            Logarithms of the tables; states that the evidence excludes have potential -inf.
        """
        graph = from_factors(self.cards, self.scopes)
        with np.errstate(divide="ignore"):
            theta = factor_potentials(graph, [np.log(table) for table in self.tables])
        return graph, theta if evidence is None else clamp(theta, self._check_evidence(evidence))

    def _check_evidence(self, evidence):
        evidence = np.asarray(evidence)
        if evidence.shape != self.cards.shape or evidence.dtype.kind not in "iu":
            raise ValueError(
                f"evidence must be an integer array of shape {self.cards.shape}, -1 where not observed, "
                f"got shape {evidence.shape} and dtype {evidence.dtype}."
            )
        wrong = (evidence < -1) | (evidence >= self.cards)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(f"evidence[{i}] must be -1 or a state below {self.cards[i]}, got {evidence[i]}.")
        return evidence


class Solution(NamedTuple):
    """Solution of a task.

    Attributes
    ----------
    task : {"PR", "MAR", "MAP", "MMAP"}
        The task.
    value : float, list of ndarray, ndarray or dict
        PR: log10 of the partition function, or of the probability of the evidence. MAR: the marginals of each
        variable. MAP: the state of each variable. MMAP: a dict from variables of the query to states.
    """

    task: str
    value: object


def read_model(path):
    """Read a model file.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    model : Model
        The model.
    """
    tokens = Tokens(path)
    kind = tokens.read_word("MARKOV or BAYES").upper()
    if kind not in _KINDS:
        raise tokens.error("MARKOV or BAYES", back=1)
    n_variables = tokens.read_int("the number of variables")
    # Each state has at least one entry in the file.
    states = "the number of states of a variable, at least 1 and at most the number of words in the file"
    cards = tokens.read_ints(n_variables, states, minimum=1, maximum=len(tokens.words))
    n_functions = tokens.read_int("the number of functions")
    tokens.require(n_functions, "the number of variables of a function")
    scopes = [_read_scope(tokens, n_variables) for _ in range(n_functions)]
    tables = [_read_table(tokens, [cards[i] for i in scope]) for scope in scopes]
    tokens.check_end()
    scopes = [np.array(scope, dtype=np.int64) for scope in scopes]
    return Model(kind, np.array(cards, dtype=np.int64), scopes, tables)


def _read_scope(tokens, n_variables):
    size = tokens.read_int("the number of variables of a function")
    scope = tokens.read_ints(size, f"a variable below {n_variables}", maximum=n_variables - 1)
    if len(set(scope)) < size:
        raise tokens.error("distinct variables of a function", back=1)
    return scope


def _read_table(tokens, shape):
    size = math.prod(shape)  # of Python integers, which do not overflow
    expected = f"the number of entries of a function, {size} for its variables"
    tokens.read_int(expected, minimum=size, maximum=size)
    values = tokens.read_floats(size, "an entry of a function, finite and non-negative", minimum=0.0)
    return values.reshape(shape)


def write_model(path, model):
    """Write a model file, from which `read_model` restores the exact numbers.

    Parameters
    ----------
    path : str or Path
        The file, compressed if its name ends in .gz.
    model : Model
        The model.
    """
    lines = [model.kind, str(len(model.cards)), _joined(model.cards), str(len(model.scopes))]
    lines += [_joined([len(scope), *scope]) for scope in model.scopes]
    for table in model.tables:
        lines += ["", str(np.size(table)), _joined(float(value) for value in np.ravel(table))]
    _write(path, "\n".join([*lines, ""]))


def _joined(numbers):
    return " ".join(repr(number) if isinstance(number, float) else str(number) for number in numbers)


def _write(path, text):
    data = text.encode()
    Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def read_evidence(path, model, *, sample=0):
    """Read an evidence file.

    The file has the number of observed variables, then each of them with its state. A number of samples may
    come first. An empty file means no evidence.

    Parameters
    ----------
    path : str or Path
        The file.
    model : Model
        The model that the file belongs to.
    sample : int, default=0
        Index of the sample to read, if there are several.

    Returns
    -------
    evidence : ndarray of shape (n_variables,)
        The state of each observed variable, -1 elsewhere.
    """
    tokens = Tokens(path)
    if not len(tokens):
        return np.full(len(model.cards), -1)
    first = tokens.read_int("the number of observed variables or of samples")
    if len(tokens) == 2 * first and len(set(tokens.words[1::2])) == first:
        tokens.position, n_samples = 0, 1
    else:
        n_samples = first
        tokens.require(n_samples, "the number of observed variables of a sample")
    samples = [_read_sample(tokens, model.cards) for _ in range(n_samples)]
    tokens.check_end()
    if not 0 <= sample < max(n_samples, 1):
        raise ValueError(f"sample must be the index of one of {n_samples} samples in {path}, got {sample}.")
    return samples[sample] if samples else np.full(len(model.cards), -1)


def _read_sample(tokens, cards):
    evidence = np.full(len(cards), -1)
    for _ in range(tokens.read_int("the number of observed variables", maximum=len(cards))):
        variable = tokens.read_int(f"a variable below {len(cards)}", maximum=len(cards) - 1)
        state = tokens.read_int(f"a state below {cards[variable]}", maximum=int(cards[variable]) - 1)
        if evidence[variable] not in (-1, state):
            raise tokens.error(f"the state {evidence[variable]} of variable {variable}, as before", back=1)
        evidence[variable] = state
    return evidence


def read_query(path, model):
    """Read the query file of an MMAP task: the variables to maximise over.

    Parameters
    ----------
    path : str or Path
        The file, with the number of variables and then the variables.
    model : Model
        The model that the file belongs to.

    Returns
    -------
    query : ndarray of shape (n_query,)
        The variables, in the order of the file.
    """
    tokens, n_variables = Tokens(path), len(model.cards)
    size = tokens.read_int("the number of variables of the query", maximum=n_variables)
    query = tokens.read_ints(size, f"a variable below {n_variables}", maximum=n_variables - 1)
    if len(set(query)) < size:
        raise tokens.error("distinct variables", back=1)
    tokens.check_end()
    return np.array(query, dtype=np.int64)


def read_solution(path):
    """Read a solution file; of several solutions, separated by -BEGIN-, the last one.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    solution : Solution
        The solution. MPE is read as MAP and BEL as MAR. A number of samples, which must be 1, may come first.
    """
    tokens = Tokens(path)
    task = _TASK_NAMES.get(tokens.read_word("the name of a task").upper())
    if task is None:
        raise tokens.error(f"the name of a task: {', '.join(_TASK_NAMES)}", back=1)
    begins = [i for i, word in enumerate(tokens.words) if word == "-BEGIN-"]
    first = begins[-1] + 1 if begins else tokens.position
    for n_skipped in (0, 1):  # a number of samples may come first
        tokens.position = first + n_skipped
        try:
            value = _READERS[task](tokens)
            tokens.check_end()
            return Solution(task, value)
        except UAIError:
            if n_skipped or tokens.words[first : first + 1] != ["1"]:
                raise


def _read_log_probability(tokens):
    return float(tokens.read_floats(1, "a logarithm")[0])


def _read_marginals(tokens):
    n_variables = tokens.read_int("the number of variables")
    tokens.require(n_variables, "the number of states of a variable")
    cards = (tokens.read_int("the number of states of a variable", minimum=1) for _ in range(n_variables))
    return [tokens.read_floats(card, "a probability", minimum=0.0) for card in cards]


def _read_states(tokens):
    return np.array(tokens.read_ints(tokens.read_int("the number of variables"), "a state"), dtype=np.int64)


def _read_query_states(tokens):
    pairs = tokens.read_ints(2 * tokens.read_int("the number of variables"), "a variable or a state")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


#: Functions that read the value of a solution.
_READERS = {
    "PR": _read_log_probability,
    "MAR": _read_marginals,
    "MAP": _read_states,
    "MMAP": _read_query_states,
}
#: Functions that list the numbers of a value in the order of the file.
_NUMBERS = {
    "PR": lambda value: [float(value)],
    "MAR": lambda value: [len(value), *(x for p in value for x in (len(p), *map(float, p)))],
    "MAP": lambda value: [len(value), *value],
    "MMAP": lambda value: [len(value), *(x for pair in value.items() for x in pair)],
}


def format_solution(solution):
    """Format a solution as the text of a solution file.

    Parameters
    ----------
    solution : Solution
        The solution.

    Returns
    -------
    text : str
        The name of the task and one line of numbers.
    """
    return f"{solution.task}\n{_joined(_NUMBERS[solution.task](solution.value))}\n"


def write_solution(path, solution):
    """Write a solution file.

    Parameters
    ----------
    path : str or Path
        The file, compressed if its name ends in .gz.
    solution : Solution
        The solution.
    """
    _write(path, format_solution(solution))

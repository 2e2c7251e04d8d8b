"""Reading and writing: models, evidence, queries and solutions.

A model is a preamble (its kind, the number of variables, their cardinalities, the variables of each function)
and then, for each function, the number of its entries and the entries, the last variable changing fastest.
Words are separated by any white space. Files may be compressed by gzip.
"""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcrf.graph import clamp, factor_potentials, from_factors
from skcrf.uai._tokens import Tokens, UAIError

KINDS = ("MARKOV", "BAYES")
#: Task of a solution, by the first word of its file.
_NAMES = {"PR": "PR", "MAR": "MAR", "BEL": "MAR", "MAP": "MAP", "MPE": "MAP", "MMAP": "MMAP"}


class Model(NamedTuple):
    """A model as its file has it.

    Attributes
    ----------
    kind : {"MARKOV", "BAYES"}
        What the file says it is; in a Bayesian network the last variable of a function is the child.
    cards : ndarray of shape (n_variables,)
        Number of states of each variable.
    scopes : list of ndarray
        The variables of each function.
    tables : list of ndarray
        The values of each function, of the shape of its variables' cardinalities: not their logarithms.
    """

    kind: str
    cards: np.ndarray
    scopes: list
    tables: list

    def potentials(self, evidence=None):
        """Make what inference takes.

        Parameters
        ----------
        evidence : ndarray of shape (n_variables,), default=None
            The state of each variable that is known, -1 elsewhere.

        Returns
        -------
        graph : FactorGraph
            The structure: a node for each variable, a factor for each function.
        theta : Potentials
            Logarithms of the tables; states that the evidence excludes are forbidden.
        """
        graph = from_factors(self.cards, self.scopes)
        with np.errstate(divide="ignore"):
            theta = factor_potentials(graph, [np.log(table) for table in self.tables])
        return graph, theta if evidence is None else clamp(theta, self._checked(evidence))

    def _checked(self, evidence):
        evidence = np.asarray(evidence)
        if evidence.shape != self.cards.shape or evidence.dtype.kind not in "iu":
            raise ValueError(
                f"evidence has shape {evidence.shape} and dtype {evidence.dtype}, expected whole numbers for "
                f"{len(self.cards)} variables, -1 where it is not known."
            )
        wrong = (evidence < -1) | (evidence >= self.cards)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(f"evidence[{i}] is {evidence[i]}, expected -1 or a state below {self.cards[i]}.")
        return evidence


class Solution(NamedTuple):
    """The answer to a task.

    Attributes
    ----------
    task : {"PR", "MAR", "MAP", "MMAP"}
        The task.
    value : float, list of ndarray, ndarray or dict
        PR: log10 of the partition function, or of the probability of the evidence. MAR: the marginals of each
        variable. MAP: the state of each variable. MMAP: the state of each variable of the query, by number.
    """

    task: str
    value: object


def read_model(path):
    """Read a model.

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
    kind = tokens.word("MARKOV or BAYES").upper()
    if kind not in KINDS:
        raise tokens.error("MARKOV or BAYES", back=1)
    n_variables = tokens.whole("the number of variables")
    # Every state of a variable has its entries, so that there are no more states than words.
    states = "the number of states of a variable, at least 1 and not more than the file has words"
    cards = tokens.wholes(n_variables, states, least=1, most=len(tokens.words))
    n_functions = tokens.whole("the number of functions")
    tokens.need(n_functions, "the number of variables of a function")
    scopes = [_scope(tokens, n_variables) for _ in range(n_functions)]
    tables = [_table(tokens, [cards[i] for i in scope]) for scope in scopes]
    tokens.end()
    scopes = [np.array(scope, dtype=np.int64) for scope in scopes]
    return Model(kind, np.array(cards, dtype=np.int64), scopes, tables)


def _scope(tokens, n_variables):
    size = tokens.whole("the number of variables of a function")
    scope = tokens.wholes(size, f"a variable below {n_variables}", most=n_variables - 1)
    if len(set(scope)) < size:
        raise tokens.error("variables that differ within a function", back=1)
    return scope


def _table(tokens, shape):
    size = 1
    for card in shape:  # of any size: whole numbers of Python do not overflow
        size *= card
    tokens.whole(f"the number of entries of a function, {size} by its variables", least=size, most=size)
    return tokens.floats(size, "an entry of a function, finite and not negative", least=0.0).reshape(shape)


def write_model(path, model):
    """Write a model so that reading it gives the very same numbers.

    Parameters
    ----------
    path : str or Path
        The file; compressed if its name ends in .gz.
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
    """Read evidence.

    The file has the number of known variables and then each of them with its state. A number of samples may
    come first. An empty file is no evidence.

    Parameters
    ----------
    path : str or Path
        The file.
    model : Model
        The model that it belongs to.
    sample : int, default=0
        Which sample to take, where there are several.

    Returns
    -------
    evidence : ndarray of shape (n_variables,)
        The state of each known variable, -1 elsewhere.
    """
    tokens = Tokens(path)
    if not len(tokens):
        return np.full(len(model.cards), -1)
    first = tokens.whole("the number of known variables, or of samples")
    if len(tokens) == 2 * first and len(set(tokens.words[1::2])) == first:
        tokens.at, n_samples = 0, 1
    else:
        n_samples = first
        tokens.need(n_samples, "the number of known variables of a sample")
    samples = [_sample(tokens, model.cards) for _ in range(n_samples)]
    tokens.end()
    if not 0 <= sample < max(n_samples, 1):
        raise ValueError(f"sample={sample}, but {path} has {n_samples} samples.")
    return samples[sample] if samples else np.full(len(model.cards), -1)


def _sample(tokens, cards):
    known = np.full(len(cards), -1)
    for _ in range(tokens.whole("the number of known variables", most=len(cards))):
        variable = tokens.whole(f"a variable below {len(cards)}", most=len(cards) - 1)
        state = tokens.whole(f"a state below {cards[variable]}", most=int(cards[variable]) - 1)
        if known[variable] not in (-1, state):
            raise tokens.error(f"the state {known[variable]} of variable {variable}, as before", back=1)
        known[variable] = state
    return known


def read_query(path, model):
    """Read the variables of which the most probable states are asked for, by MMAP.

    Parameters
    ----------
    path : str or Path
        The file: the number of variables, then the variables.
    model : Model
        The model that it belongs to.

    Returns
    -------
    query : ndarray of shape (n_query,)
        The variables, in the order of the file.
    """
    tokens, n_variables = Tokens(path), len(model.cards)
    size = tokens.whole("the number of variables of the query", most=n_variables)
    query = tokens.wholes(size, f"a variable below {n_variables}", most=n_variables - 1)
    if len(set(query)) < size:
        raise tokens.error("variables that differ", back=1)
    tokens.end()
    return np.array(query, dtype=np.int64)


def read_solution(path):
    """Read the answer to a task; of several, separated by -BEGIN-, the last one.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    solution : Solution
        The answer. MPE is read as MAP and BEL as MAR; a number of samples, which must be 1, may come first.
    """
    tokens = Tokens(path)
    task = _NAMES.get(tokens.word("the name of a task").upper())
    if task is None:
        raise tokens.error(f"the name of a task: {', '.join(_NAMES)}", back=1)
    begins = [at for at, word in enumerate(tokens.words) if word == "-BEGIN-"]
    start = begins[-1] + 1 if begins else tokens.at
    for skip in (0, 1):
        tokens.at = start + skip
        try:
            value = _VALUES[task](tokens)
            tokens.end()
            return Solution(task, value)
        except UAIError:
            if skip or tokens.words[start : start + 1] != ["1"]:
                raise


def _log_probability(tokens):
    return float(tokens.floats(1, "a logarithm")[0])


def _marginals(tokens):
    n_variables = tokens.whole("the number of variables")
    tokens.need(n_variables, "the number of states of a variable")
    cards = (tokens.whole("the number of states of a variable", least=1) for _ in range(n_variables))
    return [tokens.floats(card, "a probability", least=0.0) for card in cards]


def _states(tokens):
    return np.array(tokens.wholes(tokens.whole("the number of variables"), "a state"), dtype=np.int64)


def _some_states(tokens):
    pairs = tokens.wholes(2 * tokens.whole("the number of variables"), "a variable or a state")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


#: What follows the name of a task.
_VALUES = {"PR": _log_probability, "MAR": _marginals, "MAP": _states, "MMAP": _some_states}
#: How it is written.
_LINES = {
    "PR": lambda value: [float(value)],
    "MAR": lambda value: [len(value), *(x for p in value for x in (len(p), *map(float, p)))],
    "MAP": lambda value: [len(value), *value],
    "MMAP": lambda value: [len(value), *(x for pair in value.items() for x in pair)],
}


def format_solution(solution):
    """Write an answer as a text.

    Parameters
    ----------
    solution : Solution
        The answer.

    Returns
    -------
    text : str
        The name of the task, and a line.
    """
    return f"{solution.task}\n{_joined(_LINES[solution.task](solution.value))}\n"


def write_solution(path, solution):
    """Write an answer to a file.

    Parameters
    ----------
    path : str or Path
        The file; compressed if its name ends in .gz.
    solution : Solution
        The answer.
    """
    _write(path, format_solution(solution))

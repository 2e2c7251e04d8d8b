"""UAI files: round trips, errors in files, and solutions against enumeration."""

import gzip
import subprocess
import sys
import time

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.inference import INFERENCE
from skcrf.uai import (
    TASKS,
    Model,
    Solution,
    UAIError,
    read_evidence,
    read_model,
    read_query,
    read_solution,
    solve,
    write_model,
    write_solution,
)
from skcrf.uai.__main__ import main

LOG_10 = np.log(10)
KINDS = ("MARKOV", "BAYES")


def draw_model(rng, n_variables=5, kind="MARKOV"):
    cards = rng.integers(2, 5, size=n_variables)
    cards[rng.integers(n_variables)] = 1
    scopes = [rng.permutation(n_variables)[:arity] for arity in (0, 1, 2, 2, 3)]
    tables = [rng.exponential(size=tuple(cards[scope])) for scope in scopes]
    tables[-1].flat[0] = 0.0  # an impossible configuration
    tables[1].flat[0] = 1e-300
    return Model(kind, cards, scopes, tables)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def small(tmp_path):
    """Return a chain of three variables and its file."""
    text = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 4.0 2.4\n 1.0 0.0\n\n6\n 2 1 1\n .5 3e0 1\n"
    path = write(tmp_path / "small.uai", text)
    return read_model(path), path


# Round trips and formats


@pytest.mark.parametrize("name", ["model.uai", "model.uai.gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_model_file_round_trip_is_exact(kind, name, tmp_path, seed):
    model = draw_model(np.random.default_rng(seed), kind=kind)
    write_model(tmp_path / name, model)
    again = read_model(tmp_path / name)
    assert again.kind == kind
    assert_array_equal(again.cards, model.cards)
    for one, other in zip(model.scopes + model.tables, again.scopes + again.tables, strict=True):
        assert_array_equal(one, other)
        assert one.shape == other.shape


def test_model_file_with_other_line_ends_case_and_compression(small, tmp_path):
    model, path = small
    assert [table.tolist() for table in model.tables] == [[[4, 2.4], [1, 0]], [[2, 1, 1], [0.5, 3, 1]]]
    graph, theta = model.potentials(np.array([-1, -1, 2]))
    assert_array_equal(graph.cards, [2, 2, 3])
    assert_array_equal(theta.unary == -np.inf, [[0, 0, 1], [0, 0, 1], [1, 1, 0]])
    # With a byte order mark, CRLF, small letters, and no newline at the end.
    text = "\ufeff" + path.read_text().lower().replace("\n", "\r\n").rstrip()
    again = read_model(write(tmp_path / "odd.uai", gzip.compress(text.encode())))
    assert_array_equal(again.tables[1], model.tables[1])


@pytest.mark.parametrize(
    "text, known",
    [
        ("2 0 1 2 2", [1, -1, 2]),
        ("1\n2 0 1 2 2\n", [1, -1, 2]),
        ("1 1 0", [-1, 0, -1]),
        ("1\n0", [-1, -1, -1]),
        ("0", [-1, -1, -1]),
        ("", [-1, -1, -1]),
        ("2 1 0 1 1 1 1", [1, -1, -1]),
    ],
)
def test_read_evidence(text, known, small, tmp_path):
    assert_array_equal(read_evidence(write(tmp_path / "e", text), small[0]), known)


def test_read_one_of_several_samples(small, tmp_path):
    path = write(tmp_path / "e", "2\n1 0 1\n2 1 1 2 0\n")
    assert_array_equal(read_evidence(path, small[0], sample=1), [-1, 1, 0])
    with pytest.raises(ValueError, match=r"sample must be the index of one of 2 samples in .*, got 2"):
        read_evidence(path, small[0], sample=2)


@pytest.mark.parametrize(
    "text, task, value",
    [
        ("PR\n-2.5\n", "PR", -2.5),
        ("PR\n1\n-2.5\n", "PR", -2.5),
        ("PR\n-1\n-BEGIN-\n-2.5", "PR", -2.5),
        ("MAR\n2 1 1 2 .25 .75", "MAR", [[1], [0.25, 0.75]]),
        ("BEL\n1\n2 1 1 2 .25 .75", "MAR", [[1], [0.25, 0.75]]),
        ("MPE\n3 0 2 1", "MAP", [0, 2, 1]),
        ("MMAP\n2 4 1 0 0", "MMAP", {4: 1, 0: 0}),
    ],
)
def test_solution_file_round_trip(text, task, value, tmp_path):
    solution = read_solution(write(tmp_path / "s", text))
    write_solution(tmp_path / "again.gz", solution)
    for found in (solution, read_solution(tmp_path / "again.gz")):
        assert found.task == task
        plain = [p.tolist() for p in found.value] if task == "MAR" else found.value
        assert (plain.tolist() if task == "MAP" else plain) == value


# Errors in files

WRONG_MODELS = {
    "": (None, None, "MARKOV or BAYES"),
    "MARKOW\n1": (1, "MARKOW", "MARKOV or BAYES"),
    "MARKOV\n-1": (2, "-1", "number of variables"),
    "MARKOV\n2\n2": (None, None, "number of states"),
    "MARKOV\n2\n2 0": (3, "0", "at least 1"),
    "MARKOV\n1\n2\n1\n1 1\n\n2\n1 1": (5, "1", "variable below 1"),
    "MARKOV\n2\n2 2\n1\n2 0 0\n\n4 1 1 1 1": (5, "0", "distinct variables"),
    "MARKOV\n1\n2\n1\n1 0\n\n3\n1 1 1": (7, "3", "2 for its variables"),
    "MARKOV\n1\n2\n1\n1 0\n\n2\n1 x": (8, "x", "finite and non-negative"),
    "MARKOV\n1\n2\n1\n1 0\n\n2\n1 nan": (8, "nan", "finite and non-negative"),
    "MARKOV\n1\n2\n1\n1 0\n\n2\n1 -.5": (8, "-.5", "finite and non-negative"),
    "MARKOV\n1\n2\n1\n1 0\n\n2\n1": (None, None, "finite and non-negative"),
    "MARKOV\n1\n2\n1\n1 0\n\n2\n1 1\n7": (9, "7", "the end of the file"),
}


@pytest.mark.parametrize("text", WRONG_MODELS)
def test_error_in_model_file_gives_line_and_word(text, tmp_path):
    line, token, expected = WRONG_MODELS[text]
    with pytest.raises(UAIError, match=expected) as caught:
        read_model(write(tmp_path / "wrong.uai", text))
    assert (caught.value.line, caught.value.token) == (line, token)
    assert str(caught.value).startswith(f"{tmp_path / 'wrong.uai'}, ")


@pytest.mark.parametrize(
    "read, text, line, token",
    [
        (read_evidence, "1\n3 0", 2, "3"),
        (read_evidence, "1 1 2", 1, "2"),
        (read_evidence, "1\n2 0 1\n0 0", 3, "0"),
        (read_query, "2 0 0", 1, "0"),
        (read_query, "4 0 1 2 3", 1, "4"),
        (lambda path, model: read_solution(path), "MAX\n1", 1, "MAX"),
        (lambda path, model: read_solution(path), "MAP\n2 0 1\n1", 3, "1"),
        (lambda path, model: read_solution(path), "MAR\n2 1 1 2 .25", None, None),
    ],
)
def test_error_in_other_files_gives_line_and_word(read, text, line, token, small, tmp_path):
    with pytest.raises(UAIError) as caught:
        read(write(tmp_path / "wrong", text), small[0])
    assert (caught.value.line, caught.value.token) == (line, token)


@pytest.mark.parametrize(
    "text",
    [
        "MARKOV\n1000000000000\n2 2",
        "MARKOV\n2\n2 2\n1000000000000\n1 0",
        "MARKOV\n2\n2 2\n1\n999999999999 0 1",
        "MARKOV\n3\n999999999 999999999 999999999\n1\n3 0 1 2\n999999999999999999\n1 1",
        "MARKOV\n1\n99999999999999999999999999999999999999\n0",
        "MARKOV\n2\n2 1000000000000\n1\n1 0\n2\n1 1",
        "MARKOV\n" + "9" * 100_000,
    ],
)
def test_impossibly_large_numbers_are_refused_quickly(text, tmp_path):
    start = time.process_time()
    with pytest.raises(UAIError) as caught:
        read_model(write(tmp_path / "huge.uai", text))
    assert time.process_time() - start < 1.0
    assert len(str(caught.value)) < 1000


def mutated(data, rng):
    """Corrupt the bytes of a file at random."""
    words, at = data.split(), int(rng.integers(len(data)))
    place = int(rng.integers(len(words)))
    odd = [
        b"-1",
        b"1e12",
        b"nan",
        b"-inf",
        b"1e999",
        b"x",
        b"\x00",
        b"1000000000000",
        b"\xff\xfe",
        b"0",
        b"3",
    ]
    ways = [
        lambda: data[:at],
        lambda: data[at:],
        lambda: data[:at] + bytes(rng.integers(256, size=8, dtype=np.uint8)) + data[at:],
        lambda: b" ".join([*words[:place], *words[place + 1 :]]),
        lambda: b" ".join([*words[:place], odd[rng.integers(len(odd))], *words[place + 1 :]]),
        lambda: b" ".join(words[i] for i in _swapped(len(words), place, int(rng.integers(len(words))))),
        lambda: gzip.compress(data)[: at + 3],
        lambda: b"\x1f\x8b" + data,
        lambda: bytes(rng.integers(256, size=at + 1, dtype=np.uint8)),
    ]
    return ways[rng.integers(len(ways))]()


def _swapped(n, i, j):
    order = list(range(n))
    order[i], order[j] = order[j], order[i]
    return order


def test_corrupted_files_raise_only_UAIError(tmp_path, seed):
    rng = np.random.default_rng(seed)
    models = [draw_model(rng, n_variables=n) for n in (3, 5, 8)]
    refused = 0
    for trial in range(500):
        model = models[trial % 3]
        write_model(tmp_path / "model", model)
        path = write(tmp_path / "broken", mutated((tmp_path / "model").read_bytes(), rng))
        try:
            read_model(path).potentials()
        except UAIError:
            refused += 1
        path = write(tmp_path / "broken", mutated(b"1\n2 0 0 1 0\n", rng))
        for read in (lambda path, model=model: read_evidence(path, model), read_solution):
            try:
                read(path)
            except UAIError:
                refused += 1
    assert 500 < refused < 1500  # some stay valid by chance


# Solutions


def test_solutions_agree_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        model = draw_model(rng, kind=kind)
        y = np.where(np.arange(5) == 3, model.cards[3] - 1, -1)
        graph, theta = model.potentials(y)
        mu, _ = reference.marginals(graph, theta)
        assert_allclose(solve(model, "PR", evidence=y).value, reference.log_z(graph, theta)[0] / LOG_10)
        for p, expected, card in zip(solve(model, "MAR", evidence=y).value, mu, model.cards, strict=True):
            assert_allclose(p, expected[:card], rtol=0, atol=1e-12)
        best = solve(model, "MAP", evidence=y).value
        assert tuple(best) in reference.best_configurations(graph, theta)[0]
        everything = solve(model, "MMAP", evidence=y, query=np.arange(5)).value
        assert list(everything) == [0, 1, 2, 3, 4] and list(everything.values()) == best.tolist()


def test_unknown_task_and_missing_query_are_refused(small):
    with pytest.raises(ValueError, match=r"task must be one of .*, got 'MAX'"):
        solve(small[0], "MAX")
    with pytest.raises(ValueError, match="query must be given for task='MMAP' and for no other task"):
        solve(small[0], "MMAP")
    with pytest.raises(ValueError, match="query must be given for task='MMAP' and for no other task"):
        solve(small[0], "PR", query=np.array([0]))


def run(capsys, *arguments):
    """Run the command line; return the status, stdout and stderr."""
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("task", TASKS)
def test_command_line_prints_the_solution(task, small, tmp_path, capsys):
    model, path = small
    evidence = write(tmp_path / "small.uai.evid", "1\n1 2 1")
    query, y = write(tmp_path / "small.uai.query", "2 1 0"), np.array([-1, -1, 1])
    more = {"MMAP": ["--query", query]}.get(task, [])
    status, out, err = run(capsys, path, "--evidence", evidence, "--task", task, *more)
    assert (status, err) == (0, "")
    found = read_solution(write(tmp_path / "solution", out))
    expected = solve(model, task, evidence=y, query=np.array([1, 0]) if more else None)
    assert found.task == task
    if task == "MAR":
        assert_array_equal(np.concatenate(found.value), np.concatenate(expected.value))
    else:
        assert_array_equal(found.value, expected.value)


def test_module_runs_as_a_program(small, tmp_path):
    # With variable 2 in state 1, Z = 4 * 1 + 2.4 * 3 + 1 * 1 = 12.2.
    evidence = write(tmp_path / "e", "1 2 1")
    command = [sys.executable, "-m", "skcrf.uai", str(small[1]), "--evidence", str(evidence), "--task", "PR"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    name, value = done.stdout.split()
    assert name == "PR"
    assert_allclose(float(value), np.log10(12.2))


def test_command_line_reports_errors(small, tmp_path, capsys):
    wrong = write(tmp_path / "wrong.uai", "MARKOV\n-1")
    status, out, err = run(capsys, wrong, "--task", "PR")
    assert (status, out) == (1, "") and "line 2: expected the number of variables, got '-1'" in err
    status, out, err = run(capsys, tmp_path / "none.uai", "--task", "PR")
    assert (status, out) == (1, "") and "none.uai" in err
    status, out, err = run(capsys, small[1], "--task", "PR", "--max-memory", 8)
    assert (status, out) == (1, "") and "got 8" in err


def test_command_line_warns_without_convergence(tmp_path, capsys):
    rng = np.random.default_rng(0)
    pairs = [np.array([i, j]) for i in range(4) for j in range(i)]
    tables = [np.exp(3 * rng.normal(size=(2, 2))) for _ in pairs]
    path = tmp_path / "loopy.uai"
    write_model(path, Model("MARKOV", np.full(4, 2), pairs, tables))
    options = "--task", "PR", "--inference", "bp", "--tol", "1e-9", "--max-iter", 2
    status, out, err = run(capsys, path, *options)
    assert status == 0 and out.startswith("PR\n")
    assert "warning: BP did not converge in 2 iterations" in err
    assert run(capsys, path, "--task", "PR", "--max-iter", 2)[2] == ""  # exact inference has no iterations


def test_solve_accepts_an_instance_of_an_inference(small):
    assert isinstance(solve(small[0], "PR", INFERENCE["bruteforce"]()), Solution)


def test_invalid_evidence_and_query_are_refused():
    model = Model("MARKOV", np.array([2, 3]), [np.array([0, 1])], [np.ones((2, 3))])
    for evidence, message in [
        (np.array([0]), r"evidence must be an integer array of shape \(2,\), .*, got shape \(1,\)"),
        (np.array([0.0, 1.0]), "dtype float64"),
        (np.array([0, 3]), r"evidence\[1\] must be -1 or a state below 3, got 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            solve(model, "PR", evidence=evidence)
    with pytest.raises(ValueError, match=r"query must have variables below 2, got array\(\[5\]\)"):
        solve(model, "MMAP", query=np.array([5]))


def test_two_samples_are_not_read_as_two_variables(tmp_path):
    model = Model("MARKOV", np.array([2, 2]), [np.array([0, 1])], [np.ones((2, 2))])
    path = tmp_path / "two.evid"
    path.write_text("2\n1 0 1\n0\n")  # as one sample, variable 1 would occur twice
    np.testing.assert_array_equal(read_evidence(path, model), [1, -1])
    np.testing.assert_array_equal(read_evidence(path, model, sample=1), [-1, -1])


def test_impossible_evidence_and_model_are_refused():
    tables = [np.array([1.0, 0.0]), np.eye(2)]
    model = Model("BAYES", np.array([2, 2]), [np.array([0]), np.array([0, 1])], tables)
    with pytest.raises(ValueError, match="evidence must have a probability above 0 under the model, got 0"):
        solve(model, "PR", evidence=np.array([1, -1]))
    with pytest.raises(ValueError, match="model must have a configuration of probability above 0, got none"):
        solve(model._replace(tables=[np.zeros(2), np.eye(2)]), "PR")

"""Scripts in benchmarks/: all start, the roofline is correct, and regress.py finds slower jobs."""

import ast
import importlib
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from skcrf.inference import TRW

FOLDER = Path(__file__).parents[1] / "benchmarks"
# pgmax_lattice needs an environment with PGMax.
SCRIPTS = sorted(p.stem for p in FOLDER.glob("*.py") if "__main__" in p.read_text() and "pgmax" not in p.stem)


@pytest.fixture
def scripts(monkeypatch):
    """Return a function that imports a script by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_script_has_a_docstring_and_is_in_the_readme():
    readme = (FOLDER / "README.md").read_text()
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), str(path))
        assert ast.get_docstring(tree), f"{path.name} must have a docstring"
        assert path.name in readme, f"README.md must mention {path.name}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_prints_help(script, scripts, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit) as stopped:
        scripts(script).main()
    assert stopped.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_comparison_lists_slower_jobs(scripts):
    old = {"same": [1.0, 2.0, 1.0], "slower": [1.0, 2.0, 1.0], "faster": [2.0, 2.0, 2.0]}
    new = {"same": [1.05, 2.0, 9.0], "slower": [1.2, 2.4, 1.0], "faster": [1.0, 1.0, 1.0]}
    compare = scripts("regress").compare
    ratios, slower = compare(old, new)
    assert slower == ["slower"]
    np.testing.assert_allclose([ratios[name] for name in old], [1.05, 1.2, 0.5], rtol=1e-12)
    assert compare(old, new, threshold=3)[1] == ["same", "slower"]
    assert compare(old, new, threshold=30)[1] == []


def test_jobs_of_the_comparison_run(scripts, capsys, monkeypatch):
    regress = scripts("regress")
    monkeypatch.setattr(regress, "make_jobs", lambda quick: regress.inference_jobs((4, 5), 2))
    with warnings.catch_warnings():
        regress.run_jobs(quick=True, repeats=1)
    times = json.loads(capsys.readouterr().out)
    assert "bp, 2 labels" in times and min(times.values()) > 0


def test_snakes_as_graphs_have_colours_of_neighbours_and_of_both_ends(scripts):
    image = np.zeros((1, 3, 3), dtype=np.uint8)
    image[..., 2] = 255  # background
    image[0, 1] = [255, 0, 0]
    nodes, edges, edge_features = scripts("snakes").as_graph(image)
    assert nodes.shape == (3, 45) and edges.tolist() == [[0, 1], [1, 2]]
    background, red = [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]
    np.testing.assert_array_equal(nodes[0].reshape(9, 5)[3:6], [background, background, red])
    np.testing.assert_array_equal(edge_features[0], [1, *background, *red, *[0] * 11])
    assert scripts("snakes").as_graph(image, edge_features=False)[2].tolist() == [[1, 0], [1, 0]]


def test_letters_as_dictionaries_have_black_pixels_and_a_constant(scripts):
    word = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert scripts("letters").as_dicts([word]) == [[{"bias": 1.0, "p1": 1.0}, {"bias": 1.0}]]


def test_clocks_and_exponents_of_growth(scripts):
    measuring = scripts("measuring")
    np.testing.assert_allclose(measuring.slope([1, 2, 4, 8], [3, 12, 48, 192]), 2, rtol=1e-12)
    calls = []
    jobs = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b") or 0.5}
    assert measuring.median_times(jobs, 2)["b"] == 0.5
    assert calls == ["a", "b"] * 3
    assert measuring.best_times(jobs, 2, warm=False)["b"] == 0.5
    assert measuring.cpu_timed(lambda: sum(range(1000)))() >= 0
    assert measuring.iteration_time(4.0, 1.0, 3) == 1
    assert measuring.iteration_time(1.0, 2.0, 3) is None  # noise


def test_plain_loops_agree_with_trw(scripts, seed):
    problem = scripts("measuring").lattice_problem(4, 7, 3, seed=seed)
    for rho in (1.0, 0.5, 0.7):
        mu = TRW(rho=rho, max_iter=3).forward(*problem).mu
        np.testing.assert_allclose(scripts("plain_loops").prepare(problem, rho)(3), mu, atol=1e-12)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_roofline_agrees_with_trw(scripts, seed, tmp_path, monkeypatch):
    measuring = scripts("measuring")
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    roofline = measuring.Roofline([2, 3], flags=("-std=c++17", "-O0", "-march=native"))
    assert roofline.build()
    for k in roofline.labels:
        for per_edge in (False, True):
            problem = measuring.lattice_problem(19, 10, k, per_edge=per_edge, seed=seed)  # partial tiles
            for rho in (1.0, 0.5, (0.6, 0.7)):
                edges = problem.graph.edges
                rhos = np.where(np.diff(edges, axis=1)[:, 0] == 1, *np.broadcast_to(rho, 2))
                method = TRW(rho=rhos, max_iter=3)
                beliefs = method.forward(*problem, tape=True)
                d_mu = np.random.default_rng(seed).normal(size=beliefs.mu.shape)
                d_theta = method.backward(beliefs, d_mu=d_mu)
                for dtype, atol in ((np.float64, 1e-12), (np.float32, 1e-4)):
                    options = {"rho": rho, "iterations": 3, "repeats": 1, "dtype": dtype}
                    answer = roofline.run(problem, **options, d_mu=d_mu)
                    np.testing.assert_allclose(answer.mu, beliefs.mu, atol=atol)
                    for own, expected in zip(answer.d_theta, d_theta, strict=True):
                        np.testing.assert_allclose(own, expected, atol=atol * np.abs(expected).max())
                    assert min(answer.seconds, answer.gradient_seconds) > 0
                    np.testing.assert_array_equal(roofline.run(problem, **options).mu, answer.mu)
    missing = [str(path) for path in (roofline.program(2), tmp_path / "none", tmp_path / "out")]
    done = subprocess.run([*missing, "1", "1"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot read" in done.stderr


def test_table_of_goals_shows_which_are_reached(scripts):
    measuring = scripts("measuring")
    rows = [measuring.at_least("a", 2.0, 1), measuring.at_most("b", 2.0, 1), measuring.at_least("c", None, 1)]
    assert [measuring.cells_of(row)[-1] for row in rows] == ["yes", "NO", "-"]
    assert "   * - a\n     - ≥ 1 x" in measuring.rst_table(("what", "goal"), [row[:2] for row in rows])

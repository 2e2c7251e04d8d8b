"""The scripts in benchmarks/: they start, the roofline is right, the comparison finds what is slower."""

import ast
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from skcrf.inference import TRW

FOLDER = Path(__file__).parents[1] / "benchmarks"
# All that can be run here; pgmax_lattice is run by an interpreter that has PGMax.
SCRIPTS = sorted(p.stem for p in FOLDER.glob("*.py") if "__main__" in p.read_text() and "pgmax" not in p.stem)


@pytest.fixture
def scripts(monkeypatch):
    """Import a script, as those that run next to it do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_script_can_be_read_and_is_told_of():
    """Also the one that is run by an interpreter which has PGMax, and so cannot be imported here."""
    readme = (FOLDER / "README.md").read_text()
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), str(path))
        assert ast.get_docstring(tree), f"{path.name} does not say what it is for"
        assert path.name in readme, f"README.md does not tell of {path.name}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script, scripts, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit) as stopped:
        scripts(script).main()
    assert stopped.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_comparison_names_what_is_slower(scripts):
    old = {"same": [1.0, 2.0, 1.0], "slower": [1.0, 2.0, 1.0], "faster": [2.0, 2.0, 2.0]}
    new = {"same": [1.05, 2.0, 9.0], "slower": [1.2, 2.4, 1.0], "faster": [1.0, 1.0, 1.0]}
    ratios, worse = scripts("regress").compare(old, new)
    assert worse == ["slower"]
    np.testing.assert_allclose([ratios[name] for name in old], [1.05, 1.2, 0.5], rtol=1e-12)


def test_snakes_become_graphs(scripts):
    """Colours around a pixel, and on edges those of both ends, in the place of their direction."""
    image = np.zeros((1, 3, 3), dtype=np.uint8)
    image[..., 2] = 255  # background
    image[0, 1] = [255, 0, 0]
    nodes, edges, on_edges = scripts("snakes").as_graph(image)
    assert nodes.shape == (3, 45) and edges.tolist() == [[0, 1], [1, 2]]
    background, red = [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]
    np.testing.assert_array_equal(nodes[0].reshape(9, 5)[3:6], [background, background, red])
    np.testing.assert_array_equal(on_edges[0], [1, *background, *red, *[0] * 11])
    assert scripts("snakes").as_graph(image, edge_features=False)[2].tolist() == [[1, 0], [1, 0]]


def test_letters_become_dictionaries(scripts):
    word = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert scripts("letters").as_dicts([word]) == [[{"bias": 1.0, "p1": 1.0}, {"bias": 1.0}]]


def test_slope_and_interleaving(scripts):
    measuring = scripts("measuring")
    np.testing.assert_allclose(measuring.slope([1, 2, 4, 8], [3, 12, 48, 192]), 2, rtol=1e-12)
    calls = []
    jobs = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b") or 0.5}
    assert measuring.interleaved(jobs, 2)["b"] == 0.5
    assert calls == ["a", "b"] * 3
    np.testing.assert_allclose(measuring.difference([4.0, 9.0, 4.0], [1.0, 1.0, 1.0], 3), 1, rtol=1e-12)
    assert measuring.difference([1.0], [2.0], 3) is None  # noise is not a speed


def test_plain_loops_agree(scripts, seed):
    problem = scripts("measuring").lattice_problem(4, 7, 3, seed=seed)
    for rho in (1.0, 0.5, 0.7):
        mu = TRW(rho=rho, max_iter=3).forward(*problem).mu
        np.testing.assert_allclose(scripts("plain").prepare(problem, rho)(3), mu, atol=1e-12)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_roofline_agrees(scripts, seed, tmp_path, monkeypatch):
    measuring = scripts("measuring")
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    roofline = measuring.Roofline([2, 3], flags=("-std=c++17", "-O0", "-march=native"))
    assert roofline.build()
    for k in roofline.labels:
        for per_edge in (False, True):
            problem = measuring.lattice_problem(19, 10, k, per_edge=per_edge, seed=seed)  # tiles are cut off
            for rho in (1.0, 0.5, (0.6, 0.7)):
                edges = problem.graph.edges
                rhos = np.where(np.diff(edges, axis=1)[:, 0] == 1, *np.broadcast_to(rho, 2))
                mu = TRW(rho=rhos, max_iter=3).forward(*problem).mu
                for dtype, atol in ((np.float64, 1e-12), (np.float32, 1e-4)):
                    found, spent = roofline.run(problem, rho=rho, iterations=3, repeats=1, dtype=dtype)
                    np.testing.assert_allclose(found, mu, atol=atol)
                    assert spent > 0
    nothing = [str(path) for path in (roofline.program(2), tmp_path / "none", tmp_path / "out")]
    done = subprocess.run([*nothing, "1", "1"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot read" in done.stderr


def test_tables_say_whether_goals_are_reached(scripts):
    measuring = scripts("measuring")
    rows = [measuring.at_least("a", 2.0, 1), measuring.at_most("b", 2.0, 1), measuring.at_least("c", None, 1)]
    assert [measuring.verdict(row) for row in rows] == ["yes", "NO", "-"]
    assert "   * - a\n     - ≥ 1 x" in measuring.rst_table(("what", "goal"), [row[:2] for row in rows])

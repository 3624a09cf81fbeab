"""What raises in a rule or a step ends no compile: another schedule is taken, with a warning."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import cost_model
from autotune.cli import execute
from autotune.compiler import build
from autotune.compiler.choose import Candidate, candidates
from autotune.compiler.driver import compile_graph
from autotune.defects import DefectWarning
from autotune.frontend.zoo import export_onnx
from autotune.graph.interp import run_graph
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.placement.partition import partition
from autotune.schedule import schedule_from_json
from autotune.target import Target, host_target, load_target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import RULES, rule_for, rules_for
from tests.unit.compiler.graphs import mlp

TARGETS = ("x86-64-v3", "cortex-a72", "c", "opencl", "sm_80", "sm_90a")
RAISES = schedule_from_json(
    [{"step": "split", "loop": "t0_m", "factor": "2", "outer": "a", "inner": "b"}]
)
"""A step whose factor is text: comparing it raises a TypeError."""


def _raise(*_: object) -> NoReturn:
    raise ValueError("not enough values to unpack")


def broken(monkeypatch: pytest.MonkeyPatch, method: str, target: Target, *kept: str) -> None:
    """Let every rule raise in a method, but those to keep."""
    tasks = partition(optimize(mlp())).weights()
    for rule in {r.name: r for task in tasks for r in rules_for(task, target)}.values():
        if rule.name not in kept:
            monkeypatch.setattr(type(rule), method, _raise)


@pytest.mark.parametrize("method", ["prior", "write", "space", "matches"])
def test_a_model_is_compiled_where_every_rule_raises(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, graph = host_target(), mlp()
    feeds = {"x": np.ones((3, 8), np.float32)}
    broken(monkeypatch, method, target, "plain")
    with pytest.warns(DefectWarning, match="ValueError: not enough values to unpack") as said:
        model = compile_graph(graph, target, processes=1)
    assert {kernel.source for kernel in model.image.kernels} == {
        "default" if method == "matches" else "plain"
    }
    assert any("rule contraction" in str(w.message) for w in said)
    wanted = run_graph(graph, feeds, "float32")["y"]
    assert np.allclose(model.run(feeds)["y"], wanted, atol=1e-5)


@pytest.mark.parametrize("name", TARGETS)
def test_loops_as_they_are_are_built_for_every_target(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = load_target(name)
    broken(monkeypatch, "prior", target, "plain")
    with pytest.warns(DefectWarning):
        model = compile_graph(mlp(), target, processes=1)
    assert {kernel.source for kernel in model.image.kernels} == {"plain"}


def test_the_rule_behind_is_asked_before_loops_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = host_target()
    task = next(iter(partition(optimize(mlp())).weights()))
    monkeypatch.setattr(type(rule_for(task, target)), "write", _raise)
    with pytest.warns(DefectWarning, match="contraction with .*=") as said:
        found = list(candidates(task, target, None))
    assert len(said) == 1
    assert found[0].config == cost_model.default(task, Machine.of(target), RULES.get("nests"))
    assert found[0].said == (str(said[0].message),)
    assert found[-1].schedule == ()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("source", ["record", "default"])
def test_a_step_that_raises_is_told_from_worker_processes_too(
    source: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config((("factor", 2),))
    offered = [Candidate(schedule=RAISES, source=source, config=config),
               Candidate(schedule=(), source="plain")]  # fmt: skip
    monkeypatch.setattr(build, "candidates", lambda *_: iter(offered))
    monkeypatch.setattr(build, "SERIAL_BELOW", 1)
    tasks: tuple[Task, ...] = tuple(partition(mlp()).weights())
    with pytest.warns(DefectWarning, match=rf"{source} schedule with factor=2.*TypeError") as said:
        kernels = build.build_kernels(tasks, host_target(), None, processes)
    assert set(kernels.notes) == {str(w.message) for w in said}
    assert {c.source for c in kernels.chosen.values()} == {"plain"}


def test_in_tests_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "prior", host_target(), "plain")
    with pytest.raises(DefectWarning, match="please report"):
        compile_graph(mlp(), host_target(), processes=1)


def test_memory_that_runs_out_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise MemoryError("no room")

    monkeypatch.setattr(type(RULES.get("contraction")), "prior", full)
    with pytest.raises(MemoryError):
        compile_graph(mlp(), host_target(), processes=1)


@pytest.mark.parametrize("command", [("compile", "-o", "tiny.model"), ("tasks",), ("bench",)])
def test_a_command_says_it_in_one_line_each(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    export_onnx("tiny", "tiny.onnx")
    for method in ("prior", "space"):
        monkeypatch.setattr(type(RULES.get("window")), method, _raise)
    with warnings.catch_warnings():
        warnings.simplefilter("default", DefectWarning)
        assert execute((command[0], "tiny.onnx", *command[1:])) == 0
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if "please report" in line]
    assert told
    assert all(line.startswith("warning: ") and "ValueError" in line for line in told)
    assert len(set(told)) == len(told)

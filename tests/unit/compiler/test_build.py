"""Building a model's kernels: fallbacks when a schedule is stale, and worker processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.compiler import build
from autotune.compiler.choose import Candidate, candidates
from autotune.errors import BuildError
from autotune.measure.build_task import build_task
from autotune.measure.executor import kernel_symbol
from autotune.placement.partition import partition
from autotune.schedule import schedule_from_json
from autotune.schedule.base import Schedule
from autotune.target import host_target
from autotune.types import Task
from tests.unit.compiler.graphs import mlp

STALE = schedule_from_json([{"step": "vectorize", "loops": ["no_such_loop"]}])
TARGET = host_target()


@pytest.fixture
def tasks() -> tuple[Task, ...]:
    return tuple(partition(mlp()).weights())


def offer(monkeypatch: pytest.MonkeyPatch, *schedules: tuple[str, Schedule]) -> None:
    """Let every task have these candidates."""

    def candidates(*_: object) -> Iterator[Candidate]:
        return iter([Candidate(schedule=s, source=name) for name, s in schedules])

    monkeypatch.setattr(build, "candidates", candidates)


def test_the_first_candidate_is_taken(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[Task, ...]
) -> None:
    offer(monkeypatch, ("record", ()), ("default", STALE))
    kernels = build.build_kernels(tasks, TARGET, None, processes=1)
    assert {c.source for c in kernels.chosen.values()} == {"record"}
    assert kernels.notes == ()


def test_a_stale_schedule_falls_back_with_a_note(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[Task, ...]
) -> None:
    offer(monkeypatch, ("record", STALE), ("default", ()))
    kernels = build.build_kernels(tasks, TARGET, None, processes=1)
    assert {c.source for c in kernels.chosen.values()} == {"default"}
    assert len(kernels.notes) == len(tasks)
    assert "no_such_loop" in kernels.notes[0]
    assert kernels.notes[0].endswith("using the default schedule")


def test_no_working_schedule_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[Task, ...]
) -> None:
    offer(monkeypatch, ("default", STALE))
    with pytest.raises(BuildError, match="the default schedule fails"):
        build.build_kernels(tasks, TARGET, None, processes=1)


def test_the_steps_of_a_default_are_applied_once(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[Task, ...]
) -> None:
    again = {t: build_task(t, next(candidates(t, TARGET, None)).schedule, TARGET) for t in tasks}
    monkeypatch.setattr("autotune.measure.build_task.apply_schedule", None)
    kernels = build.build_kernels(tasks, TARGET, None, processes=1)
    assert {c.source for c in kernels.chosen.values()} == {"default"}
    assert kernels.built == again


def test_symbols_differ_between_tasks(tasks: tuple[Task, ...]) -> None:
    other = tuple(partition(mlp(width=4)).weights())
    symbols = [kernel_symbol(t) for t in (*tasks, *other)]
    assert len(set(symbols)) == len(symbols)
    assert all(s.isidentifier() for s in symbols)


def test_worker_processes_build_the_same_code(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[Task, ...]
) -> None:
    offer(monkeypatch, ("record", STALE), ("default", ()))
    here = build.build_kernels(tasks, TARGET, None, processes=1)
    monkeypatch.setattr(build, "SERIAL_BELOW", 1)
    there = build.build_kernels(tasks, TARGET, None, processes=2)
    assert there.chosen == here.chosen
    assert {t: b.code for t, b in there.built.items()} == {
        t: b.code for t, b in here.built.items()
    }

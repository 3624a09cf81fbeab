"""What is shown of a tuning run, from made-up events."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from autotune.cli.progress import RunView, display, headline
from autotune.measure.types import Status
from autotune.tuner.budget import Share
from autotune.tuner.events import (
    Event,
    Finished,
    Progress,
    Ranked,
    Round,
    Started,
    TaskInfo,
    TaskRanking,
    TrialDone,
)
from tests.unit.db.samples import matmul, record

PROGRESS = Progress(
    trials=0, planned=40, failures=0, before_s=None, now_s=None, elapsed_s=0.0, left_s=None
)
LATER = dataclasses.replace(
    PROGRESS, trials=2, failures=1, before_s=4e-3, now_s=2e-3, elapsed_s=65.0, left_s=30.0
)


def info(m: int, weight: int) -> TaskInfo:
    return TaskInfo(
        task=matmul(m=m),
        name=f"node{m}",
        weight=weight,
        flops=8192,
        rule="matmul",
        peak_flops=1e11,
        achievable_s=1e-4,
        trials=0,
        failures=0,
        best_s=None,
    )


def done(task: int, status: Status, best_s: float | None) -> TrialDone:
    return TrialDone(
        task=task,
        record=record(status=status),
        trials=1,
        failures=int(status is not Status.OK),
        best_s=best_s,
        gflops=8.2 if best_s else 0.0,
        of_peak=0.5 if best_s else 0.0,
        achievable_s=1e-4,
        progress=LATER,
    )


EVENTS: list[Event] = [
    Started(tasks=(info(8, 1), info(9, 4)), device="board-7", target="cpu-x", progress=PROGRESS),
    Round(number=1, shares=(Share(task=0, count=2, reason="new"),), progress=PROGRESS),
    done(0, Status.OK, 1e-3),
    done(1, Status.RUN_CRASH, None),
    Finished(reason="all 40 trials are used", progress=LATER),
]


def plain() -> str:
    out = io.StringIO()
    with display(out) as on_event:
        for event in EVENTS:
            on_event(event)
    return out.getvalue()


def test_the_headline_says_how_the_run_stands() -> None:
    assert headline(LATER) == (
        "2/40 trials, 1 failed, model 2.00 ms, 2.00x faster than 4.00 ms, 1:05 elapsed, 0:30 left"
    )


def test_the_headline_says_only_what_is_known() -> None:
    assert headline(PROGRESS) == "0/40 trials, 0 failed, 0:00 elapsed"


def test_plain_lines_where_nobody_watches() -> None:
    text = plain()
    assert "\x1b" not in text
    assert text.splitlines()[0].startswith("2 tasks on board-7 (cpu-x)")
    assert "round 1: " in text
    assert text.splitlines()[-1].endswith("ended: all 40 trials are used")


def test_a_failure_is_named_with_its_reason() -> None:
    assert f"{matmul().key}: RUN_CRASH: build: no registers left" in plain()


def drawn(width: int) -> str:
    """What a terminal of that width shows."""
    out = io.StringIO()

    def console() -> Console:
        return Console(file=out, force_terminal=True, width=width, color_system=None)

    with display(out, console) as on_event:
        for event in EVENTS:
            on_event(event)
    return out.getvalue()


def test_a_terminal_gets_a_table_with_every_task() -> None:
    text = drawn(160)
    assert matmul(m=9).key in text
    assert "1.00 ms" in text
    assert "50%" in text
    assert "ended: all 40 trials are used" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    row = next(line for line in drawn(width).splitlines() if "1.00 ms" in line)
    assert len(row) <= width
    assert "50%" in row
    assert row.count("…") <= 2  # of the task's and the nodes' names


def test_the_heaviest_task_comes_first() -> None:
    board = RunView()
    for event in EVENTS:
        board.take(event)
    assert [line.info.name for line in board.heaviest()] == ["node8", "node9"]


def test_verbose_lines_say_how_well_candidates_were_ranked() -> None:
    ranking = TaskRanking(task=0, samples=8, rank_correlation=0.5, top_recall=1.0, regret=0.25)
    events = [EVENTS[0], Ranked(number=1, tasks=(ranking,), progress=PROGRESS)]
    shown = []
    for verbose in (False, True):
        out = io.StringIO()
        with display(out, verbose=verbose) as on_event:
            for event in events:
                on_event(event)
        shown.append(out.getvalue())
    key = matmul(m=8).key
    line = f"  {key}: 8 predicted, rank correlation 0.500, top-quarter recall 100%, regret 25.0%"
    assert line not in shown[0]
    assert line in shown[1].splitlines()

"""Rankings of a run's rounds: kept in its log, told by its report."""

from __future__ import annotations

import math
from pathlib import Path

import autotune
from autotune.db.rankings import KeptRanking, keep, kept
from autotune.db.store import TuningLog
from autotune.report.facts import rounds
from autotune.report.page import page
from autotune.target import load_target
from autotune.tuner.events import Event, Ranked, Started
from tests.unit.report.samples import facts


def ranking(task: str, number: int, regret: float = 0.1) -> KeptRanking:
    return KeptRanking(
        task_key=task, target_key="cpu", model="tiny", round=number, samples=8,
        rank_correlation=0.5, top_recall=0.25, regret=regret, created="2026-01-01T00:00:00",
    )  # fmt: skip


def test_what_is_kept_comes_back_in_order(tmp_path: Path) -> None:
    written = [ranking("b", 1), ranking("a", 1, math.inf), ranking("a", 2), ranking("c", 2)]
    with TuningLog(tmp_path / "log.db") as log:
        keep(log, written)
        assert kept(log, ["a", "b"], "cpu") == written[:3]
        assert kept(log, ["a", "b"], "gpu") == []


def test_a_log_that_is_not_there_keeps_none(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db", read_only=True, missing_ok=True) as log:
        assert kept(log, ["a"], "cpu") == []


def test_a_report_tells_the_mean_of_each_round() -> None:
    first, second = rounds([ranking("a", 1), ranking("b", 1, 0.3), ranking("a", 2, math.inf)])
    assert (first.round, first.tasks, first.samples, first.regret) == (1, 2, 16, 0.2)
    assert second.regret == math.inf


def test_a_run_keeps_what_it_shows(tmp_path: Path) -> None:
    shown: list[Event] = []
    path = tmp_path / "log.db"
    autotune.tune("zoo:tiny", log=path, trials=16, on_event=shown.append)
    started = next(e for e in shown if isinstance(e, Started))
    ranked = [
        (started.tasks[r.task].task.key, e.number, r.samples, r.rank_correlation)
        for e in shown
        if isinstance(e, Ranked)
        for r in e.tasks
    ]
    keys = [info.task.key for info in started.tasks]
    with TuningLog(path, read_only=True) as log:
        found = kept(log, keys, load_target("cpu").key)
    assert [(r.task_key, r.round, r.samples, r.rank_correlation) for r in found] == ranked
    assert ranked


def test_the_page_has_a_line_per_round() -> None:
    import dataclasses

    text = page(dataclasses.replace(facts(), rounds=rounds([ranking("a", 7)])))
    assert "top_recall" not in text
    assert '<td class="right">7</td>' in text
    assert "25%" in text

"""Final re-ranking. In: a task's fastest records. Out: the same, timed again interleaved.

Of many candidates that are about equally fast, the one with the luckiest measurement looks best
(the winner's curse). At the end of a run the few fastest of a task are timed again in turns
(A B C A B C), so that a disturbed moment meets all of them, and those times count instead of the
first ones.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from autotune.db.types import Record
from autotune.measure.types import MeasureResult, Status

if TYPE_CHECKING:
    from autotune.tuner.task_run import TaskRun

TOP_CANDIDATES = 3
"""Candidates of a task that are timed again, at most (chosen, as all constants here)."""
CLOSE = 1.05
"""Time over that of the second fastest, up to which a candidate may be the fastest: the first
measurement of the fastest may have been lucky."""
TURNS = 2
"""Times that each of them is timed again."""
NEGLIGIBLE_SHARE = 0.005
"""Share of the model's time below which a task's order of candidates does not matter."""
RERANK_SHARE = 0.15
"""Share of a run's time limit that is kept for re-ranking."""


def top_candidates(records: Sequence[Record]) -> tuple[Record, ...]:
    """Records to time again, fastest first; none where there is no choice."""
    worked = sorted(
        (r for r in records if r.result.status is Status.OK), key=lambda r: r.result.median_s
    )
    if len(worked) < 2:
        return ()
    limit_s = CLOSE * worked[1].result.median_s
    return tuple(r for r in worked[:TOP_CANDIDATES] if r.result.median_s <= limit_s)


def interleaved(records: Sequence[Record]) -> tuple[Record, ...]:
    """Each record TURNS times: A B C A B C."""
    return tuple(records) * TURNS


def combined(record: Record, results: Sequence[MeasureResult]) -> Record | None:
    """The record with the times of all its turns, or with the failure of one; None where the
    device was lost."""
    if any(r.status is Status.DEVICE_LOST for r in results):
        return None
    failed = next((r for r in results if r.status is not Status.OK), None)
    whole = failed or dataclasses.replace(
        results[0],
        times_s=tuple(t for r in results for t in r.times_s),
        calibration_s=max(r.calibration_s for r in results),
        run_s=sum(r.run_s for r in results),
    )
    return dataclasses.replace(record, result=whole, created="", id=None)


def to_rerank(runs: Sequence[TaskRun], touched: Collection[int]) -> dict[int, tuple[Record, ...]]:
    """Top candidates of every task that got trials and weighs something, heaviest task first."""
    spent_s = {n: runs[n].weight * (runs[n].best_s or 0.0) for n in range(len(runs))}
    least_s = NEGLIGIBLE_SHARE * math.fsum(spent_s.values())
    heavy = [n for n in sorted(touched) if spent_s[n] >= least_s]
    found = {n: runs[n].top_candidates() for n in sorted(heavy, key=lambda n: -spent_s[n])}
    return {n: records for n, records in found.items() if records}


def rerank_s(runs: Sequence[TaskRun], touched: Collection[int], limit_s: float) -> float:
    """Seconds that re-ranking is expected to take in a run of `limit_s` seconds."""
    expected_s = sum(
        TURNS * len(records) * statistics.median(runs[n].cost_s)
        for n, records in to_rerank(runs, touched).items()
    )
    return min(expected_s, RERANK_SHARE * limit_s)

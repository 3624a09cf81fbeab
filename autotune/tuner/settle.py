"""Which schedule of a task is really the fastest. In: its fastest records. Out: better records.

Of many candidates that are about equally fast, the one with the luckiest measurement looks best.
At the end of a task the few fastest are measured again in turns (A B C A B C), so that a disturbed
moment meets all of them, and those times count instead of the first ones.
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

CONTENDERS = 3
CLOSE = 1.05
"""Candidates within this factor of the second fastest may be the fastest, if the fastest was only
lucky."""
TURNS = 2
NEGLIGIBLE = 0.005
"""Share of the model's time below which a task's order of candidates does not matter."""
MOST_SETTLING = 0.15
"""Share of the time limit kept for measuring again."""


def contenders(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records to measure again, fastest first; none where there is no choice."""
    worked = sorted(
        (r for r in records if r.result.status is Status.OK), key=lambda r: r.result.median_s
    )
    if len(worked) < 2:
        return ()
    limit_s = CLOSE * worked[1].result.median_s
    return tuple(r for r in worked[:CONTENDERS] if r.result.median_s <= limit_s)


def in_turns(records: Sequence[Record]) -> tuple[Record, ...]:
    """A B C A B C."""
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


def doubtful(runs: Sequence[TaskRun], touched: Collection[int]) -> dict[int, tuple[Record, ...]]:
    """The contenders of every task that got trials and weighs something, heaviest task first."""
    spent_s = {n: runs[n].weight * (runs[n].best_s or 0.0) for n in range(len(runs))}
    least_s = NEGLIGIBLE * math.fsum(spent_s.values())
    heavy = [n for n in sorted(touched) if spent_s[n] >= least_s]
    found = {n: runs[n].contenders() for n in sorted(heavy, key=lambda n: -spent_s[n])}
    return {n: records for n, records in found.items() if records}


def settling_s(runs: Sequence[TaskRun], touched: Collection[int], limit_s: float) -> float:
    """What measuring again will take, of a run of `limit_s`."""
    expected_s = sum(
        TURNS * len(records) * statistics.median(runs[n].cost_s)
        for n, records in doubtful(runs, touched).items()
    )
    return min(expected_s, MOST_SETTLING * limit_s)

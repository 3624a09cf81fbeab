"""Quality of the ranking of candidates before they were measured, kept in the log.

In: a ranking per task of a round of a run. Out: those of a model's tasks, for a report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from autotune.db import codec, seals
from autotune.db.clock import utc_now
from autotune.db.schema import RANKINGS
from autotune.db.store import TuningLog


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRanking:
    """Predictions of one task's candidates of a run, up to a round of it."""

    task_key: str
    target_key: str
    model: str
    round: int
    samples: int
    rank_correlation: float
    top_recall: float
    """Share of the fastest quarter that is in the quarter predicted to be fastest."""
    regret: float
    """How much slower the candidate predicted to be fastest is than the fastest; infinity where it
    failed."""
    created: str = ""


def keep(log: TuningLog, rankings: Sequence[KeptRanking]) -> None:
    """Add them. Raises LogError."""
    if not rankings:
        return
    now = utc_now()
    rows = [
        codec.sealed(
            "rankings",
            {
                "task_key": r.task_key,
                "target_key": r.target_key,
                "model": r.model,
                "round": int(r.round),
                "samples": int(r.samples),
                "rank_correlation": float(r.rank_correlation),
                "top_recall": float(r.top_recall),
                "regret": float(r.regret) if math.isfinite(r.regret) else None,
                "created": r.created or now,
            },
        )
        for r in rankings
    ]
    with log.writing() as connection:
        connection.execute(RANKINGS.insert(), rows)


def kept(log: TuningLog, task_keys: Sequence[str], target_key: str) -> list[KeptRanking]:
    """Rankings of the tasks on a target, in the order of their runs and rounds."""
    wanted = RANKINGS.c.task_key.in_(task_keys) & (RANKINGS.c.target_key == target_key)
    with log.reading() as connection:
        if connection is None:
            return []
        rows = connection.execute(select(RANKINGS).where(wanted).order_by(RANKINGS.c.id)).all()
    whole = [row for row in rows if _is_whole(log, row)]
    return [
        KeptRanking(
            task_key=row.task_key,
            target_key=row.target_key,
            model=row.model,
            round=row.round,
            samples=row.samples,
            rank_correlation=row.rank_correlation,
            top_recall=row.top_recall,
            regret=math.inf if row.regret is None else row.regret,
            created=row.created,
        )
        for row in whole
    ]


def _is_whole(log: TuningLog, row: Any) -> bool:
    if seals.is_whole("rankings", row._mapping):
        return True
    log.damage.add("rankings", row.id, "its checksum does not fit")
    return False

"""Quality of the ranking of candidates before they were measured, kept in the log.

In: a ranking per task of a round of a run. Out: those of a model's tasks, for a report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
        codec.row_of(
            "rankings",
            r,
            regret=float(r.regret) if math.isfinite(r.regret) else None,
            created=r.created or now,
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
    whole = [r._mapping for r in rows if log.damage.is_whole("rankings", r.id, r._mapping)]
    return [
        KeptRanking(
            **{name: row[name] for name in seals.COLUMNS["rankings"] if name != "regret"},
            regret=math.inf if row["regret"] is None else row["regret"],
        )
        for row in whole
    ]

"""Transfer from other tasks and devices. In: logs. Out: pretrained cost models.

The fastest and the latest records of each task are taken: what is fast is what has to be ranked
well, and among the latest are the ones that a search was unsure of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import func, select

from autotune.db.schema import RECORDS, TARGETS
from autotune.db.statements import record_rows
from autotune.db.store import TuningLog
from autotune.db.types import Mark, Record
from autotune.machine.profile import DeviceProfile
from cost_model.models import Train, fit_here
from cost_model.pretrained import Pretrained, pretrain
from cost_model.train import NONE, Profiles, datasets

PER_TASK = 128
"""Records of a task on a target at most."""
MOST = 6000
"""Records in all: more take longer to learn from than they save."""


def samples(
    log: TuningLog,
    *,
    family: str | None = None,
    without: Sequence[str] = (),
    most: int | None = None,
) -> Iterator[Record]:
    """Records to learn from, the latest tasks first, up to PER_TASK of each. `family`: only of
    targets of this family; `without`: not of tasks with these keys."""
    with log.reading() as connection:
        if connection is None:
            return
        pairs = (
            select(RECORDS.c.task_key, RECORDS.c.target_key, func.max(RECORDS.c.id).label("last"))
            .where(RECORDS.c.task_key.not_in(without))
            .group_by(RECORDS.c.task_key, RECORDS.c.target_key)
            .order_by(func.max(RECORDS.c.id).desc())
        )
        if family is not None:
            keys = select(TARGETS.c.key).where(TARGETS.c.family == family)
            pairs = pairs.where(RECORDS.c.target_key.in_(keys))
        taken = 0
        for pair in connection.execute(pairs).all():
            same = (
                (RECORDS.c.task_key == pair.task_key)
                & (RECORDS.c.target_key == pair.target_key)
                & (RECORDS.c.mark != int(Mark.REPEATED))  # the later record of its schedule counts
            )
            worked = same & (RECORDS.c.status == "OK")
            fast = select(RECORDS.c.id).where(worked).order_by(RECORDS.c.median_s)
            late = select(RECORDS.c.id).where(same).order_by(RECORDS.c.id.desc())
            ids = {
                row.id
                for statement in (fast, late)
                for row in connection.execute(statement.limit(PER_TASK // 2))
            }
            rows = record_rows().where(RECORDS.c.id.in_(sorted(ids))).order_by(RECORDS.c.id)
            yield from filter(None, map(log.record, connection.execute(rows).all()))
            taken += len(ids)
            if most is not None and taken >= most:
                return


def from_log(
    log: TuningLog,
    profile: DeviceProfile,
    own_tasks: Sequence[str],
    *,
    seed: int,
    train: Train = fit_here,
    profiles: Profiles = NONE,
) -> Pretrained:
    """Learnt from the records of other tasks than `own_tasks` on devices of the same family."""
    family = profile.target.family
    records = list(samples(log, family=family, without=own_tasks, most=MOST))
    tasks = len({r.task.key for r in records})
    about = f"{len(records)} records of {tasks} other tasks in {log.name}"
    return pretrain(datasets(records, profile, profiles), seed, about, train=train)

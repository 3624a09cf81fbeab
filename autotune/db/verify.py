"""Imported records, measured here. In: a log, a runner. Out: new records, and marks lifted.

A measurement here is a record of its own, which counts like every other; the imported one stays
beside it with what was measured elsewhere, and never counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import text, update

from autotune.db import codec
from autotune.db.schema import RECORDS
from autotune.db.selection import ALL, Selection, conditions, resolve
from autotune.db.statements import executor, record_rows, remarked
from autotune.db.store import TuningLog
from autotune.db.types import Mark, Record
from autotune.measure.types import MeasureRequest, MeasureResult, Runner, Status, Timing
from autotune.schedule.base import Schedule
from autotune.target import Target

_BATCH = 16
"""Records that are measured together."""

OnVerified = Callable[[Record, Record], None]
"""Called with each imported record and its measurement here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The outcome of a verification. `failed`: did not build or run here, or gave a wrong result;
    `lost`: the device went away, so they still wait."""

    ok: int = 0
    failed: int = 0
    lost: int = 0


def waiting(
    log: TuningLog, target: Target, selection: Selection = ALL, *, top: int | None = None
) -> list[Record]:
    """OK imported records for this target that wait, each schedule once, the fastest `top` of each
    task. Those slower elsewhere than another are likely slower here too."""
    wanted = selection._replace(target=target.key)
    with log.reading() as connection:
        if connection is None:
            return []
        where, params = conditions(
            resolve(executor(connection), wanted, log.damage.add), "records"
        )
        statement = (
            record_rows()
            .where(RECORDS.c.mark == int(Mark.IMPORTED), RECORDS.c.status == "OK", text(where))
            .order_by(RECORDS.c.task_key, RECORDS.c.median_s, RECORDS.c.id)
        )
        rows = connection.execute(statement, params).all()
    found: dict[tuple[str, Schedule], Record] = {}
    counts: dict[str, int] = {}
    for row in rows:
        if counts.get(row.task_key, 0) == top:
            continue
        record = log.record(row)
        if record is not None and (row.task_key, record.schedule) not in found:
            counts[row.task_key] = counts.get(row.task_key, 0) + 1
            found[row.task_key, record.schedule] = record
    return list(found.values())


def verify(
    log: TuningLog,
    runner: Runner,
    target: Target,
    records: Sequence[Record],
    *,
    timing: Timing | None = None,
    versions: tuple[tuple[str, str], ...] = (),
    on_verified: OnVerified | None = None,
) -> Verified:
    """Measure imported records; every result is in the log as soon as it is known."""
    log.claim()
    counts = {"ok": 0, "failed": 0, "lost": 0}
    for start in range(0, len(records), _BATCH):
        batch = records[start : start + _BATCH]

        def keep(place: int, result: MeasureResult, batch: Sequence[Record] = batch) -> None:
            if result.status is Status.DEVICE_LOST:
                counts["lost"] += 1
                return
            counts["ok" if result.status is Status.OK else "failed"] += 1
            here = _here(batch[place], target, result, versions)
            _settle(log, batch[place], here)
            if on_verified is not None:
                on_verified(batch[place], here)

        requests = tuple(_request(record, target, timing or Timing()) for record in batch)
        runner.measure(requests, keep)
    return Verified(**counts)


def _request(record: Record, target: Target, timing: Timing) -> MeasureRequest:
    return MeasureRequest(
        task=record.task,
        schedule=record.schedule,
        target=target,
        timing=timing,
        seed=record.seed,
    )


def _here(
    record: Record, target: Target, result: MeasureResult, versions: tuple[tuple[str, str], ...]
) -> Record:
    return dataclasses.replace(
        record,
        target=target,
        result=result,
        versions=versions,
        created="",
        mark=Mark.OWN,
        id=None,
    )


def _settle(log: TuningLog, imported: Record, here: Record) -> None:
    """Add the measurement and lift the mark of every imported record of this schedule, at once."""
    texts = codec.schedule_texts(imported.schedule)
    same = (
        RECORDS.c.task_key == imported.task.key,
        RECORDS.c.target_key == imported.target.key,
        RECORDS.c.mark == int(Mark.IMPORTED),
        RECORDS.c.schedule.in_(texts) | (RECORDS.c.id == imported.id),
    )
    with log.writing() as connection:
        log.insert(connection, [here])
        marked = remarked(Mark.IMPORTED, Mark.VERIFIED)
        connection.execute(update(RECORDS).where(*same).values(marked))

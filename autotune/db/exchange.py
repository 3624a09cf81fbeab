"""Records between logs. In: a log, or items of another. Out: its items, or marked records in it.

An imported record counts only after it was measured here (see `verify`), unless it is trusted.
What the log already has is not added again: an import that was cut short can simply be repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, text

from autotune.db import codec
from autotune.db.items import Decoder, Item, record_item
from autotune.db.latencies import file_latencies, latency_items
from autotune.db.profiles import Key, file_profiles, latest, profile_item
from autotune.db.schema import RECORDS
from autotune.db.selection import ALL, Selection, conditions, resolve
from autotune.db.statements import executor, record_rows
from autotune.db.store import TuningLog
from autotune.db.types import Latency, Mark, Record
from autotune.errors import ScheduleError
from autotune.schedule.base import Schedule
from autotune.streams import readable

_BATCH = 1000
"""Records of a transaction."""

_SAME = ("target", "device", "status", "times", "error", "seed", "created")
"""With the task and the schedule these tell whether two records are one measurement."""


def log_items(
    log: TuningLog, selection: Selection = ALL, *, numbers: Sequence[int] | None = None
) -> Iterator[Item]:
    """The selected records of a log, the oldest first, each task and target before its first
    record; `numbers`: these records only. Read as they are asked for: a log of any size fits."""
    with log.reading() as connection:
        if connection is None:
            return
        where, params = conditions(
            resolve(executor(connection), selection, log.damage.add), "records"
        )
        statement = record_rows().where(text(where)).order_by(RECORDS.c.id)
        if numbers is not None:
            statement = statement.where(RECORDS.c.id.in_(numbers))
        profiles = latest(connection, log.damage)
        latencies = latency_items(connection, log.damage)
        rows = connection.execution_options(yield_per=1000).execute(statement, params)
        whole = (row for row in rows if log.record(row) is not None)
        yield from _defined(whole, profiles, latencies)


def _defined(
    rows: Iterable[Any],
    profiles: Mapping[Key, str],
    latencies: Mapping[tuple[str, str, str], Sequence[Item]],
) -> Iterator[Item]:
    """The records with what they name, each definition before its first use, and the latencies of
    their models."""
    seen: set[object] = set()
    for row in rows:
        measured_on = row.device, row.target_key
        if measured_on in profiles and measured_on not in seen:
            seen.add(measured_on)
            yield profile_item(*measured_on, json.loads(profiles[measured_on]))
        tuned = *measured_on, row.model
        if tuned not in seen:
            seen.add(tuned)
            yield from latencies.get(tuned, ())
        if row.task_key not in seen:
            seen.add(row.task_key)
            task = json.loads(row.tasks_json)
            yield {"kind": "task", "key": row.task_key, "flops": row.tasks_flops, "task": task}
        if row.target not in seen:
            seen.add(row.target)
            yield {"kind": "target", "digest": row.target, "target": json.loads(row.targets_json)}
        yield record_item(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Counts of an import's records. `unknown`: their schedules use steps this release lacks."""

    added: int = 0
    present: int = 0
    unknown: int = 0


def import_items(
    log: TuningLog,
    items: Iterable[tuple[str, Item]],
    source: str,
    *,
    trust: bool = False,
) -> Imported:
    """Add the records of (place, item) pairs. `source` becomes the origin of those that have none;
    `trust`: they keep their own marks, as if measured here. Raises LogError for an item that
    cannot be one; everything before its batch is kept. What fails before that makes
    no log."""
    source = readable(source)
    decoder = Decoder(source)
    total = Imported()
    pending = _decoded(decoder, items, source, trust=trust)
    while batch := list(itertools.islice(pending, _BATCH)):
        records = [r for r in batch if r is not None]
        with log.writing() as connection:
            file_profiles(connection, decoder.profiles)
            decoder.profiles.clear()
            file_latencies(connection, [_from(source, one) for one in decoder.latencies])
            decoder.latencies.clear()
            new = _new(connection, records)
            if new:
                log.insert(connection, new)
        total = Imported(
            added=total.added + len(new),
            present=total.present + len(records) - len(new),
            unknown=total.unknown + len(batch) - len(records),
        )
    log.claim()  # of nothing at all too
    return total


def _decoded(
    decoder: Decoder, items: Iterable[tuple[str, Item]], source: str, *, trust: bool
) -> Iterator[Record | None]:
    """The records as they are to be kept; None for one this release cannot read."""
    for place, item in items:
        try:
            record = decoder.decode(item, place)
        except ScheduleError:
            yield None
            continue
        if record is not None:
            mark = record.mark if trust else Mark.IMPORTED
            yield dataclasses.replace(record, origin=record.origin or source, mark=mark)


def _from(source: str, latency: Latency) -> Latency:
    return dataclasses.replace(latency, origin=latency.origin or source)


def _new(connection: Connection, records: Iterable[Record]) -> list[Record]:
    """Records that the log does not have, each once."""
    seen: set[tuple[object, ...]] = set()
    found = []
    for record in records:
        row = codec.record_row(record, "")
        identity = tuple(row[n] for n in ("task_key", "schedule", *_SAME))
        if identity in seen or _is_present(connection, row, record.schedule):
            continue
        seen.add(identity)
        found.append(record)
    return found


def _is_present(connection: Connection, row: codec.Values, schedule: Schedule) -> bool:
    """The index leads to the records of this task and time; failures have no time, but are few."""
    columns = RECORDS.c
    same = [columns[n] == row[n] for n in ("task_key", "target_key", *_SAME)]
    same.append(columns.schedule.in_(codec.schedule_texts(schedule)))
    marks = columns.mark.in_([int(m) for m in Mark])
    median = columns.median_s == row["median_s"] if row["median_s"] else columns.median_s.is_(None)
    statement = select(columns.id).where(*same, marks, median).limit(1)
    return connection.execute(statement).first() is not None

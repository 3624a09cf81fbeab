"""Frozen logs. In: a tuning log. Out: the best record of each task in one small JSON file, to ship
with a model and compile against; and that file as a Store to read from.

Reading one needs no SQLAlchemy. The items are those of an exported log (see `items`), each on a
line of its own, every record with its median time alone.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.atomic_file import write_text
from autotune.db import codec, query
from autotune.db.items import FORMAT as EXPORTED
from autotune.db.items import Decoder, Item, check_header
from autotune.db.selection import ALL, Selection, has_numerics, has_shape
from autotune.db.types import Record
from autotune.errors import LogError, ScheduleError
from autotune.op_names import logged_op
from autotune.target import Target
from autotune.types import Task

if TYPE_CHECKING:
    from autotune.db.store import TuningLog

FORMAT = "autotune-frozen"
VERSION = 1
"""Version of the frozen format."""


def freeze(log: TuningLog, selection: Selection, path: Path, created: str) -> int:
    """Write the best selected record of every task and target; how many they are. Raises LogError.

    The file appears whole or not at all."""
    from autotune.db.exchange import log_items  # needs SQLAlchemy

    best = [record["record"] for record in log.query(selection)]
    items = [_slim(item) for item in log_items(log, numbers=best)]
    head = codec.to_text({"format": FORMAT, "version": VERSION, "created": created})
    body = ",\n".join(map(codec.to_text, items))
    text = f'{head[:-1]},"items":[\n{body}\n]}}\n'
    write_text(path, text, LogError)
    return len(best)


def _slim(item: Item) -> Item:
    if item["kind"] != "record":
        return item
    return {**item, "times_s": [statistics.median(item["times_s"])]}


def is_frozen(path: Path) -> bool:
    """Whether the file begins as a frozen log does; False where it cannot be read."""
    return _begins(path, FORMAT)


def _begins(path: Path, format: str) -> bool:
    head = f'{{"format":"{format}"'.encode()
    try:
        with path.open("rb") as file:
            return file.read(len(head)) == head
    except OSError:
        return False


def frozen_items(path: Path) -> Iterator[tuple[str, Item]]:
    """(place, item) of every item of a frozen log. Raises LogError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LogError(f"frozen log {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        what = "not JSON; freeze it again"
        if _begins(path, EXPORTED):
            what = "an exported log; `autotune log import` adds its records to a database"
        raise LogError(f"frozen log {path}: {what}") from None
    check_header(data, FORMAT, VERSION, f"frozen log {path}")
    items = data.get("items")
    if not isinstance(items, list):
        raise LogError(f"frozen log {path}: has no list of items; freeze it again")
    for number, item in enumerate(items, 1):
        yield f"item {number}", item


class FrozenLog:
    """A frozen log as a Store. It cannot be written to."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        decoder = Decoder(f"frozen log {path}")
        self._records: list[Record] = []
        for place, item in frozen_items(path):
            try:
                record = decoder.decode(item, place)
            except ScheduleError as error:
                raise LogError(
                    f"frozen log {path}, {place}: {error}; it was written by another release: "
                    "freeze it again"
                ) from None
            if record is not None:
                self._records.append(record)
        self._by_key: dict[tuple[str, str], list[Record]] = {}
        for record in sorted(self._records, key=lambda r: r.result.median_s):
            self._by_key.setdefault((record.task.key, record.target.key), []).append(record)

    def append(self, records: Iterable[Record]) -> NoReturn:
        """Raises LogError."""
        del records
        raise LogError(f"frozen log {self.name}: it cannot be written; give a database as --log")

    def repeat(self, records: Iterable[Record]) -> NoReturn:
        """Raises LogError."""
        self.append(records)

    def best(self, task_key: str, target: Target) -> Record | None:
        return next(iter(self.top(task_key, target, 1)), None)

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]:
        return self._by_key.get((task_key, target.key), [])[:count]

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        found = self._by_key.get((task_key, target.key), [])
        return sorted(found, key=lambda r: r.created)

    def nearest(
        self, task: Task, target: Target, count: int, *, imported: bool = False, each: int = 1
    ) -> Sequence[Record]:
        """As TuningLog's; a frozen log has no imported records, and one record of each pair."""
        del imported, each
        near = []
        for (key, target_key), records in self._by_key.items():
            first = records[0]
            if first.task.op == task.op and first.target.family == target.family:
                far = codec.distance(task, first.task)
                near.append((far, key, target_key != target.key, target_key))
        found = [
            self._by_key[key, on][0] for far, key, _, on in sorted(near) if far < float("inf")
        ]
        return tuple(found[:count])

    def query(
        self, selection: Selection = ALL, *, top: int = 1, history: bool = False
    ) -> list[dict[str, Any]]:
        """As TuningLog's; there is one record of each task and target, which is its history
        too."""
        del history
        if top < 1:
            raise LogError(f"the number of records per task must be at least 1, got {top}")
        numbered = enumerate(self._records, 1)
        return query.slowest_first(
            [query.as_dict(*_rows(r, n)) for n, r in numbered if _is_selected(r, selection)]
        )

    def close(self) -> None:
        """Nothing is held open."""


def _is_selected(record: Record, wanted: Selection) -> bool:
    task, target = record.task, record.target
    return (
        (wanted.task_keys is None or task.key in wanted.task_keys)
        and (wanted.op is None or logged_op(wanted.op) == logged_op(task.op))
        and (wanted.shape is None or has_shape(task.to_json(), wanted.shape))
        and wanted.target in (None, target.name, target.key, target.family)
        and (wanted.target_keys is None or target.key in wanted.target_keys)
        and has_numerics(target.to_json(), wanted)
        and wanted.device in (None, record.result.device)
        and (wanted.since is None or record.created >= wanted.since)
        and (wanted.until is None or record.created < wanted.until)
    )


def _rows(record: Record, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record and its task as rows of a database."""
    row = codec.record_row(record, "")
    return {**row, "id": number}, codec.task_row(record)

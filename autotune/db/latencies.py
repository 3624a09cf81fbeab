"""Latencies of whole models, kept in the log beside its records.

In: the times of a model's runs with default and with the best schedules, or on a board. Out: those
of a model, for a report. `model_key` tells models apart, whatever their files call them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from autotune.db import codec, seals
from autotune.db.clock import utc_now
from autotune.db.damage import Damage
from autotune.db.items import Item, latency_item
from autotune.db.schema import LATENCIES
from autotune.db.store import TuningLog
from autotune.db.types import Latency
from autotune.graph.ir import Graph
from autotune.graph.text import graph_text

Key = tuple[str, str, str]
"""(device, target key, model name): what a log for exchange has latencies with."""
_TIMES = ("before", "after")
"""Columns of times, as JSON."""


def model_key(graph: Graph) -> str:
    """Digest of a prepared graph: equal where its kernels are the same, whatever the weights
    hold."""
    _, _, text = graph_text(graph).partition("\n")  # the first line is the name
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(log: TuningLog, latency: Latency) -> None:
    """Add it. Raises LogError."""
    with log.writing() as connection:
        connection.execute(LATENCIES.insert(), [_row(latency)])


def kept(log: TuningLog, key: str | None, target_key: str) -> list[Latency]:
    """Latencies of a model, or of every model, before and after tuning on a target, in the order
    of the log."""
    wanted = LATENCIES.c.target_key == target_key
    if key is not None:
        wanted &= LATENCIES.c.model_key == key
    return [one for one in _found(log, wanted) if one.before]


def on_boards(log: TuningLog, key: str, name: str) -> list[Latency]:
    """Those of a model that `bench` measured on boards, whatever their targets, in the order of
    the log. Graphs of one model may differ by target: those of its `name` are taken too."""
    wanted = (LATENCIES.c.model_key == key) | (LATENCIES.c.model == name)
    return [one for one in _found(log, wanted) if not one.before]


def _found(log: TuningLog, wanted: ColumnElement[bool]) -> list[Latency]:
    with log.reading() as connection:
        if connection is None:
            return []
        rows = connection.execute(select(LATENCIES).where(wanted).order_by(LATENCIES.c.id)).all()
    return [one for row in rows if (one := _whole(row, log.damage))]


def _whole(row: Any, damage: Damage) -> Latency | None:
    """None, and a note, for a damaged row."""
    try:
        if damage.is_whole("latencies", row.id, row._mapping):
            return _latency(row._mapping)
    except codec.UNREADABLE as error:
        damage.add("latencies", row.id, codec.complaint(error))
    return None


def _latency(row: Mapping[str, Any]) -> Latency:
    times = {name: tuple(json.loads(row[name])) for name in _TIMES}
    return Latency(**{name: row[name] for name in seals.COLUMNS["latencies"]} | times)


def _row(latency: Latency) -> dict[str, Any]:
    times = {name: codec.to_text(list(getattr(latency, name))) for name in _TIMES}
    return codec.row_of("latencies", latency, **times, created=latency.created or utc_now())


# ---------------------------------------------------------------------------------- for exchange


def latency_items(connection: Connection, damage: Damage) -> dict[Key, list[Item]]:
    """All of a log, as items of an exported one."""
    found: dict[Key, list[Item]] = {}
    for row in connection.execute(select(LATENCIES).order_by(LATENCIES.c.id)):
        latency = _whole(row, damage)
        if latency is not None:
            key = row.device, row.target_key, row.model
            found.setdefault(key, []).append(latency_item(latency))
    return found


def file_latencies(connection: Connection, latencies: Sequence[Latency]) -> None:
    """Add those that the log does not have."""
    columns = LATENCIES.c
    for latency in latencies:
        row = _row(latency)
        names = ("model_key", "target_key", "device", "before", "after", "created")
        same = select(columns.id).where(*(columns[name] == row[name] for name in names))
        if connection.execute(same.limit(1)).first() is None:
            connection.execute(LATENCIES.insert(), [row])

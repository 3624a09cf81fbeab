"""Records as JSON items, for exchange between logs. In: a row, or items. Out: items, or Records.

The items of an exported log, one a line, each a JSON object:

    {"format": "autotune-log", "version": 3, "created": "..."}     first
    {"kind": "profile", "device": ..., "target": KEY, "profile": {...}}
    {"kind": "latency", "model_key": ..., "target": KEY, "device": ..., "before_s": [...], ...}
    {"kind": "task", "key": ..., "flops": ..., "task": {...}}      before the first record of it
    {"kind": "target", "digest": ..., "target": {...}}
    {"kind": "record", "task": KEY, "target": DIGEST, "config": {...}, "schedule": [...], ...}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from autotune.db import codec
from autotune.db.seals import COLUMNS
from autotune.db.selection import moment
from autotune.db.types import Latency, Mark, Record
from autotune.errors import LogError
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureResult, Status, sound
from autotune.schedule import schedule_from_json
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config

FORMAT = "autotune-log"
LONGEST_LINE = 16 << 20
"""Characters; a task of a hundred nodes takes a thousandth."""
VERSION = 3
"""Version 1 had no profiles, version 2 no latencies."""
_DERIVED = ("target_key", "median_s")
"""Columns of records that follow from others."""
_JSON = ("config", "schedule", "times", "versions")
"""Those that are JSON themselves."""
_NAMES = {"task_key": "task", "times": "times_s"}
_LATENCY_NAMES = {"target_key": "target", "before": "before_s", "after": "after_s"}
"""Column -> name in an item, where they differ."""
Item = Mapping[str, Any]


def header(created: str) -> Item:
    return {"format": FORMAT, "version": VERSION, "created": created}


def record_item(row: Any) -> dict[str, Any]:
    """The item of a row of records."""
    item = {"kind": "record"}
    for name in (*COLUMNS["records"], "mark"):
        if name not in _DERIVED:
            value = getattr(row, name)
            item[_NAMES.get(name, name)] = json.loads(value) if name in _JSON else value
    return item


def latency_item(latency: Latency) -> dict[str, Any]:
    fields = {_LATENCY_NAMES.get(n, n): value for n, value in asdict(latency).items()}
    times = {name: list(fields[name]) for name in ("before_s", "after_s")}
    return {"kind": "latency", **fields, **times}


class Decoder:
    """Items, one after another, to Records. `source` names them in complaints."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tasks: dict[str, tuple[Task, int]] = {}
        self._targets: dict[str, Target] = {}
        self.profiles: list[Item] = []
        """Profiles among the items so far, as they came."""
        self.latencies: list[Latency] = []

    def decode(self, item: Item, place: str) -> Record | None:
        """The item's Record, None for a definition. Raises LogError for an item that cannot be
        one, ScheduleError for a schedule that this release does not know."""
        try:
            return self._decode(item)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            what = f"misses {error}" if isinstance(error, KeyError) else str(error)
            raise LogError(
                f"{self._source}, {place}: not an item of a tuning log: {what}"
            ) from None

    def _decode(self, item: Item) -> Record | None:
        kind = item["kind"]
        if kind == "task":
            task = Task.from_json(item["task"])
            if task.key != item["key"]:
                raise ValueError(f"the task's key is {task.key}, not {item['key']}")
            _text(task.op)
            self._tasks[task.key] = task, _whole(item["flops"])
            return None
        if kind == "target":
            target = Target.from_json(item["target"])
            _text(target.key + target.name)
            self._targets[_text(item["digest"])] = target
            return None
        if kind == "profile":
            _check_profile(item)
            self.profiles.append(item)
            return None
        if kind == "latency":
            self.latencies.append(_latency(item))
            return None
        if kind != "record":
            raise ValueError(
                f"unknown kind {kind!r}; known: task, target, profile, latency, record"
            )
        task, flops = self._tasks[item["task"]]
        return _record(item, task, self._targets[item["target"]], flops)


def _check_profile(item: Item) -> None:
    profile = DeviceProfile.from_json(item["profile"])
    if (_text(profile.device), _text(profile.target.key)) != (item["device"], item["target"]):
        raise ValueError(f"a profile of {profile.device} filed under {item['device']!r}")


def _latency(item: Item) -> Latency:
    sums = (item["kernels_before_s"], item["kernels_after_s"])
    before_s, after_s = (None if s is None else _times([s])[0] for s in sums)
    return Latency(
        model_key=_text(item["model_key"]),
        model=_text(item["model"]),
        target_key=_text(item["target"]),
        device=_text(item["device"]),
        before=_times(item["before_s"]) if item["before_s"] else (),  # on a board
        after=_times(item["after_s"]),
        kernels_before_s=before_s,
        kernels_after_s=after_s,
        created=_moment(item["created"]),
        origin=_text(item["origin"]),
    )


def _times(values: Iterable[Any]) -> tuple[float, ...]:
    times = tuple(map(float, values))
    if not times or not all(0 < t < math.inf for t in times):
        raise ValueError(f"a latency with the times {list(times)}")
    return times


def _record(item: Item, task: Task, target: Target, flops: int) -> Record:
    max_error = item["max_error"]
    result = sound(
        MeasureResult(
            status=Status(item["status"]),
            times_s=tuple(map(float, item["times_s"])),
            error=str(item["error"]),
            build_s=float(item["build_s"]),
            run_s=float(item["run_s"]),
            calibration_s=float(item["calibration_s"]),
            device=str(item["device"]),
            conditions=str(item.get("conditions", "")),
            max_error=math.inf if max_error is None else float(max_error),
        )
    )
    return Record(
        task=task,
        target=target,
        rule=_text(item["rule"]),
        config=Config.from_json(item["config"]),
        schedule=schedule_from_json(item["schedule"]),
        result=result,
        seed=_whole(item["seed"]),
        flops=flops,
        model=_text(item["model"]),
        versions=tuple(sorted((str(k), str(v)) for k, v in item["versions"].items())),
        created=_moment(item["created"]),
        origin=_text(item["origin"]),
        mark=Mark(item["mark"]),
    )


def _text(value: Any) -> str:
    """Raises ValueError for a text that not every database keeps."""
    text = str(value)
    if "\0" in text:
        raise ValueError(f"a NUL character in {text!r}")
    text.encode()
    return text


def _whole(value: Any) -> int:
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("expected a number of at most 64 bits")
    return number


def _moment(text: str) -> str:
    try:
        return moment(text)
    except LogError as error:
        raise ValueError(str(error)) from None


def to_line(item: Item) -> str:
    return codec.to_text(item) + "\n"


def line_items(lines: Iterable[str], source: str) -> Iterator[tuple[str, Item]]:
    """(place, item) of every line of an exported log. Raises LogError."""
    first = True
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise LogError(
                f"{source}, line {number}: longer than {LONGEST_LINE} characters; no exported log"
            )
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            raise LogError(
                f"{source}, line {number}: not JSON; the file is cut off or no exported log"
            ) from None
        if first:
            check_header(item, FORMAT, VERSION, source)
            first = False
        else:
            yield f"line {number}", item
    if first:
        raise LogError(f"{source}: empty; `autotune log export` writes a log for exchange")


def check_header(item: Any, wanted: str, known: int, source: str) -> None:
    """Raise LogError unless the header names this format in a version that is known."""
    found = item.get("format") if isinstance(item, dict) else None
    version = item.get("version") if isinstance(item, dict) else None
    if found != wanted or not isinstance(version, int):
        raise LogError(f"{source}: expected a file of format {wanted!r}, got {found!r}")
    if version > known:
        raise LogError(
            f"{source}: written by a newer release (version {version}, this one knows {known}); "
            "upgrade autotune"
        )

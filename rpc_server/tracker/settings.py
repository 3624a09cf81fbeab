"""Settings of a farm. In: the shipped defaults and a user's TOML file. Out: typed settings.

The keys and their kinds are those of configs/farm/default.toml.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from rpc_server.client.options import Deadlines
from rpc_server.runners import FarmOptions
from rpc_server.tracker.types import FarmRules

KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


HOUR_S, DAY_S = 3600.0, 86400.0
"""Seconds of an hour, and of a day."""
RANGES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "tracker": {
        "heartbeat_s": (0.01, HOUR_S),
        "board_lost_s": (0.02, DAY_S),
        "lease_s": (0.1, DAY_S),
        "slice_s": (0.01, 7 * DAY_S),
        "recall_grace_s": (0.01, 7 * DAY_S),
        "age_s": (0.01, 30 * DAY_S),
        "fault_limit": (1, 1000),
        "quarantine_s": (0.01, 30 * DAY_S),
        "longest_quarantine_s": (0.01, 365 * DAY_S),
        "forget_board_s": (0.1, 3650 * DAY_S),
        "max_boards": (1, 65536),
        "max_requests": (1, 1 << 20),
        "max_requests_per_client": (1, 1 << 20),
    },
    "board": {"threads": (1, 4096), "memory_mib": (64, 1 << 24)},
    "client": {
        "boards": (1, 4096),
        "priority": (-100, 100),
        "queue_s": (0.1, 30 * DAY_S),
        "transfer_s": (0.1, HOUR_S),
        "session_s": (0.1, 30 * DAY_S),
        "reconnect_s": (0.01, DAY_S),
    },
}
"""Least and most of every number; 0 stands for the machine's own memory in memory_mib."""
UNSET = {("board", "memory_mib"): 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """The [tracker] table."""

    listen: str
    certs: str
    state: str
    audit: str
    rules: FarmRules


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSettings:
    """The [board] table."""

    listen: str
    tracker: str
    key: str
    name: str
    advertise: str
    reset_command: str
    certs: str
    target: str
    threads: int
    cores: str
    accept_objects: bool
    lock_clocks: bool
    memory_mib: int
    audit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmSettings:
    """See configs/farm/default.toml for what each means."""

    tracker: TrackerSettings
    board: BoardSettings
    client: FarmOptions


def load_farm_settings(path: str | Path | None = None) -> FarmSettings:
    """The shipped settings, overridden by those of the file at `path`. Raises ConfigError."""
    file = resources.files("autotune.configs.farm") / "default.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    if path is not None:
        for name, values in _read(path).items():
            _check(str(path), tables, name, values)
            tables[name] = {**tables[name], **values}
        _check_beats(str(path), tables["tracker"])
    rules = {f.name for f in dataclasses.fields(FarmRules)}
    deadlines = {f.name for f in dataclasses.fields(Deadlines)}
    tracker, client = tables["tracker"], tables["client"]
    return FarmSettings(
        tracker=TrackerSettings(
            **_without(tracker, rules), rules=FarmRules(**_only(tracker, rules))
        ),
        board=BoardSettings(**tables["board"]),
        client=FarmOptions(
            **_without(client, deadlines), deadlines=Deadlines(**_only(client, deadlines))
        ),
    )


def _read(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ConfigError(f"cannot read settings file {path}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _check(source: str, tables: Mapping[str, Any], name: str, values: object) -> None:
    """Raises ConfigError for what the defaults do not have in the same form."""
    if name not in tables or not isinstance(values, dict):
        raise ConfigError(f"{source}: unknown table [{name}]; known: {', '.join(tables)}")
    for key, value in values.items():
        if key not in tables[name]:
            known = ", ".join(tables[name])
            raise ConfigError(f"{source}: [{name}] {key} is unknown; known: {known}")
        default = tables[name][key]
        kinds = (int, float) if isinstance(default, float) else (type(default),)
        if type(value) not in kinds:
            wanted = KINDS[type(default)]
            raise ConfigError(f"{source}: [{name}] {key} must be {wanted}, got {value!r}")
        check_range(f"{source}: [{name}] {key}", name, key, value)


def check_range(source: str, table: str, key: str, value: object) -> None:
    """Raises ConfigError for a number that is too small or too large for its setting, and text
    of more than a line."""
    if isinstance(value, str) and not value.isprintable():
        raise ConfigError(f"{source} must be one line of text, got {value!r:.100}")
    if type(value) not in (int, float) or value == UNSET.get((table, key), math.nan):
        return
    least, most = RANGES[table][key]
    if not least <= value <= most:  # type: ignore[operator]
        raise ConfigError(f"{source} must be from {least:,g} to {most:,.12g}, got {value!r:.30}")


def check_board(settings: BoardSettings) -> None:
    """Raises ConfigError for an option of the command line that its setting could not be."""
    for field in dataclasses.fields(settings):
        option = "--" + field.name.replace("_", "-")
        check_range(option, "board", field.name, getattr(settings, field.name))


def _check_beats(source: str, tracker: Mapping[str, Any]) -> None:
    """Raises ConfigError where boards that live would be taken for lost."""
    beat_s, lost_s = tracker["heartbeat_s"], tracker["board_lost_s"]
    if lost_s <= 2 * beat_s:
        raise ConfigError(
            f"{source}: [tracker] board_lost_s must be more than two heartbeats of {beat_s:g} s, "
            f"got {lost_s:g}"
        )


def _only(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {k: v for k, v in table.items() if k in names}


def _without(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {k: v for k, v in table.items() if k not in names}

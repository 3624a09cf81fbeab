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
from rpc_server.client import Deadlines
from rpc_server.farm_types import Rules
from rpc_server.runners import FarmOptions

KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """The [tracker] table."""

    listen: str
    certs: str
    state: str
    audit: str
    rules: Rules


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
    rules = {f.name for f in dataclasses.fields(Rules)}
    deadlines = {f.name for f in dataclasses.fields(Deadlines)}
    tracker, client = tables["tracker"], tables["client"]
    return FarmSettings(
        tracker=TrackerSettings(**_without(tracker, rules), rules=Rules(**_only(tracker, rules))),
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
        if type(value) in (int, float) and key != "priority" and not 0 < value < math.inf:
            raise ConfigError(f"{source}: [{name}] {key} must be positive, got {value!r}")


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

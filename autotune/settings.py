"""Settings of a tuning run. In: the shipped defaults and a user's TOML file. Out: TuneSettings."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.measure.types import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """See configs/tune/default.toml for what each means."""

    batch: int
    min_gain: float
    trials_per_task: int
    timing: Timing


def load_settings(path: str | Path | None = None) -> TuneSettings:
    """The shipped settings, overridden by those of the file at `path`. Raises ConfigError."""
    file = resources.files("autotune.configs.tune") / "default.toml"
    tables = _parse(file.read_text(encoding="utf-8"), file.name)
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise ConfigError(f"cannot read settings file {path}: {reason}") from None
        for name, values in _parse(text, str(path)).items():
            tables[name] = {**tables[name], **values}
    return TuneSettings(**tables["tune"], timing=Timing(**tables["timing"]))


_KINDS: Mapping[str, Mapping[str, str]] = {
    "tune": {f.name: str(f.type) for f in dataclasses.fields(TuneSettings) if f.name != "timing"},
    "timing": {
        f.name: str(f.type)
        for f in dataclasses.fields(Timing)
        if f.name not in ("best_s", "foreign_bytes", "apart_s", "reuse_distances")
    },
}
"""Table -> key -> 'int' or 'float'."""


def _parse(text: str, source: str) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    for name, values in tables.items():
        if name not in _KINDS or not isinstance(values, dict):
            raise ConfigError(f"{source}: unknown table [{name}]; known: {', '.join(_KINDS)}")
        for key, value in values.items():
            _check(f"{source}: [{name}] {key}", _KINDS[name], key, value)
    return tables


def _check(place: str, kinds: Mapping[str, str], key: str, value: object) -> None:
    if key not in kinds:
        raise ConfigError(f"{place} is unknown; known: {', '.join(kinds)}")
    allowed = (int,) if kinds[key] == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or value <= 0:
        kind = "a positive whole number" if kinds[key] == "int" else "a positive number"
        raise ConfigError(f"{place} must be {kind}, got {value!r}")

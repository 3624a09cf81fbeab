"""Machines in files. In: a file that `autotune machine --json` wrote, or an earlier release's
profile. Out: a DeviceProfile whose values make sense, or one line that says what is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError, TargetError
from autotune.machine.facts import NUMBERS, PAIRS, RUNS, MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.target import parse_target, print_target

MAX_FILE_BYTES = 1 << 20
"""Bytes of a machine's file."""
MOST = float(1 << 62)
"""The largest number of anything that is counted."""
MAX_TEXT = 4096
"""Characters of a text in it."""
MAX_ROWS = 128
"""Points of a curve, rows of a table."""


def load_machine(path: str | os.PathLike[str]) -> DeviceProfile:
    """Raises ConfigError, which names the file and what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read machine file {path}: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is no machine file: it has more than {MAX_FILE_BYTES} bytes")
    try:
        return read_machine(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        what = str(error) or "it is nested too deeply"
        raise ConfigError(
            f"{path} is no machine file ({what[:200]}); write one by autotune machine --json -o "
            "FILE"
        ) from None


def read_machine(text: str) -> DeviceProfile:
    """A profile from JSON text. Raises ValueError and RecursionError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise ValueError("not an object")
    wanted = [f.name for f in dataclasses.fields(DeviceProfile)]
    missing = [name for name in wanted[:5] if name not in data]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}")
    try:
        profile = DeviceProfile.from_json(data)
        check_profile(profile)
    except KeyError as error:
        raise ValueError(f"missing {error}") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    return profile


def check_profile(profile: DeviceProfile) -> None:
    """Raises ValueError and TypeError for what no device measured about itself."""
    _text(profile.device)
    try:
        parse_target(print_target(profile.target), "target")
    except TargetError as error:
        raise ValueError(str(error)) from None
    _number("peak_flops", profile.peak_flops, positive=True)
    _number("parallel_region_s", profile.parallel_region_s)
    if not profile.levels:
        raise ValueError("a device has at least one level of memory")
    for level in profile.levels:
        _text(level.name)
        _number("size_bytes", level.size_bytes)
        _number("load_bytes_per_s", level.load_bytes_per_s, positive=True)
        _number("store_bytes_per_s", level.store_bytes_per_s)
        _number("copy_bytes_per_s", level.copy_bytes_per_s)
    for width, peak in profile.width_peaks:
        _number("width", width)
        _number("peak", peak)
    if profile.facts is not None:
        check_facts(profile.facts)


def check_facts(facts: MachineFacts) -> None:
    """Raises ValueError and TypeError for what no micro-benchmark finds."""
    processor = facts.processor
    for said in (processor.vendor, processor.brand, processor.llvm, *processor.abilities):
        _text(said)
    for name in ("family", "model", "stepping", "said_hz"):
        if getattr(processor, name) is not None:
            _number(name, getattr(processor, name))
    _number("cores", facts.cores)
    for name, rows in _tables(facts):
        if len(rows) > MAX_ROWS:
            raise ValueError(f"{name} has at most {MAX_ROWS} rows, got {len(rows)}")
    for name in PAIRS:
        before = 0
        for at, value in getattr(facts, name):
            _number(name, at, positive=True)
            _number(name, value, positive=name.endswith(("curve", "curve_all"))
                    and name != "page_curve")  # fmt: skip
            if at <= before:
                raise ValueError(f"{name} goes from small to large, got {at} after {before}")
            before = at
    for name in NUMBERS:
        if getattr(facts, name) is not None:
            _number(name, getattr(facts, name))
    for row in facts.arithmetic:
        _text(row.kind)
        _text(row.instruction)
        _number("vector_bytes", row.vector_bytes, positive=True)
        _number("multiply_adds_per_s", row.multiply_adds_per_s, positive=True)
        _number("latency_s", row.latency_s)
    for runs in (*facts.scattered, *facts.in_order):
        for name in ("footprint", "near_s", "far_s", "prefetched_s"):
            _number(name, getattr(runs, name), positive=True)


def _tables(facts: MachineFacts) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name in (*PAIRS, *RUNS, "arithmetic"):
        yield name, getattr(facts, name)
    yield "abilities", facts.processor.abilities


def _number(name: str, value: object, *, positive: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r:.60}")
    if not math.isfinite(value) or not 0 <= value <= MOST or (positive and value == 0):
        least = "above 0" if positive else "from 0"
        raise ValueError(f"{name} must be a number {least}, got {value!r:.60}")


def _text(value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise TypeError(f"expected a text of at most {MAX_TEXT} characters, got {value!r:.60}")
    value.encode()  # half of a surrogate pair has no bytes

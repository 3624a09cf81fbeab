"""Recorded measurements of a task's space, and a runner that answers from them.

In: `.npz` files (no pickle) that hold a task, a device profile, configs and their seconds. Out:
surveys, and a Runner that measures nothing: the same requests always get the same results.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autotune.errors import ConfigError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.schedule.base import Schedule, spellings
from autotune.types import Task
from search_spaces.params import Param
from search_spaces.space import Mask, Rows, Space

FORMAT = 2
"""1: every config was drawn."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """Every measured config of one task on one device."""

    name: str
    task: Task
    profile: DeviceProfile
    rule: str
    params: tuple[Param, ...]
    """Of the space as it was then; rows are indices into their choices."""
    rows: Rows
    seconds: npt.NDArray[np.float64]
    """Per row; infinity where the candidate failed."""
    schedules: npt.NDArray[np.uint64]
    """Per row, `schedule_hash` of the schedule that was measured."""
    drawn: Mask | None = None
    """Per row, whether it was drawn evenly from the space, rather than taken for what it promised;
    None: every one was."""

    def __post_init__(self) -> None:
        shape = (len(self.seconds), len(self.params))
        if self.rows.shape != shape or len(self.schedules) != len(self.seconds):
            raise ValueError(f"survey {self.name}: expected rows of shape {shape}")

    def space(self, *, drawn: bool = False) -> RecordedSpace:
        """The space as it was then, and of it only what was measured, or what was `drawn`."""
        rows = self.rows[self.drawn] if drawn and self.drawn is not None else self.rows
        return RecordedSpace(self.params, known=np.sort(Space(self.params).keys(rows)))


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSpace(Space):
    """A space that holds exactly the configs with the `known` keys, in ascending order."""

    known: npt.NDArray[np.int64] = dataclasses.field(kw_only=True)

    @property
    def raw_size(self) -> int:
        return len(self.known)

    @property
    def size(self) -> int:
        return len(self.known)

    def valid(self, rows: Rows) -> Mask:
        keys = self.keys(rows)
        places = np.searchsorted(self.known, keys)
        found: Mask = self.known[np.minimum(places, len(self.known) - 1)] == keys
        return found

    def rows(self, limit: int, rng: np.random.Generator) -> Rows:
        """All configs, whatever the limit: there are few."""
        del limit, rng
        return self._unflatten(self.known)


def schedule_hash(schedule: Schedule) -> int:
    """64 bits of the SHA-256 of the schedule's JSON, under the steps' former names: the same in
    surveys of every release."""
    text = json.dumps(spellings(schedule)[-1], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


# ---------------------------------------------------------------------------------------- files


def save_survey(survey: Survey, path: Path) -> None:
    """Write a survey, compressed. Raises OSError."""
    header = {
        "format": FORMAT,
        "name": survey.name,
        "task": survey.task.to_json(),
        "profile": survey.profile.to_json(),
        "rule": survey.rule,
        "params": [[p.name, list(p.choices)] for p in survey.params],
    }
    order = np.lexsort(survey.rows.T[::-1])  # neighbours in the file compress better
    np.savez_compressed(
        path,
        header=np.frombuffer(json.dumps(header).encode(), np.uint8),
        rows=survey.rows[order].astype(np.uint8).T,
        seconds=survey.seconds[order].astype(np.float32),
        schedules=survey.schedules[order],
        drawn=np.ones(len(order), bool) if survey.drawn is None else survey.drawn[order],
    )


def load_survey(path: Path) -> Survey:
    """Read a survey. Raises ConfigError where the file is not one of this format."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            rows = arrays["rows"].T.astype(np.int32)
            seconds = arrays["seconds"].astype(np.float64)
            schedules = arrays["schedules"]
            drawn = arrays["drawn"] if header["format"] > 1 else None
        if header["format"] not in range(1, FORMAT + 1):
            raise ValueError(f"expected a format up to {FORMAT}, got {header['format']}")
        return Survey(
            name=header["name"],
            task=Task.from_json(header["task"]),
            profile=DeviceProfile.from_json(header["profile"]),
            rule=header["rule"],
            params=tuple(Param(name=n, choices=tuple(c)) for n, c in header["params"]),
            rows=rows,
            seconds=seconds,
            schedules=schedules,
            drawn=drawn,
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} is not a survey ({error}); measure it anew") from None


# --------------------------------------------------------------------------------------- runner


class ReplayRunner:
    """Answers from surveys of one device. A schedule that was not measured is a BUILD_ERROR."""

    def __init__(self, surveys: Iterable[Survey]) -> None:
        known = tuple(surveys)
        if not known:
            raise DeviceError("expected at least one survey to replay, got none")
        devices = {s.profile.device for s in known}
        if len(devices) > 1:
            raise DeviceError(
                f"expected surveys of one device, got {', '.join(sorted(devices))}; "
                "replay them one device at a time"
            )
        self._profile = known[0].profile
        self._seconds = {
            (s.task.key, int(schedule)): float(seconds)
            for s in known
            for schedule, seconds in zip(s.schedules, s.seconds, strict=True)
        }

    def profile(self) -> DeviceProfile:
        return self._profile

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        """One recorded result per request, in order."""
        results = tuple(self._result(request) for request in requests)
        if on_result is not None:
            for number, result in enumerate(results):
                on_result(number, result)
        return results

    def _result(self, request: MeasureRequest) -> MeasureResult:
        found = self._seconds.get((request.task.key, schedule_hash(request.schedule)))
        nothing = MeasureResult(status=Status.BUILD_ERROR, device=self._profile.device)
        if found is None:
            return dataclasses.replace(nothing, error="replay: this schedule was not measured")
        if not np.isfinite(found):
            return dataclasses.replace(nothing, error="replay: it failed when it was measured")
        return MeasureResult(status=Status.OK, times_s=(found,), device=self._profile.device)

    def close(self) -> None:
        """Nothing is held."""

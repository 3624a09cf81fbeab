"""Measurement requests and results, as JSON-able values: what crosses the wire to a board."""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.machine.profile import DeviceProfile
from autotune.placement.reuse_distance import ReuseDistance
from autotune.program.ir import Pack
from autotune.schedule.base import Schedule, schedule_from_json, schedule_to_json
from autotune.target import Target
from autotune.types import Task


class Status(enum.StrEnum):
    """The outcome of a candidate."""

    OK = "OK"
    BUILD_ERROR = "BUILD_ERROR"
    BUILD_TIMEOUT = "BUILD_TIMEOUT"
    RUN_CRASH = "RUN_CRASH"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    WRONG_RESULT = "WRONG_RESULT"
    DEVICE_LOST = "DEVICE_LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Limits and repeats of building and timing a candidate. Seconds unless said."""

    min_repeats: int = 3
    max_repeats: int = 20
    min_repeat_s: float = 0.002
    """A repeat runs the kernel often enough to last at least this long."""
    budget_s: float = 0.15
    """Timing of one candidate stops after about this long."""
    confidence: float = 0.01
    """Stop when the 95 % interval of the median is within this fraction."""
    give_up_ratio: float = 1.5
    """A candidate slower than this times `best_s` gets the minimum of repeats."""
    best_s: float | None = None
    foreign_bytes: int = 0
    """Bytes of other data that pass through the caches before every timed call, as they do between
    two calls of a kernel in its model; 0: the kernel is called again and again."""
    apart_s: float = 0.0
    """Time between two such calls, in which others use the caches too; 0: they do not."""
    reuse_distances: tuple[ReuseDistance, ...] = ()
    """What was used since the task's values, and the memory that they are written to, were: what
    of them the caches still hold when a call in the model begins."""
    build_timeout_s: float = 10.0
    run_timeout_s: float = 10.0

    def to_json(self) -> dict[str, Any]:
        """Its fields; protocol 3 calls the reuse distances ages."""
        fields = dataclasses.asdict(self)
        distances = fields.pop("reuse_distances")
        return {**fields, "ages": distances}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Timing:
        """Inverse of `to_json`; TypeError for a field that there is not."""
        fields = dict(data)
        distances = fields.pop("ages", ())
        return Timing(**fields, reuse_distances=tuple((*part,) for part in distances))


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Object code of one candidate and what calling it takes."""

    symbol: str
    code: bytes
    workspace_bytes: int
    packs: tuple[Pack, ...] = ()
    build_s: float = 0.0

    def header(self) -> dict[str, Any]:
        """Everything but the code, as JSON-able data."""
        return {
            "symbol": self.symbol,
            "workspace_bytes": self.workspace_bytes,
            "packs": [dataclasses.asdict(p) for p in self.packs],
            "build_s": self.build_s,
        }

    @staticmethod
    def from_header(data: Mapping[str, Any], code: bytes) -> Built:
        packs = tuple(
            Pack(
                p["buffer"],
                tuple(p["shape"]),
                tuple((int(d), int(f)) for d, f in p["splits"]),
                tuple(p["order"]),
                tuple((int(d), int(m), int(r), int(s)) for d, m, r, s in p["transforms"]),
                str(p["dtype"]),
                tuple(map(int, p["strassen"])),
            )
            for p in data["packs"]
        )
        return Built(
            symbol=data["symbol"],
            code=code,
            workspace_bytes=int(data["workspace_bytes"]),
            packs=packs,
            build_s=float(data["build_s"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """Build this task with this schedule for this target, check it, and time it."""

    task: Task
    schedule: Schedule
    target: Target
    timing: Timing = Timing()
    seed: int = 0
    """Seeds the input data."""
    built: Built | None = None
    """Object code made elsewhere (`--build host`); None: build here. Not part of the JSON form."""

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task.to_json(),
            "schedule": schedule_to_json(self.schedule),
            "target": self.target.to_json(),
            "timing": self.timing.to_json(),
            "seed": self.seed,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MeasureRequest:
        return MeasureRequest(
            task=Task.from_json(data["task"]),
            schedule=schedule_from_json(data["schedule"]),
            target=Target.from_json(data["target"]),
            timing=Timing.from_json(data["timing"]),
            seed=int(data["seed"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """The result of a request. `times_s`: seconds per kernel call, one per repeat, if OK."""

    status: Status
    times_s: tuple[float, ...] = ()
    error: str = ""
    """One line: stage, cause. Empty when OK."""
    build_s: float = 0.0
    run_s: float = 0.0
    """Wall time of check and timing together."""
    calibration_s: float = 0.0
    """Time of the calibration kernel beside this measurement; 0 if it was not run."""
    device: str = ""
    conditions: str = ""
    """Clocks, temperature and power of the device right after, where it tells."""
    max_error: float = 0.0
    """Largest difference to the reference over the reference's largest value."""

    @property
    def median_s(self) -> float:
        """Median seconds per call; infinity if not OK."""
        return statistics.median(self.times_s) if self.times_s else math.inf

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "status": str(self.status)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MeasureResult:
        fields = dict(data)
        fields["status"] = Status(fields["status"])
        fields["times_s"] = tuple(_finite(t) for t in fields["times_s"])
        return MeasureResult(**fields)


LARGEST_TIME = 1e18
"""Seconds: any more, and sums and logs of them would not be finite either."""


def _finite(value: object) -> float:
    """A number as a float. Raises TypeError and ValueError, whatever it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"must be real number, got {value!r:.80}")
    if isinstance(value, int) and not -LARGEST_TIME < value < LARGEST_TIME:
        raise ValueError(f"expected finite numbers of seconds, got one beyond {LARGEST_TIME:g}")
    return float(value)


def sound(result: MeasureResult) -> MeasureResult:
    """The result. Raises ValueError where no measurement could have given it: files and boards
    are not taken at their word."""
    numbers = tuple(map(_finite, (result.build_s, result.run_s, result.calibration_s)))
    times_s = tuple(map(_finite, result.times_s))
    if (result.status is Status.OK) != bool(times_s) or not all(
        0 < t < LARGEST_TIME for t in times_s
    ):
        raise ValueError(f"status {result.status} with the times {list(times_s[:8])}")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected finite numbers of seconds, got {numbers}")
    for text in (result.error, result.device, result.conditions):
        if not isinstance(text, str):
            raise TypeError(f"expected a text, got {text!r:.80}")
        text.encode()  # half of a surrogate pair has no bytes
        if "\0" in text:
            raise ValueError(f"a NUL character in {text!r:.80}")
    return result


OnResult = Callable[[int, MeasureResult], None]
"""Called once per finished request with its place in the batch, as soon as its result is known."""


class Runner(Protocol):
    """A place where candidates are measured: this machine, a board, or recorded results.

    `measure` gives one result per request, in order, and never raises for a bad candidate; a lost
    device is the status DEVICE_LOST. It raises DeviceError only when the device cannot be used at
    all (it never answered, and stays away)."""

    def profile(self) -> DeviceProfile: ...

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]: ...

    def close(self) -> None: ...

"""Checks of a message's fields. In: values as JSON gave them, and what was made of them.

Out: the same, or ValueError and its like, of which `checked` makes one WireError.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_args, get_type_hints

from autotune.errors import AutotuneError, DeviceError
from autotune.machine.files import check_facts
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import Built, MeasureResult, Timing, sound
from autotune.parse_int import LARGEST
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task

MAX_REPEATS = 10_000
MAX_TEXT = 4096
MAX_NAME = 128
MAX_DEADLINE_S = 600.0
MAX_TASK_BYTES = 16 << 30
MAX_RANK = 32
MAX_LEVELS = 16
"""Bounds of what peers may say, chosen above all that rules and tuners ask for."""
MOST = float(1 << 62)
"""The largest number of anything that is counted: bytes, FLOP/s."""
MAX_REASON = 300
"""Characters of a reason in an error."""
WORD = re.compile(r"[A-Za-z0-9_.,:+/\- ]*")
"""What names and attributes are made of: they end up in generated text."""


class WireError(DeviceError):
    """The other side sent a message that is too large, of another version or malformed."""


class checked:  # noqa: N801 (used as a statement)
    """Turns what a constructor raises on malformed data into one WireError."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        causes = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
        if kind is None or issubclass(kind, WireError):
            return
        if issubclass(kind, (*causes, AutotuneError)):
            name = "" if issubclass(kind, ValueError | AutotuneError) else f"{kind.__name__} "
            reason = f"malformed {self._kind} message: {name}{error}"
            raise WireError(" ".join(reason.split())[:MAX_REASON]) from None


def natural(value: object, most: int = LARGEST) -> int:
    """A whole number from 0. Raises ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a natural number, got {value!r:.100}")
    if value > most:
        raise ValueError(f"expected a number up to {most}, got {value}")
    return value


def number(value: object, least: float = -MOST, most: float = MOST) -> float:
    """A finite number, as a float. Raises TypeError and ValueError."""
    if type(value) is not int and type(value) is not float:
        raise TypeError(f"expected a number, got {value!r:.100}")
    if not least <= value <= most:  # NaN is not either
        raise ValueError(f"expected a number from {least:g} to {most:g}, got {value!r:.100}")
    return float(value)


def text(value: object, most: int = MAX_TEXT) -> str:
    """Characters that have bytes, at most this many. Raises TypeError and ValueError."""
    if type(value) is not str:
        raise TypeError(f"expected a text, got {value!r:.100}")
    if len(value) > most:
        raise ValueError(f"expected a text of at most {most} characters, got {len(value)}")
    value.encode()  # half of a surrogate pair has no bytes
    return value


def flag(value: object) -> bool:
    """true or false. Raises TypeError."""
    if type(value) is not bool:
        raise TypeError(f"expected true or false, got {value!r:.100}")
    return value


def listed(value: object, most: int) -> list[Any]:
    """A list of at most this many. Raises TypeError and ValueError."""
    if type(value) is not list:
        raise TypeError(f"expected a list, got {value!r:.100}")
    if len(value) > most:
        raise ValueError(f"a list of at most {most} items, got {len(value)}")
    return value


def name(value: object) -> str:
    """A short plain word. Raises ValueError."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise ValueError(f"expected a name of 1 to {MAX_NAME} characters, got {value!r:.100}")
    if not (value.isascii() and value.isprintable()) or any(c in "#\"'\\<>" for c in value):
        raise ValueError(f"expected a name of plain characters, got {value!r:.100}")
    return value


def check_words(data: object) -> None:
    """Raises ValueError for a string, anywhere in the data, that is not a plain word."""
    if isinstance(data, str):
        if len(data) > MAX_TEXT or not WORD.fullmatch(data):
            raise ValueError(f"expected a name of letters, digits and _.,:+/-, got {data[:80]!r}")
    elif isinstance(data, dict):
        check_words(list(data))
        check_words(list(data.values()))
    elif isinstance(data, list):
        for item in data:
            check_words(item)


def check_task(task: Task) -> Task:
    """Raises ValueError where names, layouts or sizes of a task make no sense."""
    names = [v.name for v in task.values]
    if len(set(names)) != len(names):
        raise ValueError(f"value names of a task must differ, got {names}")
    for node in task.nodes:
        if unknown := set(node.inputs + node.outputs) - set(names):
            raise ValueError(f"node {node.op} uses unknown values {sorted(unknown)}")
    if not 0 <= task.anchor < len(task.nodes) or len(task.by_role("output")) != 1:
        raise ValueError("a task has an anchor among its nodes and exactly one output")
    if not all(type(text) is str for node in task.nodes for text in (node.op, *node.outputs)):
        raise ValueError("operators and values have names")
    total = 0
    for value in task.values:
        layout, rank = value.layout, len(value.type.shape)
        if rank > MAX_RANK or any(type(e) is not int or e > LARGEST for e in value.type.shape):
            raise ValueError(f"{value.name} has at most {MAX_RANK} dimensions that an array has")
        counts = (*layout.strides, *(c for pair in layout.halo for c in pair))
        if len(layout.strides) != rank or any(
            type(c) is not int or not 0 <= c <= LARGEST for c in counts
        ):
            raise ValueError(f"layout of {value.name} does not fit its shape {value.type.shape}")
        total += sum(layout.span(value.type.shape)) * ITEM_BYTES[value.type.dtype]
    if total > MAX_TASK_BYTES:
        raise ValueError(f"a task holds at most {MAX_TASK_BYTES} bytes, got {total}")
    return task


def check_timing(timing: Timing) -> Timing:
    """Raises ValueError where a timing would keep the device longer than any candidate may."""
    limits = (timing.build_timeout_s, timing.run_timeout_s)
    if any(not isinstance(s, int | float) or not 0 < s <= MAX_DEADLINE_S for s in limits):
        raise ValueError(f"deadlines must be between 0 and {MAX_DEADLINE_S:g} s, got {limits}")
    counts = (timing.min_repeats, timing.max_repeats)
    if any(type(n) is not int or not 1 <= n <= MAX_REPEATS for n in counts):
        raise ValueError(f"repeats must be between 1 and {MAX_REPEATS}, got {counts}")
    numbers = (
        timing.min_repeat_s,
        timing.budget_s,
        timing.confidence,
        timing.give_up_ratio,
        timing.apart_s,
    )
    if any(not isinstance(n, int | float) or not 0 <= n <= MAX_DEADLINE_S for n in numbers):
        raise ValueError(f"times and ratios must be numbers from 0, got {numbers}")
    if timing.best_s is not None and not isinstance(timing.best_s, int | float):
        raise ValueError(f"best_s must be a number or null, got {timing.best_s!r}")
    kinds = [str, int, float, float]
    distances = timing.reuse_distances
    if any(list(map(type, part)) != kinds or min(part[1:]) < 0 for part in distances):
        raise ValueError(f"ages must be of name, bytes, seconds and share, got {distances!r}")
    return timing


def check_result(result: MeasureResult) -> MeasureResult:
    """Raises ValueError for a result that no measurement gives, or of an unreasonable size."""
    texts = (result.error, result.device, result.conditions)
    if len(result.times_s) > MAX_REPEATS or any(len(text) > MAX_TEXT for text in texts):
        raise ValueError(
            f"a result has at most {MAX_REPEATS} times, texts of {MAX_TEXT} characters"
        )
    if not isinstance(result.max_error, int | float):
        raise ValueError(f"max_error must be a number, got {result.max_error!r:.80}")
    sound(result)
    if min(result.build_s, result.run_s, result.calibration_s) < 0:
        raise ValueError("expected seconds from 0")
    return result


def check_profile(profile: DeviceProfile) -> DeviceProfile:
    """Raises ValueError and TypeError for what no device measured about itself."""
    text(profile.device)
    check_target_fields(profile.target)
    check_words([v for v in vars_of(profile.target) if type(v) is str])
    number(profile.peak_flops, 0.0)
    number(profile.parallel_region_s, 0.0, MAX_DEADLINE_S)
    if not 1 <= len(profile.levels) <= MAX_LEVELS or len(profile.width_peaks) > MAX_LEVELS:
        raise ValueError(f"a device has 1 to {MAX_LEVELS} levels of memory, widths of vectors")
    for level in profile.levels:
        name(level.name)
        natural(level.size_bytes)
        for rate in (level.load_bytes_per_s, level.store_bytes_per_s, level.copy_bytes_per_s):
            number(rate, 0.0)
    for width, peak in profile.width_peaks:
        natural(width)
        number(peak, 0.0)
    if profile.facts is not None:
        check_facts(profile.facts)
    return profile


def check_built(built: Built) -> Built:
    """Raises ValueError and TypeError where what calling object code takes makes no sense."""
    if not WORD.fullmatch(text(built.symbol, MAX_NAME)):
        raise ValueError(f"expected a symbol, got {built.symbol!r:.80}")
    number(built.build_s, 0.0)
    for pack in built.packs:
        name(pack.buffer)
        if len(pack.shape) > MAX_RANK:
            raise ValueError(f"at most {MAX_RANK} dimensions, got {len(pack.shape)}")
        for count in (*pack.shape, *pack.order):
            natural(count)
        if pack.dtype not in ("", *ITEM_BYTES):
            raise ValueError(f"expected the dtype of a buffer, got {pack.dtype!r:.80}")
    return built


def vars_of(value: Any) -> list[Any]:
    """Values of a dataclass's fields."""
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def check_target_fields(target: Target) -> Target:
    """Raises ValueError where a field has the wrong type, or is none of its words."""
    for name, kind in get_type_hints(type(target)).items():
        value, words = getattr(target, name), get_args(kind)
        if type(value) is not (str if words else kind) or (words and value not in words):
            wanted = " or ".join(words) if words else kind.__name__
            raise ValueError(f"target field {name} must be {wanted}, got {value!r:.80}")
    if target.threads < 1:
        raise ValueError(f"threads must be at least 1, got {target.threads}")
    return target

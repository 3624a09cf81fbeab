"""Messages between a client and a board: versioned JSON in bytes, size-capped, schema-checked.

In: values. Out: bytes, and back. A message is {"v": PROTOCOL, "kind": NAME, ...fields}. What comes
out of `decode` has been checked; anything else raises WireError.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError, DeviceError, ScheduleError
from autotune.measure.types import (
    DeviceProfile,
    MeasureRequest,
    MeasureResult,
    Status,
    Timing,
    sound,
)
from autotune.schedule.base import schedule_from_json, schedule_to_json
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task
from rpc_server.objects import built_from_json, built_to_json

PROTOCOL = 3
MAX_MESSAGE_BYTES = 32 << 20
MAX_REQUESTS = 1024
MAX_SCHEDULE_STEPS = 512
MAX_REPEATS = 10_000
MAX_TEXT = 4096
MAX_DEADLINE_S = 600.0
MAX_TASK_BYTES = 16 << 30
WORD = re.compile(r"[A-Za-z0-9_.,:+/\- ]*")
"""What names and attributes are made of: they end up in generated text."""


class WireError(DeviceError):
    """The other side sent a message that is too large, of another version or malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A board's answer to `hello`."""

    profile: DeviceProfile
    version: str
    compiler: str = ""
    """What builds candidates there; '' from boards that do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A batch as received. A request that this board cannot understand (a step of a newer version)
    is already a result."""

    requests: tuple[MeasureRequest | MeasureResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """Wait up to `wait_s` for results of `job` from number `first` on."""

    job: str
    first: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Results of a job so far, in order from the number asked for. `failed`: why the job ended
    early, '' if it did not."""

    results: tuple[MeasureResult, ...]
    done: bool
    failed: str = ""


# --------------------------------------------------------------------------------------- envelopes


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A message. Raises WireError if it is too large."""
    data = json.dumps({"v": PROTOCOL, "kind": kind, **fields}, separators=(",", ":")).encode()
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(
            f"a message holds at most {MAX_MESSAGE_BYTES} bytes, {kind} has {len(data)}; "
            "send smaller batches"
        )
    return data


def decode(kind: str, data: bytes) -> dict[str, Any]:
    """The fields of a message of this kind. An error message of the other side is raised."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"a message holds at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise WireError(f"expected a {kind} message in JSON, got something else") from None
    if not isinstance(message, dict) or message.get("v") != PROTOCOL:
        version = message.get("v") if isinstance(message, dict) else None
        raise WireError(
            f"expected protocol version {PROTOCOL}, got {version!r}; "
            "install the same version on both sides"
        )
    if message.get("kind") == "error" and kind != "error":
        raise DeviceError(str(message.get("message", "the board refused without a reason")))
    if message.get("kind") != kind:
        raise WireError(f"expected a {kind} message, got {message.get('kind')!r}")
    return message


def encode_error(message: str) -> bytes:
    return encode("error", {"message": message})


# ---------------------------------------------------------------------------------------- messages


def encode_greeting(ticket: str = "") -> bytes:
    """`hello`. `ticket`: of the lease, for a board of a farm."""
    return encode("hello", {"ticket": ticket} if ticket else {})


def decode_greeting(data: bytes) -> str:
    """The ticket, '' without one."""
    return str(decode("hello", data).get("ticket", ""))


def encode_hello(hello: Hello) -> bytes:
    return encode(
        "welcome",
        {
            "profile": hello.profile.to_json(),
            "version": hello.version,
            "compiler": hello.compiler,
        },
    )


def decode_hello(data: bytes) -> Hello:
    message = decode("welcome", data)
    with checked("welcome"):
        return Hello(
            profile=DeviceProfile.from_json(message["profile"]),
            version=str(message["version"]),
            compiler=str(message.get("compiler", "")),
        )


def encode_submit(requests: Sequence[MeasureRequest]) -> bytes:
    """Tasks and targets, which repeat in a batch, are sent once."""
    tasks = list(dict.fromkeys(r.task for r in requests))
    targets = list(dict.fromkeys(r.target for r in requests))
    task_number = {t: n for n, t in enumerate(tasks)}
    target_number = {t: n for n, t in enumerate(targets)}
    entries = [
        {
            "task": task_number[r.task],
            "target": target_number[r.target],
            "schedule": schedule_to_json(r.schedule),
            "timing": r.to_json()["timing"],
            "seed": r.seed,
            **({"built": built_to_json(r.built)} if r.built else {}),
        }
        for r in requests
    ]
    fields = {
        "tasks": [t.to_json() for t in tasks],
        "targets": [t.to_json() for t in targets],
        "requests": entries,
    }
    return encode("submit", fields)


def decode_submit(data: bytes) -> Submit:
    message = decode("submit", data)
    with checked("submit"):
        names, entries = [message["tasks"], message["targets"]], message["requests"]
        plain = [{k: v for k, v in e.items() if k != "built"} for e in entries]
        check_words([*names, plain])
        tasks = [check_task(Task.from_json(t)) for t in message["tasks"]]
        targets = [check_target_fields(Target.from_json(t)) for t in message["targets"]]
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_REQUESTS:
            raise ValueError(f"1 to {MAX_REQUESTS} requests")
        return Submit(requests=tuple(_request(e, tasks, targets) for e in entries))


def _request(
    entry: Mapping[str, Any], tasks: Sequence[Task], targets: Sequence[Target]
) -> MeasureRequest | MeasureResult:
    timing = check_timing(Timing.from_json(entry["timing"]))
    steps = entry["schedule"]
    if not isinstance(steps, list) or len(steps) > MAX_SCHEDULE_STEPS:
        raise ValueError(f"a schedule is a list of at most {MAX_SCHEDULE_STEPS} steps")
    try:
        schedule = schedule_from_json(steps)
    except ScheduleError as error:
        return MeasureResult(status=Status.BUILD_ERROR, error=f"schedule: {error}")
    target = targets[natural(entry["target"])]
    built = entry.get("built")
    return MeasureRequest(
        task=tasks[natural(entry["task"])],
        target=target,
        schedule=schedule,
        timing=timing,
        seed=natural(entry["seed"]),
        built=None if built is None else built_from_json(built, target.triple),
    )


def encode_job(job: str) -> bytes:
    return encode("job", {"job": job})


def decode_job(data: bytes) -> str:
    return str(decode("job", data).get("job", ""))


def encode_collect(collect: Collect) -> bytes:
    fields = {"job": collect.job, "first": collect.first, "wait_s": collect.wait_s}
    return encode("collect", fields)


def decode_collect(data: bytes) -> Collect:
    message = decode("collect", data)
    with checked("collect"):
        wait_s = float(message["wait_s"])
        if not 0 <= wait_s <= 30:
            raise ValueError("wait_s between 0 and 30")
        return Collect(job=str(message["job"]), first=natural(message["first"]), wait_s=wait_s)


def encode_progress(progress: Progress) -> bytes:
    return encode(
        "progress",
        {
            "results": [r.to_json() for r in progress.results],
            "done": progress.done,
            "failed": progress.failed,
        },
    )


def decode_progress(data: bytes) -> Progress:
    message = decode("progress", data)
    with checked("progress"):
        return Progress(
            results=tuple(check_result(MeasureResult.from_json(r)) for r in message["results"]),
            done=bool(message["done"]),
            failed=str(message["failed"]),
        )


# ------------------------------------------------------------------------------------------ checks


class checked:  # noqa: N801 (used as a statement)
    """Turns what a constructor raises on malformed data into one WireError."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        causes = (KeyError, IndexError, TypeError, ValueError, AttributeError, AutotuneError)
        if kind is not None and issubclass(kind, causes) and not issubclass(kind, WireError):
            name = "" if issubclass(kind, ValueError | AutotuneError) else f"{kind.__name__} "
            raise WireError(f"malformed {self._kind} message: {name}{error}") from None


def natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected a natural number, got {value!r}")
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
    total = 0
    for value in task.values:
        layout, rank = value.layout, len(value.type.shape)
        counts = (*layout.strides, *(c for pair in layout.halo for c in pair))
        if len(layout.strides) != rank or any(type(c) is not int or c < 0 for c in counts):
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
    if any(list(map(type, age)) != kinds or min(age[1:]) < 0 for age in timing.ages):
        raise ValueError(f"ages must be of name, bytes, seconds and share, got {timing.ages!r}")
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
    return sound(result)


def check_target_fields(target: Target) -> Target:
    """Raises ValueError where a field has the wrong type."""
    for field in dataclasses.fields(target):
        value = getattr(target, field.name)
        if type(value).__name__ != field.type:
            raise ValueError(f"target field {field.name} must be {field.type}, got {value!r}")
    if target.threads < 1:
        raise ValueError(f"threads must be at least 1, got {target.threads}")
    return target

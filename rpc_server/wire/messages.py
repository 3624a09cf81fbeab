"""Messages between a client and a board: versioned JSON in bytes, size-capped, schema-checked.

In: values. Out: bytes, and back. A message is {"v": PROTOCOL, "kind": NAME, ...fields}. What comes
out of `decode` has been checked; anything else raises WireError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import DeviceError, ScheduleError
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.printable import printable
from autotune.schedule.base import schedule_from_json, schedule_to_json
from autotune.target import Target
from autotune.types import Task
from rpc_server.board.objects import built_from_json, built_to_json
from rpc_server.wire.checks import (
    MAX_NAME,
    MAX_REPEATS,
    MAX_TEXT,
    WireError,
    check_profile,
    check_result,
    check_target_fields,
    check_task,
    check_timing,
    check_words,
    checked,
    flag,
    listed,
    natural,
    number,
    text,
)
from rpc_server.wire.scan import check_json

__all__ = ["MAX_NAME", "MAX_REPEATS", "MAX_TEXT", "WireError", "checked", "natural"]

PROTOCOL = 3
"""Version of the messages: another one is refused."""
SMALL_BYTES = 64 << 10
"""A frame of somebody who was not admitted yet, and of everything else that is not a batch."""
FRAMING_BYTES = 512
"""Bytes of a frame beside its message: the method's name and the numbers of rpyc's packets."""
MAX_MESSAGE_BYTES = 32 << 20
"""Bytes of the largest message, a batch."""
LARGEST = {
    "submit": MAX_MESSAGE_BYTES,
    "progress": 1 << 20,
    "view": 1 << 20,
    "boards": 1 << 20,
    "farm": MAX_MESSAGE_BYTES,
    "part": 2 << 20,
    "outcome": 1 << 20,
}
"""Bytes of a message of each kind, where it is not small. A board takes only `submit` and `part`
of these from others, and a tracker none; a farm's state is for who asks its own tracker."""
VALUES = {"submit": 1 << 20, "farm": 1 << 20}
BYTES_A_VALUE = 16
"""Values (numbers, texts, lists and tables) of a message: as said, or one in this many of the
bytes that its kind may have. A batch of a thousand has about 300,000."""
MAX_REQUESTS = 1024
"""Requests of a batch."""
MAX_SCHEDULE_STEPS = 512
"""Steps of a schedule."""
TICKET = 256
"""Characters of one."""
MAX_WAIT_S = 30.0
"""Seconds that an answer may be held back."""
BYTES_A_RESULT = 400
BYTES_A_TIME = 26
"""At most, as JSON: a number of a float64, and a result beside its texts and times."""


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
class JobProgress:
    """Results of a job so far, in order from the number asked for. `failed`: why the job ended
    early, '' if it did not."""

    results: tuple[MeasureResult, ...]
    done: bool
    failed: str = ""


# --------------------------------------------------------------------------------------- envelopes


def largest(kind: str) -> int:
    """Bytes that a message of this kind may have."""
    return LARGEST.get(kind, SMALL_BYTES - FRAMING_BYTES)


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A message. Raises WireError if it is too large."""
    data = json.dumps({"v": PROTOCOL, "kind": kind, **fields}, separators=(",", ":")).encode()
    if len(data) > largest(kind):
        raise WireError(
            f"a {kind} message holds at most {largest(kind)} bytes, this one has {len(data)}; "
            "send smaller batches"
        )
    return data


def decode(kind: str, data: bytes) -> dict[str, Any]:
    """The fields of a message of this kind. An error message of the other side is raised."""
    most = largest(kind)
    if len(data) > most:
        raise WireError(f"a {kind} message holds at most {most} bytes, got {len(data)}")
    try:
        check_json(data, VALUES.get(kind, most // BYTES_A_VALUE))
        message = json.loads(data.decode())
    except UnicodeDecodeError:
        raise WireError(f"expected a {kind} message in JSON, got something else") from None
    except json.JSONDecodeError:
        raise WireError(f"expected a {kind} message in JSON, got something else") from None
    except ValueError as error:
        raise WireError(f"expected a {kind} message in JSON of {error}") from None
    if not isinstance(message, dict) or message.get("v") != PROTOCOL:
        version = message.get("v") if isinstance(message, dict) else None
        raise WireError(
            f"expected protocol version {PROTOCOL}, got {version!r:.40}; "
            "install the same version on both sides"
        )
    if message.get("kind") == "error" and kind != "error":
        raise DeviceError(_reason(message.get("message")))
    if message.get("kind") != kind:
        raise WireError(f"expected a {kind} message, got {message.get('kind')!r:.40}")
    return message


def _reason(message: object) -> str:
    """One line, which somebody else has written."""
    if not isinstance(message, str) or not message:
        return "the board refused without a reason"
    return printable(" ".join(message[:MAX_TEXT].split()))


def encode_error(message: str) -> bytes:
    return encode("error", {"message": message[:MAX_TEXT]})


# ---------------------------------------------------------------------------------------- messages


def encode_greeting(ticket: str = "") -> bytes:
    """`hello`. `ticket`: of the lease, for a board of a farm."""
    return encode("hello", {"ticket": ticket} if ticket else {})


def decode_greeting(data: bytes) -> str:
    """The ticket, '' without one."""
    message = decode("hello", data)
    with checked("hello"):
        return text(message.get("ticket", ""), TICKET)


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
            profile=check_profile(DeviceProfile.from_json(message["profile"])),
            version=text(message["version"], MAX_NAME),
            compiler=text(message.get("compiler", ""), MAX_NAME),
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
        names = [listed(message[k], MAX_REQUESTS) for k in ("tasks", "targets")]
        entries = message["requests"]
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
    message = decode("job", data)
    with checked("job"):
        return text(message.get("job", ""), MAX_NAME)


def encode_collect(collect: Collect) -> bytes:
    fields = {"job": collect.job, "first": collect.first, "wait_s": collect.wait_s}
    return encode("collect", fields)


def decode_collect(data: bytes) -> Collect:
    message = decode("collect", data)
    with checked("collect"):
        return Collect(
            job=text(message["job"], MAX_NAME),
            first=natural(message["first"]),
            wait_s=number(message["wait_s"], 0.0, MAX_WAIT_S),
        )


def encode_progress(progress: JobProgress) -> bytes:
    return encode(
        "progress",
        {
            "results": [r.to_json() for r in progress.results],
            "done": progress.done,
            "failed": progress.failed[:MAX_TEXT],
        },
    )


def decode_progress(data: bytes) -> JobProgress:
    message = decode("progress", data)
    with checked("progress"):
        results = listed(message["results"], MAX_REQUESTS)
        return JobProgress(
            results=tuple(check_result(MeasureResult.from_json(r)) for r in results),
            done=flag(message["done"]),
            failed=text(message["failed"]),
        )


def first_of(results: Sequence[MeasureResult]) -> tuple[MeasureResult, ...]:
    """As many of them, from the first on, as one answer holds; at least one if there is one."""
    room = largest("progress") - SMALL_BYTES
    for count, result in enumerate(results):
        room -= BYTES_A_RESULT + BYTES_A_TIME * len(result.times_s)
        room -= 6 * (len(result.error) + len(result.device) + len(result.conditions))
        if room < 0:
            return tuple(results[: max(1, count)])
    return tuple(results)

"""Messages about whole models on a board: parts of files, runs, and what came of them.

In: values. Out: bytes, and back, as in `messages`. A file goes by the digest of its bytes, in
parts, each of which says where it belongs: after a lost link it goes on where the other side is.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import asdict, dataclass, field

from rpc_server.wire.checks import checked, flag, listed, natural, number, text
from rpc_server.wire.messages import decode, encode

PART_BYTES = 1 << 20
"""Bytes of a file in a message."""
MAX_FILE_BYTES = 240 << 20
"""A worker takes a model and its inputs as one message of 256 MiB at most."""
MAX_FILES = 64
"""Inputs, and outputs, of a model."""
MAX_REPEATS = 10_000
MAX_KERNELS = 10_000
"""Runs that are timed, and kernels of a model."""
LEAST_S, MOST_S = 1e-7, 1e6
"""What a run of a model may take: less than the call alone, or more than a board waits, is no
time."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Bytes of a file from `at` on; none asks how many bytes of it the other side has."""

    digest: str
    size: int
    """Bytes of the whole file."""
    at: int
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Files of a model and of its inputs, dense and in its order; how often to time it."""

    model: str
    inputs: tuple[str, ...]
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutcome:
    """The result of a model's run. Seconds and bytes."""

    times_s: tuple[float, ...]
    kernels_s: tuple[float, ...]
    """Medians, in the order of the model's kernels."""
    outputs: tuple[tuple[str, int], ...]
    """Digests and sizes of files to fetch."""
    peak_bytes: int = 0
    """The most memory that the process which ran it ever had."""
    temperature_c: float | None = None
    clock_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A run under way, or ended."""

    outcome: ModelOutcome | None
    done: bool
    failed: str = ""


def digest(value: object) -> str:
    """SHA-256 in hexadecimal. Raises ValueError."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"expected a SHA-256, got {value!r:.80}")
    return value


def encode_part(part: FilePart) -> bytes:
    data = base64.b64encode(part.data).decode("ascii")
    return encode("part", {"digest": part.digest, "size": part.size, "at": part.at, "data": data})


def decode_part(message: bytes) -> FilePart:
    fields = decode("part", message)
    with checked("part"):
        try:
            data = base64.b64decode(fields["data"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"data are not base64: {error}") from None
        if len(data) > PART_BYTES:
            raise ValueError(f"a part has at most {PART_BYTES} bytes, got {len(data)}")
        size = natural(fields["size"], MAX_FILE_BYTES)
        at = natural(fields["at"], size)
        if at + len(data) > size:
            raise ValueError(f"bytes {at} to {at + len(data)} of a file of {size}")
        return FilePart(digest=digest(fields["digest"]), size=size, at=at, data=data)


def encode_held(count: int) -> bytes:
    return encode("held", {"bytes": count})


def decode_held(message: bytes) -> int:
    """How many bytes of a file the board has, from its beginning on."""
    fields = decode("held", message)
    with checked("held"):
        return natural(fields["bytes"], MAX_FILE_BYTES)


def encode_run(request: ModelRequest) -> bytes:
    return encode("run", asdict(request))


def decode_run(message: bytes) -> ModelRequest:
    fields = decode("run", message)
    with checked("run"):
        return ModelRequest(
            model=digest(fields["model"]),
            inputs=tuple(map(digest, listed(fields["inputs"], MAX_FILES))),
            repeats=natural(fields["repeats"], MAX_REPEATS),
        )


def encode_outcome(outcome: ModelOutcome | None, *, done: bool, failed: str = "") -> bytes:
    found = None if outcome is None else asdict(outcome)
    return encode("outcome", {"done": done, "failed": failed[:1000], "outcome": found})


def decode_outcome(message: bytes) -> Watched:
    fields = decode("outcome", message)
    with checked("outcome"):
        done, failed, found = flag(fields["done"]), text(fields["failed"]), fields["outcome"]
        if found is None:
            return Watched(outcome=None, done=done, failed=failed)
        temperature, clock = found["temperature_c"], found["clock_hz"]
        outcome = ModelOutcome(
            times_s=_seconds(found["times_s"], MAX_REPEATS, LEAST_S),
            kernels_s=_seconds(found["kernels_s"], MAX_KERNELS, 0.0),
            outputs=tuple(
                (digest(one), natural(size, MAX_FILE_BYTES))
                for one, size in listed(found["outputs"], MAX_FILES)
            ),
            peak_bytes=natural(found["peak_bytes"]),
            temperature_c=None if temperature is None else number(temperature, -273.0, 1000.0),
            clock_hz=None if clock is None else number(clock, 0.0, 1e12),
        )
        return Watched(outcome=outcome, done=done, failed=failed)


def _seconds(values: object, most: int, least: float) -> tuple[float, ...]:
    return tuple(number(value, least, MOST_S) for value in listed(values, most))

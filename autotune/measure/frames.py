"""Frames on the pipe between a worker process and its parent.

In: a JSON header and a blob of bytes. Out: `u32 header length, u64 blob length, header, blob`,
big-endian, both capped, and back. Nothing is executed or unpickled on either side.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

PREFIX = struct.Struct(">IQ")
MAX_HEADER_BYTES = 64 << 20
"""Bytes of a frame's header."""
MAX_BLOB_BYTES = 256 << 20
"""Bytes of what follows it: a model with its inputs."""

Frame = tuple[dict[str, Any], bytes]


class FrameError(Exception):
    """The other side sent something that is not a frame."""


def encode_frame(header: dict[str, Any], blob: bytes = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    _check_lengths(len(text), len(blob))
    return PREFIX.pack(len(text), len(blob)) + text + blob


def read_frame(read_exactly: Callable[[int], bytes]) -> Frame:
    """One frame by a function that returns exactly as many bytes as asked, or raises."""
    header_bytes, blob_bytes = PREFIX.unpack(read_exactly(PREFIX.size))
    _check_lengths(header_bytes, blob_bytes)
    try:
        header = json.loads(read_exactly(header_bytes))
    except ValueError as error:
        raise FrameError(f"expected a JSON header: {error}") from None
    if not isinstance(header, dict):
        raise FrameError(f"expected a JSON object as header, got {type(header).__name__}")
    return header, read_exactly(blob_bytes) if blob_bytes else b""


def _check_lengths(header_bytes: int, blob_bytes: int) -> None:
    if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise FrameError(
            f"a frame holds at most {MAX_HEADER_BYTES} + {MAX_BLOB_BYTES} bytes, "
            f"got {header_bytes} + {blob_bytes}"
        )

"""Frames of a board at a serial port. In: a request, or bytes as they come. Out: bytes, or frames;
what is no frame is left out. `examples/deploy/serial_board.c` is the other side, and says what
requests there are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

SYNC = b"\xa5\x5a"
MOST_PAYLOAD = 4096
"""Bytes of a payload, whatever a board says that it takes."""
_HEAD = struct.Struct("<BBH")
_HELLO = struct.Struct("<6IH")
_SUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialFrame:
    type: bytes
    number: int
    payload: bytes = field(repr=False)

    def encode(self) -> bytes:
        body = _HEAD.pack(self.type[0], self.number, len(self.payload)) + self.payload
        return SYNC + body + _SUM.pack(zlib.crc32(body))


class FrameReader:
    """Finds frames among bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[SerialFrame]:
        """Frames that are whole now."""
        self._bytes += data
        while (found := self._bytes.find(SYNC)) >= 0:
            del self._bytes[:found]
            start = len(SYNC) + _HEAD.size
            if len(self._bytes) < start:
                return
            kind, number, length = _HEAD.unpack_from(self._bytes, len(SYNC))
            end = start + length
            if length <= MOST_PAYLOAD:
                if len(self._bytes) < end + _SUM.size:
                    return
                body = bytes(self._bytes[len(SYNC) : end])
                if _SUM.unpack_from(self._bytes, end)[0] == zlib.crc32(body):
                    del self._bytes[: end + _SUM.size]
                    payload = body[_HEAD.size :]
                    yield SerialFrame(type=bytes([kind]), number=number, payload=payload)
                    continue
            del self._bytes[:1]
        del self._bytes[: max(0, len(self._bytes) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialBoard:
    """A board's description of itself."""

    clock_hz: int
    code: int
    code_bytes: int
    memory: int
    memory_bytes: int
    payload: int
    """Bytes that it takes in a frame."""
    name: str


def read_hello(payload: bytes) -> SerialBoard:
    """Raises ValueError for what cannot be."""
    if len(payload) < _HELLO.size:
        raise ValueError("its description is too short")
    version, clock_hz, code, code_bytes, memory, memory_bytes, most = _HELLO.unpack_from(payload)
    name = payload[_HELLO.size :].decode("ascii", "replace")
    if version != 1:
        raise ValueError(f"it speaks version {version}, expected 1")
    if not (clock_hz and most >= 64 and code_bytes and memory_bytes and name.isprintable()):
        raise ValueError("its description has sizes or a name that cannot be")
    return SerialBoard(
        clock_hz=clock_hz, code=code, code_bytes=code_bytes, memory=memory,
        memory_bytes=memory_bytes, payload=min(most, MOST_PAYLOAD), name=name,
    )  # fmt: skip

"""A board at a serial port, asked and answering. In: the port's name. Out: what it says, its
memory written and read, code run there. Every failure is one DeviceError that names the port."""

from __future__ import annotations

import os
import select
import struct
import termios
import time
import tty
from types import TracebackType

from autotune.errors import DeviceError
from autotune.measure.simulator.serial_frames import (
    FrameReader,
    SerialBoard,
    SerialFrame,
    read_hello,
)
from autotune.printable import printable

ANSWER_S = 3.0
"""Seconds that a board has for everything but running code, beside those of the bytes."""
_TRIES = 3
_READ_BYTES = 4096


class BoardGoneError(DeviceError):
    """A serial port's board does not answer any more: no matter of what it was asked."""


class SerialPort:
    """An open port. As a context it is closed at the end."""

    def __init__(self, path: str, baud: int) -> None:
        """Raises DeviceError where it cannot be opened, ConfigError for a speed it has not."""
        self._path, self._baud = path, baud
        self._number = 0
        self._reader = FrameReader()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            hint = ""
            if isinstance(error, PermissionError):
                hint = (
                    "; let the user that workers run as read and write it (as root: another one)"
                )
            raise BoardGoneError(
                f"cannot open the serial port {path}: {error.strerror}{hint}"
            ) from None
        try:
            tty.setraw(self._file)
            settings = termios.tcgetattr(self._file)
            settings[4] = settings[5] = speed_of(baud)
            termios.tcsetattr(self._file, termios.TCSANOW, settings)
            termios.tcflush(self._file, termios.TCIOFLUSH)
        except (OSError, termios.error) as error:
            os.close(self._file)
            raise BoardGoneError(f"{path} is no serial port: {error.args[-1]}") from None

    def __enter__(self) -> SerialPort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        os.close(self._file)

    def hello(self) -> SerialBoard:
        """What the board is. Raises DeviceError."""
        try:
            return read_hello(self._asked(b"H", b""))
        except ValueError as error:
            raise BoardGoneError(f"the board at {self._path} is none of ours: {error}") from None

    def write(self, board: SerialBoard, at: int, data: bytes) -> None:
        """Bytes into its memory."""
        step = board.payload - 4
        for first in range(0, len(data), step):
            part = struct.pack("<I", at + first) + data[first : first + step]
            self._asked(b"W", part)

    def read(self, board: SerialBoard, at: int, count: int) -> bytes:
        """Bytes of its memory."""
        out = b""
        while len(out) < count:
            wanted = min(board.payload, count - len(out))
            part = self._asked(b"R", struct.pack("<IH", at + len(out), wanted))
            if len(part) != wanted:
                raise BoardGoneError(
                    f"the board at {self._path} gave {len(part)} bytes, expected {wanted}"
                )
            out += part
        return out

    def run(self, entry: int, arguments: int, timeout_s: float) -> tuple[int, ...]:
        """Cycles of each part of the code. Raises TimeoutError where it does not come back."""
        number = self._send(b"X", struct.pack("<II", entry, arguments))
        found = self._answer(b"x", number, timeout_s)
        if found is None:
            raise TimeoutError(f"no end after {timeout_s:g} s; reset the board at {self._path}")
        return struct.unpack(f"<{len(found) // 4}I", found[: len(found) // 4 * 4])

    def _asked(self, kind: bytes, payload: bytes) -> bytes:
        """An answer, asked for again where it does not come: asking twice does no harm."""
        wait_s = ANSWER_S + 10 * (len(payload) + _READ_BYTES) / self._baud
        for _ in range(_TRIES):
            found = self._answer(kind.lower(), self._send(kind, payload), wait_s)
            if found is not None:
                return found
        raise BoardGoneError(
            f"the board at {self._path} does not answer; is it powered, does it run "
            f"serial_board.c, at {self._baud} baud?"
        )

    def _send(self, kind: bytes, payload: bytes) -> int:
        self._number = (self._number + 1) % 256
        data = memoryview(SerialFrame(type=kind, number=self._number, payload=payload).encode())
        until = time.monotonic() + ANSWER_S + 10 * len(data) / self._baud
        while data and time.monotonic() < until:
            _, ready, _ = select.select([], [self._file], [], max(0.0, until - time.monotonic()))
            if ready:
                try:
                    data = data[os.write(self._file, data) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise self._gone(error) from None
        return self._number

    def _answer(self, kind: bytes, number: int, wait_s: float) -> bytes | None:
        """The payload of the answer with that number; None where none comes in time."""
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            if not select.select([self._file], [], [], left_s)[0]:
                break
            try:
                data = os.read(self._file, _READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._gone(error) from None
            if not data:
                raise self._gone(OSError(0, "no more bytes"))
            for frame in self._reader.feed(data):
                if frame.number != number:
                    continue
                if frame.type == b"e":
                    said = printable(frame.payload.decode("ascii", "replace"))[:200]
                    raise DeviceError(f"the board at {self._path} refuses: {said}")
                if frame.type == kind:
                    return frame.payload
        return None

    def _gone(self, error: OSError) -> BoardGoneError:
        return BoardGoneError(
            f"the board at {self._path} is gone ({error.strerror}): was it unplugged?"
        )


def speed_of(baud: int) -> int:
    """The system's number of a speed. Raises BoardGoneError for one it has not."""
    found = getattr(termios, f"B{baud}", None)
    if found is None:
        raise BoardGoneError(f"serial ports have no speed of {baud} baud; take 115200 or 921600")
    return int(found)

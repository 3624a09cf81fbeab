"""The -wal of a log, which its writer keeps longer than what is in it. In: a log's path. Out:
whether it was cut, and what else a killed writer left behind. Standard library only.

What SQLite reads ends at the first frame that is not of the -wal's own generation
(https://sqlite.org/fileformat2.html#walformat), so a file that was cut reads as one that ends
there. A whole one goes on with zeros, or with frames of an earlier generation.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from autotune.db.lock import acknowledged
from autotune.db.place import application_id, wal_of

AT_WORK = -(2**31)
"""Added to the application's id of a file whose -wal is kept longer."""
_SPARE = bytes(256 << 10)
_HEADER_BYTES, _FRAME_BYTES = 32, 24
_PAGE_AT, _SALT_AT, _SALT_BYTES = 8, 16, 8
"""Bytes of the -wal's header, of a frame's before its page, and where the page's size and the
generation's number, its salt, are in the former; a frame has the salt at half of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What a killed writer left. Read it before the log: whoever is the last to close the log
    brings the -wal in and deletes it."""

    last: int = 0
    """The number of the last record that it said it had written; 0 where that is not known."""
    cut: bool = False
    """Whether its -wal ends too early."""

    @staticmethod
    def of(log: Path) -> LeftBehind:
        """By the log's -wal and its lock."""
        cut = is_cut(log)  # a writer at work would lengthen it before it says more
        last = acknowledged(log)
        return LeftBehind(last=last, cut=cut and not last)


def lengthen(log: Path) -> int:
    """Append to the -wal what no frame is; its size now, 0 where there is none."""
    with contextlib.suppress(OSError):  # a full disk: it cannot be told then whether it was cut
        file = os.open(wal_of(log), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(file, _SPARE)
            return os.fstat(file).st_size
        finally:
            os.close(file)
    return 0


def is_cut(log: Path) -> bool:
    """Whether the -wal ends where there may have been another frame; one that is empty or gone
    has nothing to tell: its log is whole up to its last checkpoint."""
    number = application_id(log)
    if number is None or number >= 0:
        return False
    try:
        with wal_of(log).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return size > 0 and _ends_early(file.fileno(), size)
    except OSError:
        return False


def _ends_early(file: int, size: int) -> bool:
    header = os.pread(file, _HEADER_BYTES, 0)
    salt = header[_SALT_AT : _SALT_AT + _SALT_BYTES]
    step = _FRAME_BYTES + int.from_bytes(header[_PAGE_AT : _PAGE_AT + 4], "big")

    def current(frame: int) -> bool:
        """Whether a frame is of this generation; they come first."""
        at = _HEADER_BYTES + frame * step + _SALT_AT // 2
        return os.pread(file, _SALT_BYTES, at) == salt

    low, high = 0, max(0, size - _HEADER_BYTES + step - _FRAME_BYTES) // step
    frames = high  # of which the header is there
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if current(middle) else (low, middle)
    return low == frames

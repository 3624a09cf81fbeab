"""The file of a log at work. In: its path. Out: what became of it while it was being written.

A file that is deleted or replaced stays with the process that has it open, which would go on
writing to nowhere. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER_BYTES = 100
"""Bytes of an SQLite file's header, in which its change counter is."""
_APPLICATION_ID_AT = 68
Identity = tuple[int, ...]


def wal_of(path: Path) -> Path:
    """SQLite's write-ahead log of the file."""
    return path.with_name(path.name + "-wal")


def identity(path: str | Path) -> Identity | None:
    """Device and inode of a file; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def application_id(path: Path) -> int | None:
    """The number that each checkpoint of a log gives its file anew; None where there is none."""
    try:
        with descriptor(path) as file:
            found = os.pread(file, 4, _APPLICATION_ID_AT)
    except OSError:
        return None
    return int.from_bytes(found, "big", signed=True) if len(found) == 4 else None


@contextlib.contextmanager
def descriptor(path: Path) -> Iterator[int]:
    """The file open for `os.pread`: by SQLite's own descriptor, where this process has one.

    A process that closes any descriptor of a file drops all its POSIX locks on it, SQLite's too.
    Another process's reader then takes itself for the last one and deletes the -wal
    (https://sqlite.org/howtocorrupt.html, 2.2). Raises OSError."""
    found = _borrowed(path)
    if found is not None:
        yield found
        return
    own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield own
    finally:
        os.close(own)


def _borrowed(path: Path) -> int | None:
    wanted = identity(path)
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, as the listing's own is
            found = os.fstat(int(name))
            if (found.st_dev, found.st_ino) == wanted:
                return int(name)
    return None


class Place:
    """What stands at a log's path, as its writer left it. Only the writer's checkpoints change the
    file itself, after each of which `note` is called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal_path = wal_of(path)
        self._names = str(path), str(self._wal_path)
        self._file: Identity | None = None
        self._seen: Identity | None = None
        self._header = b""
        self._wal: Identity | None = None
        self.note()

    def note(self) -> None:
        """This is what the writer left."""
        self._seen, self._header = self._look(), self._read_header()
        self._file = None if self._seen is None else self._seen[:2]
        self._wal = identity(self._wal_path)

    def trouble(self) -> str:
        """What somebody else did to the file, for a message; empty where nothing."""
        seen = self._look()
        if seen is None:
            return "was deleted"
        if seen != self._seen:
            if seen[:2] != self._file:
                return "was replaced by another file"
            if self._read_header() != self._header:
                return "was changed by another program"
            self._seen = seen  # its times were
        if self._wal is not None and identity(self._names[1]) != self._wal:
            return f"lost its {self._wal_path.name}"
        return ""

    def is_taken(self) -> bool:
        """Whether another file stands where the writer's was."""
        return identity(self._path) not in (None, self._file)

    def _look(self) -> Identity | None:
        try:
            found = os.stat(self._names[0])
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _read_header(self) -> bytes:
        try:
            with descriptor(self._path) as file:
                return os.pread(file, _HEADER_BYTES, 0)
        except OSError:
            return b""


def never_closed(connection: Any) -> None:
    """Keep an SQLite connection until the process ends. The last one that closes deletes the -wal
    by its name, and where the file was replaced that is another log's."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

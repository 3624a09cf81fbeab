"""One writer at a time. In: a log's path. Out: a held lock, or a LogError that names the holder.

An operating-system lock on `<log>.lock`: it ends with its process, however that ends, so a lock is
never stale. The file's text says who holds it, for people, and for the next who opens the log the
number of the last record that the holder said it had written: a killed writer leaves it behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

from autotune.db.place import application_id, identity
from autotune.errors import LogError

_DIGITS = 19
"""Digits that a record's number is written with."""


def acknowledged(log: Path) -> int:
    """The number of the last record that a writer of this file, or of the one that it is a copy
    of, said it had written, which did not live to close it; 0 where there is none. Read it before
    the log: a writer may be at work."""
    try:
        left = json.loads(_lock_of(log).read_bytes())
        same = identity(log) == tuple(left["file"])
        copied = left["id"] and left["id"] == application_id(log)
        return int(left["last"]) if same or copied else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _lock_of(log: Path) -> Path:
    return log.with_name(log.name + ".lock")


class WriterLock:
    """The right to write to a log; held from construction to `release`."""

    def __init__(self, log: Path, since: str) -> None:
        self._path = _lock_of(log)
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise LogError(f"tuning log {log}: cannot lock it: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = self._holder()
            os.close(self._file)
            raise LogError(
                f"tuning log {log}: another process is writing to it ({holder}); "
                "wait for it or give another --log"
            ) from None
        self._who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        self._digits_at: int | None = None
        self._write(json.dumps(self._who))

    def count(self, log: Path, last: int) -> None:
        """After a checkpoint of this file, and the record of this number."""
        file = {"file": identity(log), "id": application_id(log)}
        text = json.dumps({**self._who, **file, "last": f"{last:0{_DIGITS}d}"})
        self._write(text)
        self._digits_at = len(text.encode()) - len('"}') - _DIGITS

    def wrote(self, number: int) -> None:
        """The record of this number is committed."""
        if self._digits_at is not None:
            try:  # noqa: SIM105 (at every record)
                os.pwrite(self._file, b"%019d" % number, self._digits_at)
            except OSError:  # a full disk, which the log itself is about to notice
                pass

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: it is locked all the same
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text.encode(), 0)

    def _holder(self) -> str:
        try:
            who = json.loads(os.pread(self._file, 4096, 0))
            return f"pid {who['pid']} on {who['host']} since {who['since']}"
        except (ValueError, KeyError, TypeError):
            return "it has just started"

    def release(self, *, settled: bool = True) -> None:
        """Let the next writer in. The file stays: removing it would let two writers in at once.
        What it says stays too, as a killed writer's, where the log's last checkpoint failed."""
        if settled:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
        os.close(self._file)

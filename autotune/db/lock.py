"""One writer at a time. In: a log's path. Out: a held lock, or a LogError that names the holder.

An operating-system lock on `<log>.lock`: it ends with its process, however that ends, so a lock is
never stale. The file's text says who holds it and is for people only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

from autotune.errors import LogError


class WriterLock:
    """The right to write to a log; held from construction to `release`."""

    def __init__(self, log: Path, since: str) -> None:
        self._path = log.with_name(log.name + ".lock")
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
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        with contextlib.suppress(OSError):  # a full disk: it is locked all the same
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text.encode(), 0)

    def _holder(self) -> str:
        try:
            who = json.loads(os.pread(self._file, 4096, 0))
            return f"pid {who['pid']} on {who['host']} since {who['since']}"
        except (ValueError, KeyError, TypeError):
            return "it has just started"

    def release(self) -> None:
        """Let the next writer in. The file stays: removing it would let two writers in at once."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
        os.close(self._file)

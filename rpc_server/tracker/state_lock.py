"""One process for a file of state. In: the file's path. Out: a lock, or who has it.

The lock is on a file beside it that holds the process's number, and goes with the process: what a
killed one left behind holds nobody up.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from autotune.errors import ConfigError

SUFFIX = ".lock"


class StateLock:
    """Held from construction to `close`. Raises ConfigError naming the process that has it."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise ConfigError(
                f"the farm's state is a file, {path} is a directory; give --state FILE"
            )
        self._path = path.with_name(path.name + SUFFIX)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot use the farm's state file {path}: {error.strerror}; give --state another "
                "file"
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _process(os.read(self._descriptor, 32))
            os.close(self._descriptor)
            raise ConfigError(
                f"the farm's state file {path} is in use by {holder}; stop that one, or give "
                "--state another file"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def close(self, *, remove: bool = False) -> None:
        """Another process may have it. `remove`: the file beside, where the state is none of ours
        and nobody will want the lock; otherwise it stays, for removing it could take the lock of
        who waits for it."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _process(written: bytes) -> str:
    """Process and command line of a number in a lock file."""
    text = written.decode("ascii", "replace").strip()
    if not text.isdigit():
        return "another process"
    try:
        words = Path("/proc", text, "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"process {text}"
    command = " ".join(w for w in words if w)
    shown = "".join(c if c.isprintable() else "?" for c in command)[:160]
    return f"process {text} ({shown})" if shown else f"process {text}"

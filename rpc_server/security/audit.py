"""The audit log: who did what, when, and what came of it. In: events. Out: lines of JSON.

Lines are only ever appended, each with one write, so that several processes may share a file and a
crash leaves no half of a line behind others. Names, methods, counts and reasons are written, never
keys, schedules or data.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from autotune.errors import ConfigError
from rpc_server.security.auth import Peer

MAX_TEXT = 300
"""Characters of what somebody else said, in a line."""


class AuditLog:
    """Appends to a file; without a path it writes nothing. Safe to use from several threads.
    Raises ConfigError where the file cannot be opened."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._descriptor: int | None = None
        if path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot open the audit log {path}: {error.strerror}") from None

    def write(self, peer: Peer | None, what: str, result: str, **details: str | int) -> None:
        """One event. `peer` is None where nobody got so far as to have a name. A full disk loses
        the line, not the service."""
        if self._descriptor is None:
            return
        when = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)
        event = {
            "when": when.isoformat(timespec="milliseconds"),
            "who": peer.name if peer else "",
            "role": str(peer.role) if peer else "",
            "what": what,
            "result": _short(result),
            **{k: _short(v) if isinstance(v, str) else v for k, v in details.items()},
        }
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        try:
            os.write(self._descriptor, line)
        except OSError:
            return

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_TEXT]

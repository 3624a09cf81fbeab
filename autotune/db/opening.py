"""A log to read from. In: a path or URL. Out: a LogStore: a database, or a frozen file."""

from __future__ import annotations

from pathlib import Path

from autotune.db import files
from autotune.db.types import LogStore


def open_log(path_or_url: str | Path, *, missing_ok: bool = False) -> LogStore:
    """For reading only; the caller closes it. `missing_ok`: a missing log is an empty one.

    A frozen log needs no SQLAlchemy. Raises LogError."""
    name = str(path_or_url)
    if not files.is_url(name) and files.is_text(Path(name)):
        from autotune.db.frozen import FrozenLog

        return FrozenLog(Path(name))
    from autotune.db.store import TuningLog

    return TuningLog(name, read_only=True, missing_ok=missing_ok)

"""A tuning log as a file. In: a path. Out: a checked SQLite connection, or a LogError in one line.

Nothing here imports SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from autotune.db.place import descriptor
from autotune.errors import LogError
from autotune.printable import printable

SCHEMA_VERSION = 6
"""Version of the schema that this release writes."""
_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_S = 10.0
"""Seconds that a reader or writer waits for SQLite's lock."""
SMALL_BYTES = 64 << 20
"""Size up to which a log is checked whole whenever it is opened: 1 ms for each 10 MB."""


def shown(path_or_url: str) -> str:
    """The log's name for people: a URL without its password, wherever that stands."""
    hidden = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", path_or_url)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", hidden) if is_url(hidden) else hidden


def is_url(path_or_url: str) -> bool:
    """Whether this is an SQLAlchemy URL rather than a path."""
    return "://" in path_or_url


def file_of(path_or_url: str) -> Path | None:
    """The file of a log that is one: a path, or a URL of SQLite. Raises LogError for an empty
    one, which would be the current folder."""
    name = path_or_url
    if name.startswith("sqlite:"):
        name = name.partition(":///")[2]
    elif is_url(name):
        return None
    if not name:
        raise LogError(
            f"tuning log {path_or_url!r}: an empty path; expected a file, or "
            "postgresql://user@host/database"
        )
    return Path(name)


def exists(path: Path) -> bool:
    """Whether the file is there with something in it; a missing directory is just missing."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise LogError(
            f"tuning log {path}: cannot be read: {error.strerror}; give another --log"
        ) from None


def absent(path_or_url: str) -> str:
    """What to say of a log that is not there; nothing of one that is, or that a URL names."""
    if is_url(path_or_url) or exists(Path(path_or_url)):
        return ""
    return f"there is no tuning log {printable(path_or_url)}"


def check_header(path: Path) -> None:
    """Raise LogError unless an existing, non-empty file is an SQLite database that can be read."""
    try:
        head = _head(path)
    except OSError as error:
        raise LogError(
            f"tuning log {path}: cannot be read: {error.strerror}; give another --log"
        ) from None
    if head.startswith(b"{"):
        raise LogError(
            f"tuning log {path}: text, not a database; a frozen log can only be compiled against, "
            "and `autotune log import` reads an exported one"
        )
    if head != _MAGIC:
        raise LogError(
            f"tuning log {path}: not a database; give another --log or move the file away"
        )


def trouble(path: Path, most: int | None = SMALL_BYTES) -> list[str]:
    """What the database finds wrong with a file of at most so many bytes, a line each: pages that
    are no pages, an index that does not lead to its rows. A log of any but that size is taken to
    be whole until reading it fails."""
    try:
        if most is not None and path.stat().st_size > most:
            return []
        with contextlib.closing(connect(path, write=False)) as connection:
            found = [str(text) for (text,) in connection.execute("PRAGMA integrity_check(20)")]
    except (OSError, sqlite3.OperationalError):  # locked, or no access: whoever reads it says so
        return []
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of its own message
        return [str(error)]
    return [text for text in found if text != "ok"]


def number(value: object) -> int:
    """A version as it is kept; 0 for what is none."""
    return value if isinstance(value, int) else 0


def damaged(log: str, what: str) -> LogError:
    return LogError(
        f"tuning log {log}: damaged ({what}); `autotune log repair --log {log}` keeps what can be "
        "read of it"
    )


def check_writable(path: Path) -> None:
    """Raise LogError unless the log can be written, or made, at this path."""
    folder = path.parent
    if not folder.is_dir():
        raise LogError(f"tuning log {path}: directory {folder} does not exist; create it first")
    if path.exists() and not path.is_file():
        raise LogError(f"tuning log {path}: neither a file nor a new name; give another --log")
    for place in (folder, path):
        if place.exists() and not os.access(place, os.W_OK, effective_ids=True):
            raise LogError(f"tuning log {path}: {place} is read-only; give another --log")


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection in autocommit mode; a reader's never makes the file or changes its contents."""
    options = "mode=rwc" if write else _reader_options(path)
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}?{options}",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = _text  # damaged text must not end the reading of other rows
    if write:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")  # see `guard`
    else:
        connection.execute("PRAGMA query_only=ON")
    return connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _reader_options(path: Path) -> str:
    """Where it can, a reader leaves no -wal and -shm files behind, for which it must be able to
    write. In a read-only directory SQLite cannot make them at all, and nobody writes."""
    if all(os.access(place, os.W_OK, effective_ids=True) for place in (path, path.parent)):
        return "mode=rw"
    wal = path.with_name(path.name + "-wal")
    return "mode=ro" if wal.exists() else "mode=ro&immutable=1"


def is_text(path: Path) -> bool:
    """Whether the file begins as JSON does: a frozen or exported log, not a database."""
    try:
        return _head(path).startswith(b"{")
    except OSError:
        return False


def _head(path: Path) -> bytes:
    with descriptor(path) as file:
        return os.pread(file, len(_MAGIC), 0)


def missing(log: str) -> LogError:
    return LogError(f"tuning log {log}: does not exist; `autotune tune` makes one")


def outdated(log: str, version: int) -> LogError:
    return LogError(
        f"tuning log {log}: of an older release (schema {version}, this one reads "
        f"{SCHEMA_VERSION}); `autotune log upgrade --log {log}` upgrades it"
    )


def check_version(version: int, tables: Collection[str], log: str, known: int) -> None:
    """Raise LogError unless a database of this schema version can be read as a tuning log."""
    if version > known:
        raise LogError(
            f"tuning log {log}: written by a newer release (schema {version}, this one knows "
            f"{known}); upgrade autotune or give another --log"
        )
    if version == 0 and tables:
        raise LogError(f"tuning log {log}: a database, but not a tuning log; give another --log")


def explain(error: BaseException, log: str) -> LogError:
    """A database driver's error as one line that says what to do."""
    text = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    hints = (
        ("locked", "another process is writing; try again"),
        ("full", "free some disk space; everything committed before is safe"),
        ("disk i/o", "check the disk; everything committed before is safe"),
        ("readonly", "make the file and its directory writable"),
        ("malformed", f"the file is damaged; `autotune log repair --log {log}` keeps the rest"),
        ("codec can't", f"the file is damaged; `autotune log repair --log {log}` keeps the rest"),
        ("no such", f"the file is damaged; `autotune log repair --log {log}` keeps the rest"),
        ("not a database", "give another --log or move the file away"),
        ("connection", "check the address, and that the server is running"),
        ("authentication", "check the user and the password in the URL"),
    )
    hint = next((f"; {h}" for word, h in hints if word in text.lower()), "")
    return LogError(f"tuning log {log}: {text}{hint}")

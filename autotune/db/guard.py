"""The writer of a log's file looks after it. In: what was committed. Out: checkpoints, and an
error where the file was taken away under the writer.

Everything is in the one main file after each checkpoint: at the end of a round, every few hundred
records, and when the log is closed.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Engine

from autotune.db import files, rescue, state
from autotune.db.lock import WriterLock
from autotune.db.place import Place, never_closed, wal_of
from autotune.db.types import Record
from autotune.db.wal import AT_WORK, lengthen
from autotune.errors import LogError

REMEMBERED = 10_000
"""Records kept in memory for the case that the file is gone: some 30 MB."""
APPENDED = 300
"""Records between checkpoints: about the 4 MB of pages that SQLite would take."""
WAL_BYTES = 4 << 20
"""Bytes of the write-ahead log from which it is put into the database, as SQLite would do."""
LOOKED_S = 0.001
"""Seconds for which a file seen in its place is taken to be there: looking costs a twelfth of what
appending a record does, and one that is appended meanwhile is saved with the others."""


class LostLogError(LogError):
    """The log's file was taken away while it was written; what was measured is saved."""


class Guard:
    """Watches the file of a log that this process writes. It keeps a connection of its own until
    `release`: one that is opened later would not find what was taken away."""

    def __init__(
        self,
        path: Path,
        engine: Engine,
        lock: WriterLock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._lock, self._clock = path, lock, clock
        self._measured: deque[Record] = deque(maxlen=REMEMBERED)
        self._written: rescue.Written = (0, 0)
        self._appended = 0
        self._looked_s = 0.0
        self._is_lost = False
        self._pooled = engine.raw_connection()
        self._connection: sqlite3.Connection = self._pooled.driver_connection  # type: ignore
        self._place = Place(path)
        self._wal_bytes = 0
        self._bring_in(lambda: None, AT_WORK)

    def wrote(self, number: int, seal: int, records: Sequence[Record] = ()) -> None:
        """The record of this number is committed, and those before it. Raises LogError where the
        file is not there any more, unless it was a moment ago."""
        self._written = number, seal
        self._measured.extend(records)
        self._lock.wrote(number)
        if self._clock() - self._looked_s > LOOKED_S:
            self.check()
            self._lengthen()
        self._appended += 1
        if self._appended >= APPENDED:
            self.checkpoint()

    def committed(self) -> None:
        """A transaction is; raises LogError as `wrote`."""
        self.check()
        with contextlib.suppress(OSError):
            if wal_of(self._path).stat().st_size > WAL_BYTES:
                self.checkpoint()
        self._lengthen()

    def check(self, unwritten: Sequence[Record] = ()) -> None:
        """Raise LogError where somebody took the file away; what was measured is saved, with what
        could not be written."""
        trouble = "" if self._is_lost else self._place.trouble()
        self._looked_s = self._clock()
        if not trouble:
            return
        self._is_lost = True
        self._measured.extend(unwritten)
        saved = ""
        if trouble.startswith("lost") and not unwritten:
            with contextlib.suppress(sqlite3.Error):
                saved = "everything that was measured is in it" if self._copy_wal() else ""
        if self._place.is_taken():
            never_closed(self._connection)
        if not saved:
            other = unwritten or trouble.startswith("was changed")  # what it reads is not ours
            whole = None if other else self._connection
            saved = rescue.save_log(self._path, whole, tuple(self._measured), self._written)
        raise LostLogError(f"tuning log {self._path}: it {trouble} while it was written; {saved}")

    def release(self) -> None:
        """Give the connection back; `close` follows once the engine is disposed of."""
        self._pooled.close()

    def checkpoint(self, *, last: bool = False) -> None:
        """Bring everything into the main file, with the count of its records. `last`: what is
        written from then on is not this writer's. Raises LogError."""
        self.check()
        if not self._is_lost:
            self._bring_in(lambda: state.keep(self._connection.execute), 0 if last else AT_WORK)

    def _lengthen(self) -> None:
        """Where the -wal's frames reached its end, put that off."""
        with contextlib.suppress(OSError):
            if wal_of(self._path).stat().st_size != self._wal_bytes:
                self._wal_bytes = lengthen(self._path)

    def _bring_in(self, first: Callable[[], None], number: int) -> None:
        """Copy the -wal after something else. The file is told, as it is then, from every other
        and from its own older copies by a random number in its first bytes, from `number` on."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            try:
                first()
                execute(f"PRAGMA application_id = {number + secrets.randbits(31)}")
                execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
            self._lengthen()  # first: its number says from now on that it is longer
            self._copy_wal()
            self._lock.count(self._path, self._written[0])
        except sqlite3.Error as error:
            raise files.explain(error, str(self._path)) from None

    def _copy_wal(self) -> bool:
        """Whether all of it was: without waiting for readers, what they still need is copied the
        next time."""
        try:
            cursor = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            busy, frames, copied = cursor.fetchone()
        finally:
            self._place.note()  # a full disk takes a part of it, which is this writer's too
        self._appended = 0
        return not busy and frames == copied

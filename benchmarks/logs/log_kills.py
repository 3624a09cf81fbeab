"""Tuning logs whose writers are killed. In: a log, a record, how often. Out: what was lost.

A writer is a process that appends one record after another and says so for each. It dies by
SIGKILL at a random moment, or by itself when the server it writes to does. Then every record it
had told of must be there, and at most the one in flight besides.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import func, select, text

from autotune.db import files
from autotune.db.schema import RECORDS
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.errors import LogError
from tests import postgres

RECOVERY_S = 600.0
KILLED_AFTER_S = 0.25
"""A writer's longest life: opening the log and some dozens of appends."""


class Server:
    """A PostgreSQL server of our own, to be killed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.url = postgres.url(folder)
        self._folder, self._options = folder, options
        self._process = postgres.start(folder, *options)

    def kill(self) -> None:
        """And start it again, as soon as it can be."""
        postgres.kill(self._process)
        self._process = postgres.start_again(self._folder, *self._options, within_s=RECOVERY_S)

    def stop(self) -> None:
        postgres.stop(self._process)


def write_until_killed(log: str, record: Record, acknowledge: int) -> None:
    """Append one record after another; a byte for each that is committed."""
    with TuningLog(log) as store:
        while True:
            store.append([record])
            os.write(acknowledge, b".")


def start_writer(log: str, record: Record) -> tuple[int, int]:
    """Its process, and where it acknowledges. It ends with status 3 where the log fails."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            write_until_killed(log, record, write)
        except LogError:
            status = 3
        finally:
            os._exit(status)
    os.close(write)
    return child, read


def acknowledged(read: int) -> int:
    count = 0
    while chunk := os.read(read, 1 << 16):
        count += len(chunk)
    os.close(read)
    return count


class Killing:
    """Kills in turn; what they broke is in `wrong`."""

    def __init__(self, log: str, record: Record, draw: random.Random) -> None:
        self.wrong: list[str] = []
        self._log, self._record, self._draw = log, record, draw
        self._acknowledged = self._kills = 0
        self._before = count(log, record)

    def writers(self, times: int) -> None:
        """Half of them from their start on, while they open the log, half of them at work."""
        for number in range(times):
            child, status = self._kill(lambda child: os.kill(child, signal.SIGKILL), number % 2)
            if not os.WIFSIGNALED(status):
                self.wrong.append(f"writer {child} ended by itself, with status {status}")
        print(f"{times} writers killed, {self._told()}", flush=True)

    def servers(self, times: int, server: Server) -> None:
        """Kill the server while a writer is at work, and start it again."""
        for _ in range(times):
            child, status = self._kill(lambda _: server.kill(), True)
            if os.waitstatus_to_exitcode(status) != 3:
                self.wrong.append(f"writer {child} did not say that its server was gone")
        print(f"the server killed {times} times, {self._told()}", flush=True)

    def _kill(self, kill: Callable[[int], object], at_work: bool | int) -> tuple[int, int]:
        """Kill a writer, or what it needs; the writer and its status."""
        child, read = start_writer(self._log, self._record)
        if at_work:
            self._acknowledged += len(os.read(read, 1))
        time.sleep(self._draw.uniform(0, KILLED_AFTER_S))
        kill(child)
        _, status = os.waitpid(child, 0)
        self._acknowledged += acknowledged(read)
        self._kills += 1
        kept = count(self._log, self._record) - self._before
        if not self._acknowledged <= kept <= self._acknowledged + self._kills:
            told = f"{self._acknowledged} records acknowledged, {kept} kept"
            self.wrong.append(f"kill {self._kills}: {told}")
        return child, status

    def _told(self) -> str:
        told = f"{self._acknowledged} records acknowledged"
        return f"{told}, {'; '.join(self.wrong) or 'all of them kept'}"


def count(log: str, record: Record) -> int:
    """Records of the record's task."""
    where = RECORDS.c.task_key == record.task.key
    with TuningLog(log, read_only=True) as store, store.reading() as connection:
        assert connection is not None
        statement = select(func.count()).select_from(RECORDS).where(where)
        return int(connection.execute(statement).scalar_one())


def damage(log: str) -> list[str]:
    """What the database finds wrong with itself. A server must let us use its `amcheck`."""
    if files.is_url(log):
        return _damage_of_server(log)
    connection = sqlite3.connect(log)
    try:
        found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()
    return [text for text in found if text != "ok"]


def _damage_of_server(log: str) -> list[str]:
    """Every index against itself and its table, and the checksum of every page that is read."""
    statement = (
        "SELECT bt_index_parent_check(indexrelid, true) FROM pg_index "
        "WHERE indrelid IN ('records'::regclass, 'tasks'::regclass, 'targets'::regclass)"
    )
    try:
        with TuningLog(log) as store, store.writing() as connection:
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS amcheck"))
            connection.execute(text(statement)).all()
    except LogError as error:
        return [str(error)]
    return []

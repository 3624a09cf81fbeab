"""A real PostgreSQL server for tests: without TCP, in a folder of its own, gone when they end."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from tests.needs import program, require
from tests.patience import PATIENCE_S

NewDatabase = Callable[[], str]


@pytest.fixture(scope="session")
def new_database() -> Iterator[NewDatabase]:
    """Makes an empty database on the session's server; its URL. It is a schema of its own: that is
    as good here, and does not copy a thousand files."""
    require("postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = start(folder)
    numbers = itertools.count()

    def make() -> str:
        name = f"log{next(numbers)}"
        execute(url(folder), f"CREATE SCHEMA {name}")
        return url(folder, name)

    try:
        yield make
    finally:
        stop(server)
        shutil.rmtree(folder)


def url(folder: Path, schema: str = "public") -> str:
    return f"postgresql://postgres@/postgres?host={folder}&options=-csearch_path%3D{schema}"


def execute(address: str, statement: str) -> None:
    engine = create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(statement)
    engine.dispose()


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A new server on a socket in the folder, ready to be connected to."""
    require("postgres")
    user = _unprivileged()
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    _run(user, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
    return start_again(folder, *options)


def start_again(
    folder: Path, *options: str, within_s: float = PATIENCE_S
) -> subprocess.Popen[bytes]:
    """The server whose data are in the folder. Killed, it first repeats what was not written."""
    server = subprocess.Popen(
        [_program("postgres"), "-D", folder / "data", "-k", folder, "-h", "", *options],
        user=_unprivileged(),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + within_s
    while True:
        try:
            execute(url(folder), "SELECT 1")
            return server
        except OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                stop(server)
                raise
            time.sleep(0.05)


def stop(server: subprocess.Popen[bytes]) -> None:
    """At once: nobody reads the data again."""
    server.send_signal(signal.SIGQUIT)
    server.wait(timeout=PATIENCE_S)


def kill(server: subprocess.Popen[bytes]) -> None:
    """All its processes with SIGKILL: what a dying machine leaves of it, but for its disk."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    server.kill()
    server.wait(timeout=PATIENCE_S)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def _run(user: str | None, program: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [_program(program), *arguments],
        user=user, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _program(name: str) -> str:
    require("postgres")
    return str(program(name))


def _unprivileged() -> str | None:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"

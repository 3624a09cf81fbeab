"""The log's tables, and how an older log becomes a current one.

records.(task_key, target_key, status, median_s, id) is the index that answers `best` by itself.
Values that only programs read (task, target, config, schedule, times, versions) are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
)

from autotune.db import files

METADATA = MetaData()

SCHEMA = Table(
    "schema",
    METADATA,
    Column("version", Integer, nullable=False),
)
TASKS = Table(
    "tasks",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("op", Text, nullable=False, index=True),
    Column("flops", BigInteger, nullable=False),
    Column("description", Text, nullable=False),
    Column("json", Text, nullable=False),
)
TARGETS = Table(
    "targets",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("key", Text, nullable=False, index=True),
    Column("family", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("json", Text, nullable=False),
)
RECORDS = Table(
    "records",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("task_key", Text, ForeignKey(TASKS.c.key), nullable=False),
    Column("target_key", Text, nullable=False),
    Column("target", Text, ForeignKey(TARGETS.c.digest), nullable=False),
    Column("device", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("schedule", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("times", Text, nullable=False),
    Column("median_s", Float),
    Column("calibration_s", Float, nullable=False),
    Column("build_s", Float, nullable=False),
    Column("run_s", Float, nullable=False),
    Column("max_error", Float),
    Column("error", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("model", Text, nullable=False),
    Column("versions", Text, nullable=False),
    Column("created", Text, nullable=False),
    Index("records_best", "task_key", "target_key", "status", "median_s", "id"),
)

Migration = Callable[[Connection], None]
MIGRATIONS: Mapping[int, Migration] = {}
"""Schema version -> what turns a log of that version into one of the next."""


def is_current(connection: Connection, log: str, current: int = files.SCHEMA_VERSION) -> bool:
    """Whether the tables are there and of this release's version, so that the log can be read.

    Raises LogError for a database that is newer, or not a tuning log."""
    tables = inspect(connection).get_table_names()
    version = _version(connection, tables)
    files.check_version(version, tables, log, current)
    return version == current


def upgrade(
    connection: Connection,
    log: str,
    current: int = files.SCHEMA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Make the tables, or migrate those of an older release, inside the caller's transaction."""
    if is_current(connection, log, current):
        return
    version = _version(connection, inspect(connection).get_table_names())
    if version == 0:
        METADATA.create_all(connection)
    else:
        for old in range(version, current):
            migrations[old](connection)
    connection.execute(SCHEMA.delete())
    connection.execute(SCHEMA.insert().values(version=current))
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {current}")


def _version(connection: Connection, tables: list[str]) -> int:
    """The schema's version, 0 for a database without one. Both places count: a newer release must
    be noticed by whichever it kept."""
    if SCHEMA.name not in tables:
        return 0
    version = int(connection.execute(select(SCHEMA.c.version)).scalar() or 0)
    if connection.dialect.name == "sqlite":
        pragma = connection.exec_driver_sql("PRAGMA user_version").scalar()
        version = max(version, int(pragma or 0))
    return version

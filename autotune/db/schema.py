"""The log's tables. In: a connection. Out: tables of this release's version, or a LogError.

records.(task_key, target_key, status, mark, median_s, id) is the index that answers `best` alone.
Values that only programs read (task, target, config, schedule, times, versions) are JSON text.
Every row has a checksum (see `seals`); one without is of a program that makes none.
"""

from __future__ import annotations

from pathlib import Path

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
    func,
    inspect,
    select,
)

from autotune.db import files

METADATA = MetaData()

SCHEMA = Table(
    "schema",
    METADATA,
    Column("version", Integer, nullable=False),
    # How many records a file had at its last checkpoint, and the number of the last.
    Column("records", BigInteger, nullable=False, server_default="0"),
    Column("last", BigInteger, nullable=False, server_default="0"),
)
TASKS = Table(
    "tasks",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("op", Text, nullable=False, index=True),
    Column("flops", BigInteger, nullable=False),
    Column("description", Text, nullable=False),
    Column("json", Text, nullable=False),
    Column("seal", BigInteger),
)
TARGETS = Table(
    "targets",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("key", Text, nullable=False, index=True),
    Column("family", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("json", Text, nullable=False),
    Column("seal", BigInteger),
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
    Column("origin", Text, nullable=False, server_default=""),
    Column("mark", Integer, nullable=False, server_default="0"),
    Column("conditions", Text, nullable=False, server_default=""),
    Column("seal", BigInteger),
    Index("records_best", "task_key", "target_key", "status", "mark", "median_s", "id"),
)
RANKINGS = Table(
    "rankings",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("task_key", Text, nullable=False),
    Column("target_key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("rank_correlation", Float, nullable=False),
    Column("top_recall", Float, nullable=False),
    Column("regret", Float),
    Column("created", Text, nullable=False),
    Column("seal", BigInteger),
    Index("rankings_task", "task_key", "target_key"),
)
PROFILES = Table(
    "profiles",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("device", Text, nullable=False),
    Column("target_key", Text, nullable=False),
    Column("json", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("seal", BigInteger),
    Index("profiles_device", "device", "target_key"),
)
LATENCIES = Table(
    "latencies",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("model_key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("target_key", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("kernels_before_s", Float),
    Column("kernels_after_s", Float),
    Column("created", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("seal", BigInteger),
    Index("latencies_model", "model_key", "target_key"),
)

_UPGRADING = 0x6175746F74756E65
"""Advisory lock of a PostgreSQL database whose tables are being made or changed."""


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
    revisions: Path | None = None,
) -> None:
    """Make the tables, or migrate those of an older release, inside the caller's transaction: a
    migration that fails leaves the log as it was. `revisions` is the folder they are in."""
    if is_current(connection, log, current):
        return
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_UPGRADING)))
    version = version_of(connection)
    if version == current:
        return
    if version == 0:
        METADATA.create_all(connection)
    else:
        from autotune.db import migrations  # loads Alembic

        migrations.migrate(connection, version, current, revisions or migrations.FOLDER)
    connection.execute(SCHEMA.delete())
    connection.execute(SCHEMA.insert().values(version=current))
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {current}")


def version_of(connection: Connection) -> int:
    """The log's schema version, 0 where there is none yet."""
    return _version(connection, inspect(connection).get_table_names())


def _version(connection: Connection, tables: list[str]) -> int:
    """The schema's version, 0 for a database without one. Both places count: a newer release must
    be noticed by whichever it kept."""
    if SCHEMA.name not in tables:
        return 0
    version = files.number(connection.execute(select(SCHEMA.c.version)).scalar())
    if connection.dialect.name == "sqlite":
        pragma = connection.exec_driver_sql("PRAGMA user_version").scalar()
        version = max(version, files.number(pragma))
    return version

"""Logs of older releases: upgraded whole or left alone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, event, inspect

from autotune.db import files, query, schema
from autotune.db.selection import Selection
from autotune.db.store import TuningLog
from autotune.db.types import Mark
from autotune.errors import LogError
from autotune.measure.types import Status
from tests.postgres import NewDatabase
from tests.unit.db.samples import matmul, record, target

FIXTURES = Path(__file__).parents[2] / "fixtures"
OLD = sorted(FIXTURES.glob("log_v*.db"))


@pytest.fixture(params=OLD, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log of an older release: five records of two tasks on two targets."""
    return Path(shutil.copy(request.param, tmp_path / "log.db"))


def test_there_is_a_log_of_every_older_version() -> None:
    assert [p.stem for p in OLD] == [f"log_v{n}" for n in range(1, files.SCHEMA_VERSION)]


def test_an_old_log_is_upgraded_by_its_next_writer_and_keeps_its_records(old: Path) -> None:
    with TuningLog(old) as log:
        kept = log.records(matmul().key, target())
        assert [r.result.status for r in kept] == [Status.OK, Status.OK, Status.WRONG_RESULT]
        assert {(r.mark, r.origin) for r in kept} == {(Mark.OWN, "")}
        best = log.best(matmul().key, target())
        assert best is not None
        assert best.config["tile"] == 4
        log.append([record(times=(1e-6,))])
    found = query.query_file(old, Selection(task_keys=[matmul().key]))
    assert [r["median_s"] for r in found] == [1e-6, 6e-4]


def test_an_upgraded_log_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    with TuningLog(old), TuningLog(tmp_path / "new.db") as new:
        new.append([record()])
    assert described(old) == described(tmp_path / "new.db")


def described(path: Path) -> object:
    """Columns, indexes and version of a database."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        return tables_of(connection), connection.exec_driver_sql("PRAGMA user_version").scalar()


def tables_of(connection: Connection) -> dict[str, object]:
    found = inspect(connection)
    return {
        name: (
            sorted((c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)),
            sorted((i["name"], tuple(i["column_names"])) for i in found.get_indexes(name)),
        )
        for name in found.get_table_names()
    }


def test_readers_leave_an_old_log_alone_and_say_what_upgrades_it(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(LogError, match="autotune log upgrade") as error:
        TuningLog(old, read_only=True)
    with pytest.raises(LogError, match="autotune log upgrade"):
        query.query_file(old)
    assert "\n" not in str(error.value)
    assert old.read_bytes() == before


_FAILS_LATE = """
from alembic import op
import sqlalchemy as sa
revision = "2"
down_revision = None

def upgrade():
    op.add_column("records", sa.Column("origin", sa.Text, server_default=""))
    op.drop_index("records_best", "records")
    op.drop_table("targets")
    op.execute("SELECT * FROM nothing_of_this_name")
"""


def test_a_migration_that_fails_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.db import migrations

    path = Path(shutil.copy(FIXTURES / "log_v1.db", tmp_path / "log.db"))
    before = contents(path)
    revisions = tmp_path / "revisions"
    revisions.mkdir()
    (revisions / "v2.py").write_text(_FAILS_LATE)
    monkeypatch.setattr(migrations, "FOLDER", revisions)
    with pytest.raises(LogError, match="nothing_of_this_name"):
        TuningLog(path)
    assert contents(path) == before
    monkeypatch.undo()
    with TuningLog(path) as log:
        assert len(log.query()) == 3


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [*connection.iterdump(), str(connection.execute("PRAGMA user_version").fetchone())]
    finally:
        connection.close()


def test_revisions_are_applied_in_order_and_up_to_the_wanted_one(tmp_path: Path) -> None:
    for number, before in ((2, "None"), (3, "'2'"), (4, "'3'")):
        (tmp_path / f"v{number}.py").write_text(
            f"revision = '{number}'\ndown_revision = {before}\n"
            "from alembic import op\n"
            "def upgrade():\n"
            f"    op.execute('CREATE TABLE t{number} AS SELECT * FROM t{number - 1}')\n"
        )
    engine = create_engine("sqlite://")
    event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t1 (a INTEGER)")
        schema.METADATA.create_all(connection)
        connection.execute(schema.SCHEMA.insert().values(version=1))
        schema.upgrade(connection, "log", current=3, revisions=tmp_path)
        assert {"t1", "t2", "t3"} <= set(inspect(connection).get_table_names())
        assert "t4" not in inspect(connection).get_table_names()
        assert schema.version_of(connection) == 3
    engine.dispose()


def test_an_old_postgresql_log_is_upgraded_too(new_database: NewDatabase) -> None:
    url = new_database()
    with TuningLog(url) as log:
        log.append([record()])
        with log.writing() as connection:
            for change in (
                "DROP INDEX records_best",
                "ALTER TABLE records DROP COLUMN origin, DROP COLUMN mark",
                "ALTER TABLE records DROP COLUMN conditions",
                "DROP TABLE rankings",
                "DROP TABLE profiles",
                "DROP TABLE latencies",
                "ALTER TABLE schema DROP COLUMN records, DROP COLUMN last",
                "ALTER TABLE tasks DROP COLUMN seal",
                "ALTER TABLE targets DROP COLUMN seal",
                "ALTER TABLE records DROP COLUMN seal",
                "CREATE INDEX records_best ON records (task_key, target_key, status, median_s)",
                "UPDATE schema SET version = 1",
            ):
                connection.exec_driver_sql(change)
    with pytest.raises(LogError, match="autotune log upgrade"):
        TuningLog(url, read_only=True)
    with TuningLog(url) as log:
        assert log.best(matmul().key, target()) is not None


_LOADS = """
import sys
from autotune.db.store import TuningLog
from tests.unit.db.samples import record
with TuningLog(sys.argv[1]) as log:
    log.append([record()])
print("alembic" in sys.modules)
"""


def test_alembic_is_loaded_for_old_logs_only(tmp_path: Path) -> None:
    old = shutil.copy(FIXTURES / "log_v1.db", tmp_path / "old.db")
    for path, loaded in ((tmp_path / "new.db", "False\n"), (old, "True\n")):
        done = subprocess.run(
            [sys.executable, "-c", _LOADS, str(path)], capture_output=True, text=True, check=True
        )
        assert done.stdout == loaded

"""PostgreSQL: several tuners at once, readers that make nothing, errors in one line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from autotune.db import engines, files
from autotune.db.rankings import KeptRanking, keep
from autotune.db.repair import check, repair
from autotune.db.store import TuningLog
from autotune.errors import LogError
from autotune.measure.types import Status
from tests.postgres import NewDatabase, execute
from tests.unit.db.samples import matmul, record, target

_TUNER = """
import sys
from autotune.db.store import TuningLog
from tests.unit.db.samples import matmul, record
number = int(sys.argv[2])
with TuningLog(sys.argv[1]) as log:
    for n in range(1, 21):
        shared, own = matmul(m=n), matmul(m=100 * number + n)
        log.append([record(own, times=(n * 1e-3,)), record(shared, times=(number * 1e-3,))])
"""

_END_THE_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def test_several_tuners_write_at_once_and_nothing_is_lost(new_database: NewDatabase) -> None:
    url = new_database()
    tuners = [
        subprocess.Popen([sys.executable, "-c", _TUNER, url, str(n)], stderr=subprocess.PIPE)
        for n in (1, 2, 3)
    ]
    for tuner in tuners:
        assert tuner.communicate()[1] == b""
        assert tuner.returncode == 0
    with TuningLog(url, read_only=True) as log:
        assert len(log.query(top=99)) == 3 * 20 * 2
        for n in range(1, 21):
            shared = log.records(matmul(m=n).key, target())
            assert sorted(r.result.median_s for r in shared) == [1e-3, 2e-3, 3e-3]


def test_the_tables_are_made_once_by_whoever_is_first(new_database: NewDatabase) -> None:
    url = new_database()
    together = threading.Barrier(4)

    def write(tile: int) -> None:
        with TuningLog(url) as log:
            together.wait()
            log.append([record(tile=tile)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 5)))
    with TuningLog(url, read_only=True) as log:
        assert len(log.records(matmul().key, target())) == 4


def test_a_reader_makes_no_tables(new_database: NewDatabase) -> None:
    url = new_database()
    with pytest.raises(LogError, match="does not exist"):
        TuningLog(url, read_only=True)
    with TuningLog(url, read_only=True, missing_ok=True) as reader:
        assert reader.query() == []
        with TuningLog(url) as writer:
            assert reader.best(matmul().key, target()) is None
            writer.append([record()])
        assert len(reader.query()) == 1
        with reader.reading() as connection:
            assert connection is not None
            assert set(inspect(connection).get_table_names()) == {
                "latencies", "profiles", "rankings", "records", "schema", "targets", "tasks",
            }  # fmt: skip


def test_a_foreign_database_is_refused_and_left_alone(new_database: NewDatabase) -> None:
    url = new_database()
    execute(url, "CREATE TABLE people (name TEXT)")
    with pytest.raises(LogError, match="not a tuning log"):
        TuningLog(url)


def test_a_newer_log_is_refused(new_database: NewDatabase) -> None:
    url = new_database()
    with TuningLog(url) as log:
        log.append([record()])
    execute(url, "UPDATE schema SET version = 99")
    with pytest.raises(LogError, match="newer release"):
        TuningLog(url)


def test_a_server_that_ended_the_connection_meanwhile_costs_no_record(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    monkeypatch.setattr(engines, "PAUSE_S", 0.0)
    with TuningLog(url) as log:
        log.append([record()])
        execute(url, _END_THE_OTHERS)
        log.append([record()])
        execute(url, _END_THE_OTHERS)
        log.append([record()])
        assert len(log.records(matmul().key, target())) == 3


def test_a_connection_that_ends_at_work_is_one_line_and_the_next_record_gets_a_new_one(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = new_database()
    monkeypatch.setattr(engines, "PAUSE_S", 1e9)
    with TuningLog(url) as log:
        log.append([record()])
        log.append([record()])
        execute(url, _END_THE_OTHERS)
        with pytest.raises(LogError, match="connection") as error:
            log.append([record()])
        assert "\n" not in str(error.value)
        log.append([record()])
        assert len(log.records(matmul().key, target())) == 3


def test_a_record_alone_is_committed_when_append_returns(new_database: NewDatabase) -> None:
    """Whatever it has and lacks: others see it as it was given."""
    url = new_database()
    lacking = record(status=Status.RUN_CRASH)
    many = dataclasses.replace(record(tile=2), seed=2**40)
    with TuningLog(url) as log, TuningLog(url, read_only=True, missing_ok=True) as reader:
        log.append([record()])
        for count, alone in enumerate((lacking, many, record()), 2):
            log.append([alone])
            found = reader.records(matmul().key, target())
            assert len(found) == count
            assert dataclasses.replace(found[-1], id=None) == alone


def test_a_batch_that_fails_half_way_leaves_nothing(new_database: NewDatabase) -> None:
    def fail(log: TuningLog) -> None:
        with log.writing() as connection:
            log.insert(connection, [record(tile=2), record(tile=3)])
            connection.exec_driver_sql("INSERT INTO records (task_key) VALUES (NULL)")

    with TuningLog(new_database()) as log:
        log.append([record()])
        with pytest.raises(LogError, match="null value"):
            fail(log)
        assert len(log.records(matmul().key, target())) == 1


def test_a_lone_statement_waits_for_no_transaction_and_no_new_plan(
    new_database: NewDatabase,
) -> None:
    url = new_database()
    with TuningLog(url) as log:
        for alone in (True, False, True):
            with log.writing(alone=alone) as connection:
                server: Any = connection.connection.driver_connection
                mode = connection.exec_driver_sql("SHOW plan_cache_mode").scalar()
                begun = server.info.transaction_status.name == "INTRANS"
                assert (server.autocommit, begun) == (alone, not alone)
            assert mode == "force_generic_plan"


def test_best_is_found_by_the_index(new_database: NewDatabase) -> None:
    with TuningLog(new_database()) as log:
        log.append([record(matmul(m=n % 50 + 1), times=(n * 1e-6,)) for n in range(1, 2001)])
        with log.writing() as connection:
            connection.exec_driver_sql("ANALYZE records")
            plan = connection.exec_driver_sql(
                "EXPLAIN SELECT id FROM records WHERE task_key = 'a' AND target_key = 'b' AND "
                "status = 'OK' AND mark = 0 ORDER BY median_s, id LIMIT 1"
            ).all()
    assert any("records_best" in row[0] for row in plan), plan
    assert not any("Sort" in row[0] for row in plan), plan


def test_a_server_that_is_not_there_is_one_line_without_the_password() -> None:
    with pytest.raises(LogError, match="check the address") as error:
        TuningLog("postgresql://me:secret@127.0.0.1:1/log")
    message = str(error.value)
    assert "\n" not in message
    assert "secret" not in message
    assert "postgresql://me:***@127.0.0.1:1/log" in message


def test_a_password_is_never_shown() -> None:
    for secret in ("a:b", "a/b", "a@b", "a%2Fb"):
        assert files.shown(f"postgresql://me:{secret}@host/db") == "postgresql://me:***@host/db"
    query = "postgresql://host/db?user=me&password={}&sslpassword={}&connect_timeout=3"
    assert files.shown(query.format("a", "b")) == query.format("***", "***")
    for plain in ("sqlite:////tmp/a:b@c.db", "/tmp/x?password=1", "postgresql://me@host:5432/db"):
        assert files.shown(plain) == plain
    assert files.shown("postgresql://me@host/db") == "postgresql://me@host/db"
    assert files.shown("logs/a:b@c.db") == "logs/a:b@c.db"


def test_what_a_server_does_not_take_is_saved_in_a_file(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = new_database()
    with TuningLog(url) as log:
        log.append([record(times=(1.0,))])
        execute(url, "DROP TABLE records")
        with pytest.raises(LogError, match="1 record that it did not take: saved in") as error:
            log.append([record(times=(2.0,))])
    assert "\n" not in str(error.value)
    with TuningLog("autotune.rescued.db", read_only=True) as saved:
        assert [r.result.median_s for r in saved.records(matmul().key, target())] == [2.0]


@pytest.mark.parametrize(
    ("statement", "kept", "named"),
    [
        ("UPDATE records SET median_s = 1e-9 WHERE id = 1", 2, ["records 1"]),
        ("UPDATE records SET schedule = '{{' WHERE id = 1", 2, ["records 1"]),
        ("UPDATE tasks SET json = '{}'", 0, ["tasks "] * 2),
        ("UPDATE rankings SET regret = 7", 3, ["rankings 1"]),
    ],
)
def test_damaged_rows_are_skipped_listed_and_moved_away(
    new_database: NewDatabase, statement: str, kept: int, named: list[str]
) -> None:
    url = new_database()
    with TuningLog(url) as log:
        log.append([record(times=(1e-3,)), record(times=(2e-3,)), record(matmul(m=9))])
        keep(log, [KeptRanking(
            task_key="t", target_key="x", model="m", round=1, samples=2,
            rank_correlation=0.5, top_recall=0.5, regret=0.0,
        )])  # fmt: skip
    execute(url, statement)
    with TuningLog(url, read_only=True) as log:
        best = log.best(matmul().key, target())
        assert (best and best.result.median_s) == {2: 2e-3, 0: None, 3: 1e-3}[kept]
    damage = check(url)[1]
    assert [str(row)[: len(n)] for row, n in zip(damage.rows(), named, strict=True)] == named
    done = repair(url)
    assert done is not None
    assert done.records == kept
    assert not len(check(url)[1])
    assert repair(url) is None

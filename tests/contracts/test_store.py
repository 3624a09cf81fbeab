"""What every log promises. Another one joins by a parameter of `open_store` and `fill`, or of
`fill` alone if it can only be read."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune.db.frozen import FrozenLog, freeze
from autotune.db.selection import ALL, Selection
from autotune.db.store import TuningLog
from autotune.db.types import LogStore, Mark, Record
from autotune.errors import LogError
from autotune.measure.types import Status
from tests.unit.db.samples import matmul, record, target

Open = Callable[[], LogStore]
Fill = Callable[[Sequence[Record]], LogStore]


@pytest.fixture(params=["path", "url", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same log again and again."""
    name = str(tmp_path / "log.db")
    if request.param == "url":
        name = f"sqlite:///{name}"
    elif request.param == "postgres":
        name = request.getfixturevalue("new_database")()
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(TuningLog(name))


@pytest.fixture(params=["path", "url", "postgres", "frozen"])
def fill(request: pytest.FixtureRequest, tmp_path: Path) -> Fill:
    """A store with these records, to read from."""

    def filled(records: Sequence[Record]) -> LogStore:
        name = str(tmp_path / "log.db")
        if request.param == "url":
            name = f"sqlite:///{name}"
        elif request.param == "postgres":
            name = request.getfixturevalue("new_database")()
        log = TuningLog(name)
        log.append(records)
        if request.param != "frozen":
            return log
        freeze(log, ALL, tmp_path / "log.json", "2026-03-01T00:00:00+00:00")
        log.close()
        return FrozenLog(tmp_path / "log.json")

    return filled


def plain(records: Sequence[Record]) -> list[Record]:
    """Records as they were given: without the number that the store adds."""
    return [dataclasses.replace(r, id=None) for r in records]


def test_a_record_comes_back_equal_after_reopening(open_store: Open) -> None:
    store = open_store()
    store.append([record()])
    store.close()
    assert plain(open_store().records(matmul().key, target())) == [record()]


def test_appending_adds_and_never_replaces(open_store: Open) -> None:
    store = open_store()
    store.append([record(times=(2e-3,))])
    store.append([record(times=(3e-3,)), record(times=(2e-3,))])
    medians = [r.result.median_s for r in store.records(matmul().key, target())]
    assert medians == [2e-3, 3e-3, 2e-3]
    store.close()


def test_best_is_the_smallest_median_of_this_task_and_target(fill: Fill) -> None:
    store = fill(
        [
            record(times=(5e-3, 1e-3, 5e-3), tile=1),
            record(times=(2e-3,), tile=2),
            record(times=(1e-4,), on=target(threads=2)),
            record(matmul(m=9), times=(1e-4,)),
        ]
    )
    best = store.best(matmul().key, target())
    assert best is not None
    assert best.config["tile"] == 2
    store.close()


def test_top_is_in_order_and_no_longer_than_asked(open_store: Open) -> None:
    store = open_store()
    store.append([record(times=(t,)) for t in (3e-3, 1e-3, 2e-3)])
    top = store.top(matmul().key, target(), 2)
    assert [r.result.median_s for r in top] == [1e-3, 2e-3]
    store.close()


def test_failures_are_kept_and_never_best(open_store: Open) -> None:
    store = open_store()
    failures = [record(status=s) for s in Status if s is not Status.OK]
    store.append(failures)
    assert plain(store.records(matmul().key, target())) == failures
    assert store.best(matmul().key, target()) is None
    store.close()


def test_an_unknown_task_has_nothing(fill: Fill) -> None:
    store = fill([])
    assert store.best("matmul-0", target()) is None
    assert list(store.records("matmul-0", target())) == []
    assert list(store.nearest(matmul(), target(), 3)) == []
    assert store.query() == []
    store.close()


def test_a_record_without_a_time_stamp_gets_one(open_store: Open) -> None:
    store = open_store()
    store.append([dataclasses.replace(record(), created="")])
    assert store.records(matmul().key, target())[0].created.endswith("+00:00")
    store.close()


def test_nearest_prefers_similar_shapes_of_the_same_op_and_family(fill: Fill) -> None:
    store = fill(
        [
            record(matmul(m=64), times=(1e-3,), tile=1),
            record(matmul(m=64), times=(5e-4,), tile=2),
            record(matmul(m=16), times=(1e-3,), tile=3),
            record(matmul(m=8, op="add"), tile=4),
            record(matmul(m=8), on=target(vector_bytes=32), tile=5),
            record(matmul(m=8), status=Status.RUN_CRASH, tile=6),
        ]
    )
    found = store.nearest(matmul(m=8), target(cpu="skylake"), 5)
    assert [r.config["tile"] for r in found] == [3, 2]
    several = store.nearest(matmul(m=8), target(cpu="skylake"), 1, each=2)
    assert [r.config["tile"] for r in several] == [3]
    store.close()


def test_query_gives_the_best_of_every_task_slowest_first(fill: Fill) -> None:
    store = fill(
        [record(times=(1e-3,)), record(times=(2e-3,)), record(matmul(m=9), times=(4e-3,))]
    )
    found = store.query()
    assert [(r["task_key"], r["median_s"]) for r in found] == [
        (matmul(m=9).key, 4e-3),
        (matmul().key, 1e-3),
    ]
    store.close()


def test_query_filters_by_task_op_and_target(fill: Fill) -> None:
    store = fill([record(), record(matmul(m=9)), record(matmul(op="add")), record(on=target(2))])
    assert {r["op"] for r in store.query(Selection(op="add"))} == {"add"}
    assert {r["task_key"] for r in store.query(Selection(task_keys=[matmul(m=9).key]))} == {
        matmul(m=9).key
    }
    assert store.query(Selection(task_keys=[])) == []
    assert {r["target"] for r in store.query(Selection(target=target(2).key))} == {target(2).key}
    assert (
        len(store.query(Selection(target="cpu")))
        == len(store.query(Selection(target=target().family)))
        == 4
    )
    assert store.query(Selection(target="gpu")) == []
    store.close()


def test_query_filters_by_accuracy_and_precision(fill: Fill) -> None:
    strict, narrow = target().with_accuracy("strict"), target().with_precision("bf16")
    store = fill([record(), record(on=strict), record(on=narrow)])

    def found(**filters: Any) -> set[str]:
        return {r["target"] for r in store.query(Selection(**filters))}

    assert found(accuracy="strict") == {strict.key}
    assert found(accuracy="normal") == {target().key, narrow.key}
    assert found(precision="bfloat16") == {narrow.key}
    assert found(precision="bfloat16", accuracy="strict") == set()
    assert found(precision="float32", target=strict.key) == {strict.key}
    store.close()


def test_query_filters_by_shape_device_and_date(fill: Fill) -> None:
    later = dataclasses.replace(record(matmul(m=9)), created="2026-02-01T00:00:00+00:00")
    other = dataclasses.replace(record().result, device="board-8")
    elsewhere = dataclasses.replace(record(matmul(m=10)), result=other)
    store = fill([record(), later, elsewhere])

    def found(**filters: Any) -> set[str]:
        return {r["task_key"] for r in store.query(Selection(**filters))}

    every = {matmul().key, matmul(m=9).key, matmul(m=10).key}
    assert found(shape=(9, 16)) == {matmul(m=9).key}
    assert found(shape=(None, 16)) == found(shape=(16, 32)) == every
    assert found(shape=(9, 16), op="add") == found(shape=(9,)) == set()
    assert found(device="board-8") == {matmul(m=10).key}
    assert found(since="2026-01-15T00:00:00+00:00") == {matmul(m=9).key}
    assert found(until="2026-01-15T00:00:00+00:00") == every - {matmul(m=9).key}
    store.close()


def test_history_is_every_record_that_was_the_best_when_it_was_measured(open_store: Open) -> None:
    store = open_store()
    times = (5e-3, 3e-3, 4e-3, 3e-3, 1e-3)
    store.append([record(times=(t,)) for t in times])
    store.append([record(matmul(m=9), times=(2e-3,)), record(status=Status.RUN_CRASH)])
    assert [r["median_s"] for r in store.query(history=True)] == [2e-3, 5e-3, 3e-3, 1e-3]
    store.close()


def test_imported_records_never_win_and_are_not_what_was_measured_here(open_store: Open) -> None:
    store = open_store()
    imported = dataclasses.replace(
        record(times=(1e-6,), tile=2), mark=Mark.IMPORTED, origin="other.db"
    )
    store.append([imported, record(times=(1e-3,), tile=4)])
    best = store.best(matmul().key, target())
    assert best is not None
    assert best.config["tile"] == 4
    assert len(store.records(matmul().key, target())) == 1
    assert [r["median_s"] for r in store.query(top=9)] == [1e-3]
    assert len(store.query(history=True)) == 1
    assert [r.config["tile"] for r in store.nearest(matmul(), target(), 9)] == [4]
    seeds = store.nearest(matmul(), target(), 9, imported=True)
    assert [(r.config["tile"], r.origin) for r in seeds] == [(4, ""), (2, "other.db")]
    store.close()


def test_query_gives_as_many_as_asked_of_each(open_store: Open) -> None:
    store = open_store()
    store.append([record(times=(t,)) for t in (3e-3, 1e-3, 2e-3)])
    assert [r["median_s"] for r in store.query(top=2)] == [1e-3, 2e-3]
    store.close()


def test_readers_see_every_committed_batch_while_a_writer_works(open_store: Open) -> None:
    writer = open_store()
    writer.append([record()])
    seen: list[list[int]] = []

    def read() -> None:
        reader = open_store()
        counts = [len(reader.records(matmul().key, target())) for _ in range(20)]
        reader.close()
        seen.append(counts)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        writer.append([record(), record()])
    for thread in threads:
        thread.join()
    assert len(seen) == 3
    assert all(counts == sorted(counts) and counts[0] >= 1 for counts in seen)
    assert all(n % 2 == 1 for counts in seen for n in counts), "half a batch was seen"
    assert len(writer.records(matmul().key, target())) == 21
    writer.close()


_WRITER = """
import sys
from autotune.db.store import TuningLog
from tests.unit.db.samples import record
log = TuningLog(sys.argv[1])
size = int(sys.argv[2])
log.claim()
print("open", flush=True)
while True:
    log.append([record() for _ in range(size)])
    print("batch", flush=True)
"""


def start_writer(path: Path, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(path), str(size)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    return writer


def test_a_second_writer_is_told_who_holds_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    writer = start_writer(path, 1)
    try:
        with (
            TuningLog(path) as log,
            pytest.raises(LogError, match=f"pid {writer.pid} on .* since"),
        ):
            log.append([record()])
    finally:
        writer.kill()
        writer.communicate()


def test_a_killed_writer_loses_at_most_the_batch_in_flight(tmp_path: Path) -> None:
    path, size = tmp_path / "log.db", 7
    for _ in range(3):
        before = len(TuningLog(path).records(matmul().key, target()))
        writer = start_writer(path, size)
        assert writer.stdout is not None
        for _ in range(4):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = 4 + writer.communicate()[0].count("batch")
        with TuningLog(path) as log:
            kept = len(log.records(matmul().key, target())) - before
            log.append([])
        assert kept % size == 0
        assert acknowledged <= kept // size <= acknowledged + 1


def test_a_repeated_measurement_counts_instead_of_the_earlier_ones(open_store: Open) -> None:
    store = open_store()
    store.append([record(times=(1e-3,)), record(times=(9e-4,)), record(tile=8, times=(2e-3,))])
    store.repeat([record(times=(3e-3,))])
    found = store.records(matmul().key, target())
    assert sorted(r.result.median_s for r in found) == [2e-3, 3e-3]
    best = store.best(matmul().key, target())
    assert best is not None
    assert best.result.median_s == 2e-3

"""A tuning log with millions of records: how fast it answers and grows, and what kills do to it.

In: a log to fill, a file or the URL of an empty PostgreSQL database. Out: figures of the best
query, of appending, and of writers killed at random moments; status 1 if one of them lost or broke
anything.

Usage: python benchmarks/log_scale.py [LOG] [--records 10000000] [--kills 100] [--appending 3]
Without LOG, a temporary file. A log that is long enough already is not filled again.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import random
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from autotune.db import codec, files
from autotune.db.schema import RECORDS
from autotune.db.store import TuningLog, utc_now
from autotune.db.types import Record
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.measure.types import MeasureResult, Status
from autotune.target import Target, load_target
from autotune.types import Task, TensorType
from search_spaces.rules import rule_for

TASKS = 1000
TARGETS = 4
FAILURES = 0.1
KILLED_AFTER_S = 0.25
"""A writer's longest life: opening the log and some dozens of appends."""


def samples() -> list[Record]:
    """A record of every task of a real network, with the schedule that its rule gives."""
    target = load_target("cpu")
    found = []
    for task in partition(optimize(load_model("zoo:resnet18"))).weights():
        rule = rule_for(task, target)
        config = rule.default(task, target)
        result = MeasureResult(status=Status.OK, times_s=(1e-3,) * 8, device="synthetic")
        found.append(
            Record(
                task=task,
                target=target,
                rule=rule.name,
                config=config,
                schedule=rule.schedule(task, target, config),
                result=result,
                flops=10**8,
                model="synthetic",
                versions=(("autotune", "0.1.0"), ("features", "1")),
            )
        )
    return found


def relative(record: Record, number: int) -> Record:
    """The record for a task of another shape: its constants grow, so that its key is a new one."""
    values = tuple(
        dataclasses.replace(
            v, type=TensorType(dtype=v.type.dtype, shape=(*v.type.shape[:-1], number + 1))
        )
        if v.role == "constant"
        else v
        for v in record.task.values
    )
    return dataclasses.replace(record, task=dataclasses.replace(record.task, values=values))


def population(seed: int) -> list[Record]:
    """`TASKS` tasks on `TARGETS` targets each, one record of each pair."""
    having = [r for r in samples() if any(v.role == "constant" for v in r.task.values)]
    tasks = [relative(having[n % len(having)], n) for n in range(TASKS)]
    targets = [_on(load_target("cpu"), n) for n in range(TARGETS)]
    records = [dataclasses.replace(r, target=t) for r in tasks for t in targets]
    random.Random(seed).shuffle(records)
    return records


def _on(target: Target, number: int) -> Target:
    return dataclasses.replace(target, threads=1 + number % 2, cpu=f"cpu{number // 2}")


def rows(records: Sequence[Record], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """`count` rows of records, of all pairs in turn, with times of their own."""
    draw = random.Random(seed)
    plain = [codec.record_row(r, utc_now()) for r in records]
    for number, row in enumerate(itertools.islice(itertools.cycle(plain), count)):
        times = [draw.lognormvariate(-7, 1) for _ in range(8)]
        failed = draw.random() < FAILURES
        yield {
            **row,
            "times": "[]" if failed else codec.to_text(times),
            "median_s": None if failed else statistics.median(times),
            "status": "RUN_CRASH" if failed else "OK",
            "seed": number,
        }


def fill(log: TuningLog, records: Sequence[Record], count: int, seed: int) -> None:
    """Add rows until there are `count`, without the index, which is made anew at the end."""
    log.append(records)
    with log.writing() as connection:
        there = connection.execute(select(func.count()).select_from(RECORDS)).scalar() or 0
        missing = rows(records, max(0, count - there), seed)
        index = next(iter(RECORDS.indexes))
        index.drop(connection)
        if connection.dialect.name == "postgresql":
            _copy(connection.connection, missing)
        else:
            names = [c.name for c in RECORDS.columns if c.name not in ("id", "origin", "mark")]
            places = ", ".join(f":{n}" for n in names)
            statement = f"INSERT INTO records ({', '.join(names)}) VALUES ({places})"
            cursor = connection.connection.cursor()
            cursor.executemany(statement, missing)
            cursor.close()
        index.create(connection)


def _copy(connection: Any, missing: Iterator[dict[str, Any]]) -> None:
    names = [c.name for c in RECORDS.columns if c.name not in ("id", "origin", "mark")]
    with connection.cursor().copy(f"COPY records ({', '.join(names)}) FROM STDIN") as copy:
        for row in missing:
            copy.write_row([row[n] for n in names])


def best_times(log: TuningLog, pairs: Sequence[tuple[Task, Target]]) -> list[float]:
    """Seconds of each `best`: from the call to the Record."""
    times = []
    for task, target in pairs:
        key = task.key
        start = time.perf_counter()
        found = log.best(key, target)
        times.append(time.perf_counter() - start)
        assert found is not None
    return sorted(times)


def append_rate(log: TuningLog, record: Record, batch: int, budget_s: float) -> float:
    """Records a second, `batch` a transaction."""
    records, count, start = [record] * batch, 0, time.perf_counter()
    while time.perf_counter() - start < budget_s:
        log.append(records)
        count += batch
    return count / (time.perf_counter() - start)


# ------------------------------------------------------------------------------------------- kills


def write_until_killed(log: str, record: Record, acknowledge: int) -> None:
    """Append one record after another; a byte for each that is committed."""
    with TuningLog(log) as store:
        while True:
            store.append([record])
            os.write(acknowledge, b".")


def kill_once(log: str, record: Record, after_s: float) -> int:
    """Records that a writer had acknowledged when it was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            write_until_killed(log, record, write)
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    acknowledged = 0
    while chunk := os.read(read, 1 << 16):
        acknowledged += len(chunk)
    os.close(read)
    if not os.WIFSIGNALED(status):
        raise SystemExit("a writer ended by itself: see its error above")
    return acknowledged


def kills(log: str, record: Record, count: int, draw: random.Random) -> list[str]:
    """What went wrong when `count` writers were killed, one after another."""
    wrong = []
    acknowledged = 0
    before = _count(log, record)
    for number in range(1, count + 1):
        acknowledged += kill_once(log, record, draw.uniform(0, KILLED_AFTER_S))
        kept = _count(log, record) - before
        if not acknowledged <= kept <= acknowledged + number:
            wrong.append(f"kill {number}: {acknowledged} acknowledged, {kept} kept")
    print(f"{count} writers killed, {acknowledged} records acknowledged", end=", ")
    if not files.is_url(log):
        wrong += [f"integrity: {text}" for text in _damage(Path(log))]
    print("; ".join(wrong) or "all of them kept, nothing damaged")
    return wrong


def _count(log: str, record: Record) -> int:
    where = RECORDS.c.task_key == record.task.key
    with TuningLog(log, read_only=True) as store, store.reading() as connection:
        assert connection is not None
        statement = select(func.count()).select_from(RECORDS).where(where)
        return int(connection.execute(statement).scalar_one())


def _damage(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()
    return [text for text in found if text != "ok"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", nargs="?", help="file or URL; without one, a temporary file")
    parser.add_argument("--records", type=int, default=10**6)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--appending", type=float, default=3.0, help="seconds of appending")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.log = options.log or str(Path(folder) / "log.db")
        try:
            wrong = run(options)
        except AutotuneError as error:
            raise SystemExit(f"error: {error}") from None
    if wrong:
        sys.exit(1)


def run(options: argparse.Namespace) -> list[str]:
    """Every part in turn; what went wrong."""
    draw = random.Random(options.seed)
    records = population(options.seed)
    with TuningLog(options.log) as log:
        start = time.perf_counter()
        fill(log, records, options.records, options.seed)
        print(f"{options.records:,} records in {time.perf_counter() - start:.1f} s")
    with TuningLog(options.log) as log:
        pairs = [(r.task, r.target) for r in draw.choices(records, k=options.queries)]
        first, again = best_times(log, pairs), best_times(log, pairs)
        for name, times in (("first", first), ("again", again)):
            median, late = statistics.median(times), times[int(0.99 * len(times))]
            print(f"best, {name}: median {median * 1e3:.3f} ms, p99 {late * 1e3:.3f} ms")
        for batch in (1, 16, 128):
            rate = append_rate(log, records[0], batch, options.appending / 3)
            print(f"appended, {batch} a transaction: {rate:,.0f} records/s")
    alone = dataclasses.replace(relative(records[0], TASKS + 1), model="killed")
    with TuningLog(options.log) as log:
        log.append([alone])
    return kills(options.log, alone, options.kills, draw)


if __name__ == "__main__":
    main()

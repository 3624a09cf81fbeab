"""A tuning log with millions of records: how fast it answers and grows, and what kills do to it.

In: a log to fill, a file or the URL of an empty PostgreSQL database, or nothing: a temporary file,
or with --postgres a temporary server. Out: figures of appending to it while it is new, of the best
query and of appending when it is filled, and of writers (and such a server) killed at random
moments; status 1 if one of them lost or broke anything.

Usage: python benchmarks/logs/log_scale.py [LOG | --postgres] [--records 10000000] [--kills 100]
A log that is long enough already is not filled again. 10 million records take 25 GB.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sqlalchemy import (
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    select,
    text,
)

import cost_model
from autotune.db import codec, files
from autotune.db.schema import RECORDS
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.placement.partition import partition
from autotune.target import Target, load_target
from autotune.types import Task, TensorType
from search_spaces.rules import rule_for

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.logs.log_kills import Killing, Server, damage  # noqa: E402

TASKS = 1000
TARGETS = 4
FAILURES = 0.1
CHUNK = 100_000
DRAWN = Table(
    "drawn",
    MetaData(),
    Column("number", Integer, primary_key=True),
    Column("times", Text, nullable=False),
    Column("median_s", Float),
    Column("status", Text, nullable=False),
)


def samples() -> list[Record]:
    """A record of every task of a real network, with the schedule that its rule gives."""
    target = load_target("cpu")
    found = []
    for task in partition(optimize(load_model("zoo:resnet18"))).weights():
        rule = rule_for(task, target)
        config = cost_model.default(task, Machine.of(target), rule)
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


def length(log: TuningLog) -> int:
    with log.writing() as connection:
        return int(connection.execute(select(func.count()).select_from(RECORDS)).scalar_one())


def fill(log: TuningLog, records: Sequence[Record], count: int, seed: int) -> None:
    """Append the records, then let the database copy them with other times until there are
    `count`: `CHUNK` a transaction, without the index, which is made anew at the end."""
    index, there = next(iter(RECORDS.indexes)), length(log)
    if there < count:
        with log.writing() as connection:
            index.drop(connection, checkfirst=True)
        log.append(records)
        with log.writing() as connection:
            _draw(connection, seed)
            last = int(connection.execute(select(func.max(RECORDS.c.id))).scalar_one())
        _copy(log, last + 1 - len(records), len(records), count - there - len(records))
    with log.writing() as connection:
        index.create(connection, checkfirst=True)
        DRAWN.drop(connection, checkfirst=True)


def _draw(connection: Connection, seed: int) -> None:
    """Times to copy records with."""
    draw = np.random.default_rng(seed)
    times = draw.lognormal(-7, 1, (CHUNK, 8))
    failed = draw.random(CHUNK) < FAILURES
    rows = [
        {"number": n, "times": "[]", "median_s": None, "status": "RUN_CRASH"}
        if failed[n]
        else {
            "number": n,
            "times": codec.to_text(own.tolist()),
            "median_s": float(np.median(own)),
            "status": "OK",
        }
        for n, own in enumerate(times)
    ]
    DRAWN.drop(connection, checkfirst=True)
    DRAWN.create(connection)
    connection.execute(DRAWN.insert(), rows)


def _copy(log: TuningLog, first: int, records: int, count: int) -> None:
    """`count` copies of the records from number `first` on. Every chunk pairs records and times
    anew, so that none is there twice."""
    drawn = [c.name for c in DRAWN.columns if c.name != "number"]
    # Without a seal: a database cannot compute it for other times.
    same = [c.name for c in RECORDS.columns if c.name not in ("id", "seal", *drawn)]
    statement = text(
        f"INSERT INTO records ({', '.join(same + drawn)}) "
        f"SELECT {', '.join([f'r.{n}' for n in same] + [f'd.{n}' for n in drawn])} "
        "FROM drawn d JOIN records r ON r.id = :first + (d.number + :chunk) % :records "
        "WHERE d.number < :size"
    )
    for chunk, start in enumerate(range(0, count, CHUNK)):
        size = min(CHUNK, count - start)
        given = {"first": first, "records": records, "chunk": chunk, "size": size}
        with log.writing() as connection:
            connection.execute(statement, given)


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


def measure(options: argparse.Namespace, log_name: str) -> Record:
    """Fill the log, query it, append to it; a record for those who are to be killed."""
    draw = random.Random(options.seed)
    records = population(options.seed)
    with TuningLog(log_name) as log:
        if not length(log):
            rate = append_rate(log, records[0], 1, options.appending / 3)
            print(f"appended to a new log, 1 a transaction: {rate:,.0f} records/s", flush=True)
        start = time.perf_counter()
        fill(log, records, options.records, options.seed)
        print(f"{options.records:,} records in {time.perf_counter() - start:.1f} s", flush=True)
    with TuningLog(log_name) as log:
        pairs = [(r.task, r.target) for r in draw.choices(records, k=options.queries)]
        first, again = best_times(log, pairs), best_times(log, pairs)
        for name, times in (("first", first), ("again", again)):
            median, late = statistics.median(times), times[int(0.99 * len(times))]
            print(f"best, {name}: median {median * 1e3:.3f} ms, p99 {late * 1e3:.3f} ms")
        for batch in (1, 16, 128):
            rate = append_rate(log, records[0], batch, options.appending / 3)
            print(f"appended, {batch} a transaction: {rate:,.0f} records/s", flush=True)
        alone = dataclasses.replace(relative(records[0], TASKS + 1), model="killed")
        log.append([alone])
    return alone


def on_log(options: argparse.Namespace, log: str) -> list[str]:
    """Every part in turn on a log of somebody's; what went wrong."""
    killing = Killing(log, measure(options, log), random.Random(options.seed))
    killing.writers(options.kills)
    wrong = killing.wrong
    return wrong if files.is_url(log) else wrong + damage(log)


def on_server(options: argparse.Namespace, folder: Path) -> list[str]:
    """The same on a server of our own, which is killed too."""
    server = Server(folder, "-c", "max_wal_size=4GB")
    try:
        killing = Killing(server.url, measure(options, server.url), random.Random(options.seed))
        killing.writers(options.kills)
        killing.servers(options.server_kills, server)
        return killing.wrong + damage(server.url)
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", nargs="?", help="file or URL; without one, a temporary file")
    parser.add_argument(
        "--postgres", action="store_true", help="a temporary PostgreSQL server instead"
    )
    parser.add_argument("--records", type=int, default=10**6)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--appending", type=float, default=3.0, help="seconds of appending")
    parser.add_argument("--kills", type=int, default=20, help="of writers")
    parser.add_argument("--server-kills", type=int, default=3, help="with --postgres")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.log and options.postgres:
        parser.error("either a log or --postgres")
    with tempfile.TemporaryDirectory() as folder:
        try:
            wrong = (
                on_server(options, Path(folder))
                if options.postgres
                else on_log(options, options.log or str(Path(folder) / "log.db"))
            )
        except AutotuneError as error:
            raise SystemExit(f"error: {error}") from None
    print("; ".join(wrong) or "nothing lost, nothing damaged")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()

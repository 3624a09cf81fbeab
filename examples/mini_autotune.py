"""The whole idea on one page: a matrix product, five schedules, a prior, a log, the best of them.

    python examples/mini_autotune.py [LOG]

Everything here is a part of the project, used as the project uses it; what the project adds is
more of each: operators, schedules, priors that are learnt, boards, and a search over 10^5
schedules where this page has five. In: nothing. Out: a table, and a tuning log to compile with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import autotune
from autotune.db.types import Record
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest
from autotune.placement.partition import partition
from autotune.program.text import print_program
from autotune.schedule import Schedule, apply_schedule
from autotune.schedule.loops.nest import Reorder, Split, Unroll, Vectorize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.types import Task, TensorType
from search_spaces.params import Config

M, K, N = 192, 256, 128


def product() -> Graph:
    """y[m, n] = sum over k of x[m, k] w[k, n]: a model of one operator with constant weights."""
    builder = GraphBuilder("product")
    x = builder.input("x", TensorType(dtype="float32", shape=(M, K)))
    w = builder.constant(np.random.default_rng(0).standard_normal((K, N), np.float32))
    return builder.finish([("y", builder.op("matmul", x, w))])


def schedule(config: Config, target: Target) -> Schedule:
    """A register tile of `rows` x `vectors`; its sums stay in registers for all of k."""
    rows, vectors = config.number("rows"), config.number("vectors")
    if not rows:
        return ()  # the loops as the expression says them: m, n, k
    return (
        Split(loop="o0_m", factor=rows, outer="tile", inner="row"),
        Split(loop="o0_n", factor=vectors * target.lanes(), outer="panel", inner="column"),
        Split(loop="column", factor=target.lanes(), outer="vector", inner="lane"),
        Reorder(loops=("panel", "tile", "row", "vector", "lane")),
        CacheWrite(buffer="o0", loops=("row", "vector", "lane")),
        Vectorize(loops=("lane", "lane_init", "lane_out")),
        Unroll(loops=("row", "row_init", "row_out", "vector", "vector_init", "vector_out")),
    )


def prior_cycles(config: Config, target: Target) -> float:
    """What the product should take, before anything is built: the slowest of what a core does at
    once, over the tile's iterations. A core has two units for multiply-adds and two for loads."""
    rows, vectors = config.number("rows"), config.number("vectors")
    if not rows:
        return 4.0 * M * K * N  # one chain of additions, of four cycles each
    arithmetic = rows * vectors / 2
    waiting = 4.0  # each sum waits for its last addition
    loads = (rows + vectors) / 2
    live = rows * vectors + vectors + 1  # registers: the sums, a row of weights, one value of x
    spilled = max(0, live - target.vector_registers)
    iterations = M / rows * (N / (vectors * target.lanes())) * K
    return iterations * (max(arithmetic, waiting, loads) + 2 * spilled)


def measured(task: Task, target: Target, configs: list[Config]) -> list[Record]:
    """Every candidate built, checked against a reference and timed in a process of its own."""
    schedules = [schedule(config, target) for config in configs]
    requests = [MeasureRequest(task=task, schedule=s, target=target) for s in schedules]
    with LocalRunner(target) as runner:
        results = runner.measure(tuple(requests))
    return [
        Record(task=task, target=target, rule="mini", config=c, schedule=s, result=result)
        for c, s, result in zip(configs, schedules, results, strict=True)
    ]


def main(log: Path) -> None:
    graph, target = product(), host_target()
    (call,) = partition(graph).calls
    print(print_program(build_program(call.task)))

    space = [(0, 0), (1, 1), (4, 2), (6, 2), (12, 4)]
    configs = [Config((("rows", rows), ("vectors", vectors))) for rows, vectors in space]
    configs.sort(key=lambda config: prior_cycles(config, target))
    with autotune.TuningLog(log) as store:
        store.append(measured(call.task, target, configs))
        print("rows  vectors  prior, cycles  measured, us  GFLOP/s  status")
        for record in store.records(call.task.key, target):
            rows, vectors = record.config.number("rows"), record.config.number("vectors")
            cycles, seconds = prior_cycles(record.config, target), record.result.median_s
            gflops = 2e-9 * M * K * N / seconds
            line = f"{rows:4}  {vectors:7}  {cycles:13.0f}  {1e6 * seconds:12.1f}  {gflops:7.1f}"
            print(f"{line}  {record.result.status}")
        best = store.best(call.task.key, target)
        assert best is not None, "no candidate was right"
        print(print_program(apply_schedule(build_program(call.task), best.schedule)))

        x = np.random.default_rng(1).standard_normal((M, K), np.float32)
        with autotune.compile(graph, log=store) as model:  # takes the best of the log
            y = model.run({"x": x})["y"]
    (w,) = graph.constants.values()
    print(f"compiled with the best; largest error {np.abs(y - x @ w).max():.1e}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/tuning.db"))

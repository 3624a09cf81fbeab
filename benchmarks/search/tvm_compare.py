"""Against TVM MetaSchedule: our best after few trials, its best after many, one core, in turns.

In: nothing. Out: a table: per operator the seconds of both, and the trials a second of both. TVM
lives in an environment of its own, which the first run makes in `build/tvm`: it is no dependency.
Both build, search and measure on the same core; both final times are the fastest of many repeats
with warm caches, ours before and after TVM's minutes, since clocks drift. Our convolutions read an
input that another kernel padded; so do TVM's.

Usage: python benchmarks/search/tvm_compare.py [OP ...] [--trials 16] [--tvm-trials 256] [--core N]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.graph.ir import Graph
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, Timing
from autotune.placement.types import KernelCall, Partition
from autotune.target import load_target
from autotune.tuner.budget import Limits
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.types import Task
from benchmarks.search import search_tasks

HERE = Path(__file__).parent
TVM = (
    "apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "psutil", "cloudpickle", "xgboost",
)  # fmt: skip
"""A newer ffi crashes."""
OURS = Timing(min_repeats=20, max_repeats=60, budget_s=0.6)
SIZES: dict[str, tuple[str, dict[str, int]]] = {
    "conv3x3_28x64": (
        "conv2d", {"side": 28, "channels": 64, "outputs": 64, "kernel": 3, "stride": 1},
    ),
    "conv1x1_28x128": (
        "conv2d", {"side": 28, "channels": 128, "outputs": 128, "kernel": 1, "stride": 1},
    ),
    "depthwise_28x96": ("depthwise", {"side": 28, "channels": 96, "kernel": 3}),
    "strided_28x64": (
        "conv2d", {"side": 28, "channels": 64, "outputs": 96, "kernel": 3, "stride": 2},
    ),
    "matmul_256": ("matmul", {"m": 256, "k": 256, "n": 256}),
    "batched_4x128": ("batched", {"batch": 4, "m": 128, "k": 64, "n": 128}),
    "max_pool_56x64": ("max_pool", {"side": 56, "channels": 64}),
    "softmax_512x384": ("softmax", {"rows": 512, "width": 384}),
}  # fmt: skip
"""Task of search_tasks -> TVM's operator and its sizes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    best_s: float
    trials: int
    elapsed_s: float

    @property
    def rate(self) -> float:
        """Trials a second."""
        return self.trials / self.elapsed_s


def tvm_python() -> Path:
    """The interpreter of TVM's environment, which is made if it is missing."""
    folder = HERE.parents[1] / "build" / "tvm"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *TVM], check=True)
        (folder / "ready").touch()
    return python


def theirs(python: Path, name: str, trials: int, core: int, seed: int) -> Outcome:
    op, sizes = SIZES[name]
    wanted = {
        "op": op, "sizes": sizes, "trials": trials, "cpu": load_target("cpu").cpu, "seed": seed,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, HERE / "tvm_side.py", json.dumps(wanted)],
            cwd=folder,
            env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise SystemExit(f"TVM failed on {name}:\n{done.stdout[-2000:]}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def ours(task: Task, runner: LocalRunner, trials: int, seed: int) -> tuple[Record, float]:
    """(best record of a search without a log, trials a second)"""
    target = runner.target
    runner.profile()  # measured once per machine, not per operator
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(trials=trials, min_gain=0.0, near=0.0)  # all of them
        options = TuneOptions(target=target, limits=limits, seed=seed, batch=8)
        with TuningLog(Path(folder) / "log.db") as log:
            start = time.perf_counter()
            report = tune_partition(alone(task), runner, log, options)
            elapsed_s = time.perf_counter() - start
            best = log.best(task.key, target)
    if best is None:
        raise SystemExit(f"no candidate of {task.key} worked")
    return best, report.measured / elapsed_s


def least_s(best: Record, task: Task, runner: LocalRunner) -> float:
    """Seconds of the fastest repeat."""
    request = MeasureRequest(
        task=task, schedule=best.schedule, target=runner.target, timing=OURS
    )  # fmt: skip
    (result,) = runner.measure((request,))
    return min(result.times_s)


def alone(task: Task) -> Partition:
    """A model of one kernel."""
    graph = Graph(name="alone", inputs=(), outputs=(), nodes=(), constants={}, types={})
    call = KernelCall(task=task, args=(), name=task.op)
    return Partition(graph=graph, calls=(call,), placements={}, storages={})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--tvm-trials", type=int, default=256)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.ops) - set(SIZES):
        raise SystemExit(f"no such operator: {', '.join(sorted(unknown))}; --help lists them")
    python = tvm_python()
    os.sched_setaffinity(0, {options.core})
    tasks = search_tasks.tasks()
    print(f"{'':16} {'ours ms':>9} {'TVM ms':>9} {'faster':>7} {'trials/s':>9} {'TVM':>6}")
    won = 0
    names = options.ops or list(SIZES)
    with LocalRunner(load_target("cpu"), cores=(options.core,)) as runner:
        for name in names:
            best, rate = ours(tasks[name], runner, options.trials, options.seed)
            before_s = least_s(best, tasks[name], runner)
            other = theirs(python, name, options.tvm_trials, options.core, options.seed)
            mine_s = min(before_s, least_s(best, tasks[name], runner))
            won += mine_s <= other.best_s
            print(
                f"{name:16} {mine_s * 1e3:9.4f} {other.best_s * 1e3:9.4f} "
                f"{other.best_s / mine_s:6.2f}x {rate:9.2f} {other.rate:6.2f}",
                flush=True,
            )
    print(
        f"{won} of {len(names)} at least as fast after {options.trials} trials as TVM after "
        f"{options.tvm_trials}"
    )


if __name__ == "__main__":
    sys.exit(main())

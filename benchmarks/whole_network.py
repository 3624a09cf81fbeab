"""How good a short tuning of whole networks is.

In: models, the time of a short and of a long tuning. Out: per model what the short one took and
reached, how far that is from what the long one reached, and how well the log's task times predict
the latency. Logs are temporary files; both compiled models are timed in turns.

Usage: python benchmarks/whole_network.py zoo:resnet18 zoo:mobilenetv2 [--short 180] [--long 600]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import autotune
from autotune.errors import AutotuneError
from autotune.settings import load_settings
from autotune.tuner.report import TuneReport

TURNS = 5
RUNS = 20
THOROUGH = 1e-5
"""Expected gain below which the long tuning ends."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or .onnx files")
    parser.add_argument("--short", type=float, default=180.0, help="seconds at most")
    parser.add_argument("--long", type=float, default=600.0, help="seconds more for comparison")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("model  untuned ms  short ms  long ms  short/long  trials  seconds  tasks/latency")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            print(line(model, Path(folder), options), flush=True)


def line(model: str, folder: Path, options: argparse.Namespace) -> str:
    """A row of the table."""
    short_log, long_log = folder / "short.db", folder / "long.db"
    short = tune(model, short_log, options, options.short, load_settings().min_gain)
    shutil.copy(short_log, long_log)
    tune(model, long_log, options, options.long, THOROUGH)
    logs = (None, short_log, long_log)
    models = [autotune.compile(model, log=log, threads=options.threads) for log in logs]
    before_s, short_s, long_s = in_turns(models, options.threads)
    predicted = short.after_s / short_s if short.after_s else float("nan")
    return (
        f"{model}  {before_s * 1e3:.2f}  {short_s * 1e3:.2f}  {long_s * 1e3:.2f}  "
        f"{short_s / long_s:.3f}  {short.measured}  {short.elapsed_s:.0f}  {predicted:.3f}"
    )


def tune(
    model: str, log: Path, options: argparse.Namespace, time_s: float, until_gain: float
) -> TuneReport:
    return autotune.tune(
        model,
        log=log,
        time_s=time_s,
        until_gain=until_gain,
        threads=options.threads,
        seed=options.seed,
    )


def in_turns(models: list[autotune.CompiledModel], threads: int) -> list[float]:
    """Latency of each model when nobody disturbs it (the fastest tenth of the runs ends there), on
    the cores that candidates were timed on."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-threads:])
    try:
        latencies: list[list[float]] = [[] for _ in models]
        for _ in range(TURNS):
            for model, row in zip(models, latencies, strict=True):
                row.extend(model.bench(RUNS).latency_s)
    finally:
        os.sched_setaffinity(0, cores)
    return [statistics.quantiles(row, n=10)[0] for row in latencies]


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None

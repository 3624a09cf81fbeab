"""How good a short tuning of whole networks is, from nothing and with a log of other networks.

In: models, the time of a short and of a long tuning, a folder for the logs. Out: per model what a
short tuning took and reached, the same in half the time with what the short ones of the other
models left in their logs, what the long one reached, and how well the log's task times predict the
latency. The compiled models are timed in turns. A tuning whose log is in the folder already is not
repeated, so that a run can be stopped and continued; the long ones go on from the short ones. With
--cold nothing is learnt from the other models: a model's line is there once it is tuned. The long
tuning ends by itself when its models expect nothing more; --evolve goes on for that many seconds
without them, by evolution from the long one's log, whatever it promises.

Usage: python benchmarks/networks/whole_network.py zoo:resnet18 zoo:mobilenetv2 [--short 180]
       [--long 3600] [--evolve 3600] [--threads 2] [--cold] [--out build/whole_network]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

import autotune
from autotune.db.exchange import import_items, log_items
from autotune.db.store import TuningLog
from autotune.errors import AutotuneError
from autotune.settings import load_settings

TURNS = 5
RUNS = 20
THOROUGH = 1e-5
"""Expected gain below which the long tuning ends."""
NOTHING = 1e-9
"""The same of one that is to take all its time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or .onnx files")
    parser.add_argument("--short", type=float, default=180.0, help="seconds at most")
    parser.add_argument("--long", type=float, default=600.0, help="seconds more, to compare with")
    parser.add_argument("--evolve", type=float, help="seconds of a search without models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cold", action="store_true", help="no runs with the others' logs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/whole_network"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    until = load_settings().min_gain
    if "warm" in kinds_of(options):
        for model in options.models:
            tuned(model, "short", options, until)
        for model in options.models:
            others = [log_of(m, "short", options) for m in options.models if m != model]
            tuned(model, "warm", options, until, others)
    kinds = kinds_of(options)
    columns = [f"{kind} ms (trials, s)" for kind in kinds]
    columns[0] = "short ms (trials, s, tasks/latency)"
    ratios = [f"{kind}/long" for kind in kinds if kind != "long"]
    print("  ".join(["model", "untuned ms", *columns, *ratios]), flush=True)
    for model in options.models:
        tuned(model, "short", options, until)
        tuned(model, "long", options, THOROUGH, [log_of(model, "short", options)])
        if options.evolve:
            tuned(model, "evolved", options, NOTHING, [log_of(model, "long", options)])
        print(row(model, options), flush=True)


def kinds_of(options: argparse.Namespace) -> list[str]:
    """The tunings of a model, as the table has them; warm: with the short ones' logs of others."""
    warm = not options.cold and len(options.models) > 1
    return ["short", *["warm"] * warm, "long", *["evolved"] * bool(options.evolve)]


def log_of(model: str, kind: str, options: argparse.Namespace) -> Path:
    """The file of a model's log of a kind: short, warm, long or evolved."""
    name = model.removeprefix("zoo:").rsplit("/", 1)[-1].removesuffix(".onnx")
    folder: Path = options.out
    return folder / f"{name}.{options.threads}.{kind}.db"


def tuned(
    model: str,
    kind: str,
    options: argparse.Namespace,
    until_gain: float,
    known: Sequence[Path] = (),
) -> None:
    """Tune a model into its log, unless it was; `known`: logs whose records it begins with."""
    log, facts = log_of(model, kind, options), facts_of(model, kind, options)
    if facts.exists():
        return
    log.unlink(missing_ok=True)
    if kind in ("long", "evolved"):
        shutil.copy(known[0], log)
    for other in known if kind == "warm" else ():
        with TuningLog(other, read_only=True) as source, TuningLog(log) as whole:
            items = ((f"record {n}", item) for n, item in enumerate(log_items(source)))
            import_items(whole, items, other.name, trust=True)
    limits_s = {
        "short": options.short,
        "warm": options.short / 2,
        "long": options.long,
        "evolved": options.evolve,
    }
    report = autotune.tune(
        model,
        log=log,
        time_s=limits_s[kind],
        until_gain=until_gain,
        threads=options.threads,
        seed=options.seed,
        strategy="evolutionary" if kind == "evolved" else "model",
    )
    found = {"trials": report.measured, "s": report.elapsed_s, "tasks_s": report.after_s}
    facts.write_text(json.dumps(found), encoding="utf-8")


def facts_of(model: str, kind: str, options: argparse.Namespace) -> Path:
    """The file with what a tuning took; it is there when the tuning has ended."""
    return log_of(model, kind, options).with_suffix(".json")


def row(model: str, options: argparse.Namespace) -> str:
    """A model's line of the table."""
    kinds = kinds_of(options)
    logs = [None, *(log_of(model, kind, options) for kind in kinds)]
    compiled = [autotune.compile(model, log=log, threads=options.threads) for log in logs]
    untuned_s, *latencies = in_turns(compiled, options.threads)
    reached = dict(zip(kinds, latencies, strict=True))
    cells = [model, f"{untuned_s * 1e3:.2f}"]
    for kind in kinds:
        found = json.loads(facts_of(model, kind, options).read_text(encoding="utf-8"))
        ratio = (found["tasks_s"] or float("nan")) / reached[kind]
        spent = f"{found['trials']}, {found['s']:.0f}"
        spent += f", {ratio:.3f}" if kind == "short" else ""
        cells.append(f"{reached[kind] * 1e3:.2f} ({spent})")
    cells += [f"{reached[kind] / reached['long']:.3f}" for kind in kinds if kind != "long"]
    return "  ".join(cells)


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

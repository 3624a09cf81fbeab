"""Single operators here and on the engines one would use instead, interleaved in one process.

    python benchmarks/ops.py [WORD ...] [--threads 1] [--rounds 9] [--processor-time]

Needs onnxruntime and openvino (the extra [bench]). Some two hundred cases at sizes that networks
have (`benchmarks/operators/single_ops.py`), in the standard's layout; with words, those whose
names hold one of them. Every round runs each engine twice and times the second run;
`--processor-time` leaves out what others on the machine took of it. Prints a table in Markdown:
fastest milliseconds, the speed-up over the faster of the others, the largest difference to ONNX
Runtime's first output over its largest value; then the geometric mean, and how many are slower
than `--below`.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers
from benchmarks.operators.single_ops import cases
from benchmarks.operators.single_ops_case import Case

ENGINES: dict[str, Callable[[Path, peers.Feed, argparse.Namespace], peers.Run]] = {
    "ours": lambda path, feed, options: peers.ours(path, feed, options, None, "float32"),
    "onnxruntime": peers.onnxruntime,
    "openvino": peers.openvino,
}


def compare(case: Case, options: argparse.Namespace, folder: Path) -> tuple[float, str]:
    """(speed-up, the row of the table); engines that do not know the operator are left out."""
    path, runs = case.write(folder), dict[str, peers.Run]()
    for name, make in ENGINES.items():
        try:
            runs[name] = make(path, case.feeds, options)
        except Exception as error:
            if name != "openvino":
                raise
            print(f"openvino refuses {case.name}: {type(error).__name__}", file=sys.stderr)
    wanted, got = (np.asarray(runs[n]()[0], np.float64) for n in ("onnxruntime", "ours"))
    error = float(np.abs(wanted - got).max()) / (float(np.abs(wanted).max()) or 1.0)
    best = dict.fromkeys(runs, math.inf)
    clock = time.process_time if options.processor_time else time.perf_counter
    for _ in range(options.rounds):
        for name, run in runs.items():
            run()
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    speedup = min(s for name, s in best.items() if name != "ours") / best["ours"]
    cells = " | ".join(f"{best.get(name, math.nan) * 1e3:.3f}" for name in ENGINES)
    return speedup, f"| {case.name} | {cells} | {speedup:.2f}x | {error:.0e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--below", type=float, default=0.95)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    options.precision, options.target = "float32", "cpu"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-options.threads :]))
    print(f"| operator | {' | '.join(ENGINES)} | speed-up | error |")
    print("| --- |" + " --- |" * (len(ENGINES) + 2))
    speedups: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if options.words and not any(word in case.name for word in options.words):
                continue
            speedup, row = compare(case, options, Path(folder))
            speedups.append(speedup)
            print(row, flush=True)
    mean = math.exp(statistics.fmean(math.log(s) for s in speedups)) if speedups else math.nan
    slower = sum(s < options.below for s in speedups)
    print(
        f"\ngeometric mean of {len(speedups)} speed-ups: {mean:.2f}x; {slower} below "
        f"{options.below}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How fast tuning goes: trials a second, build, check and timing included.

In: a model and a time. Out: trials per second, seconds to the first trial, failures. The log is a
temporary file, so that nothing is found in it.

Usage: python benchmarks/search/tuning_speed.py zoo:resnet18 [--time 60] [--threads 1]
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
from pathlib import Path

import autotune
from autotune.errors import AutotuneError
from autotune.tuner.events import Event, TrialDone


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="zoo:NAME or an .onnx file")
    parser.add_argument("--time", type=float, default=60.0, help="seconds of tuning")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    arrivals: list[float] = []
    statuses: collections.Counter[str] = collections.Counter()

    def listen(event: Event) -> None:
        if isinstance(event, TrialDone):
            arrivals.append(time.monotonic() - started)
            statuses[str(event.record.result.status)] += 1

    with tempfile.TemporaryDirectory() as folder:
        report = autotune.tune(
            options.model,
            log=Path(folder) / "tuning.db",
            time_s=options.time,
            threads=options.threads,
            seed=options.seed,
            on_event=listen,
        )
    if not arrivals:
        raise SystemExit("no trial ended in the time given; give more --time")
    spent = max(arrivals[-1] - arrivals[0], 1e-9)
    outcome = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    print(f"{len(report.tasks)} tasks, {len(arrivals)} trials ({outcome})")
    print(
        f"first trial after {arrivals[0]:.1f} s, then {(len(arrivals) - 1) / spent:.1f} a second"
    )
    if report.before_s and report.after_s:
        gain = report.before_s / report.after_s
        print(
            f"model: {report.before_s * 1e3:.2f} ms -> {report.after_s * 1e3:.2f} ms, {gain:.2f}x"
        )


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None

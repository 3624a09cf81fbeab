"""What an algorithm gains: a task's default config beside the default of direct code, in turns.

    python benchmarks/machines/one_algorithm.py 200x9x256x1024 2048x11x128x128 [--threads 2]

In: convolutions along a row, as points x taps x channels in x channels out. Out: a row for each,
with the algorithm that the prior chose, both times, and their ratio. Fastest runs count, of rounds
over both, so that other work on the machine does not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cost_model
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, Timing
from autotune.schedule import Schedule
from autotune.target import Target, host_target
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.unit.search_spaces.algorithms.test_long_windows import along

SPEECH = (
    "200x9x256x1024", "800x9x256x1024", "200x8x128x128", "256x11x256x256", "2048x11x128x128",
    "8192x11x64x64", "16384x11x32x32",
)  # fmt: skip
"""Layers as FastSpeech 2 (9 taps) and HiFi-GAN (11 taps) have them."""
TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.2)


def chosen(task: Task, target: Target) -> tuple[str, Schedule]:
    """The default's algorithm and schedule."""
    rule = rule_for(task, target)
    config = cost_model.default(task, Machine.of(target), rule)
    return str(config["algorithm"]), rule.schedule(task, target, config)


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layers", nargs="*", default=SPEECH)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    target = host_target().with_threads(args.threads)
    with LocalRunner(target) as runner:
        for layer in args.layers:
            points, taps, *channels = map(int, layer.split("x"))
            task = along(points, taps, (channels[0], channels[1]))
            name, schedule = chosen(task, target)
            _, direct = chosen(task, target.with_accuracy("strict"))
            requests = [
                MeasureRequest(task=task, schedule=s, target=target, timing=TIMING)
                for s in (schedule, direct)
            ]
            rounds = [runner.measure(requests) for _ in range(args.rounds)]
            own, other = (min(min(r.times_s) for r in runs) for runs in zip(*rounds, strict=True))
            print(
                f"{layer:20} {name:14} {own * 1e6:9.1f} us, direct {other * 1e6:9.1f} us: "
                f"{other / own:.2f} times as fast",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

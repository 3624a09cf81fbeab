"""What measuring through a farm on loopback costs, and what a second board brings.

In: nothing. Out: milliseconds a trial beside the local runner, with candidates that do nothing;
how far the times of one real candidate differ between the two; and the time of `autotune tune` on
one and on two boards whose candidates take a fixed time. Exit status 1 where one is over a limit.

Usage: python benchmarks/farm/farm_overhead.py [--trials 200]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import cost_model
from autotune.machine import Machine

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import autotune  # noqa: E402
from autotune.frontend import load_model  # noqa: E402
from autotune.graph.pipeline import optimize  # noqa: E402
from autotune.measure.executor import DEFAULT_EXECUTOR  # noqa: E402
from autotune.measure.runners.local import LocalRunner  # noqa: E402
from autotune.measure.types import MeasureRequest, Runner  # noqa: E402
from autotune.placement.partition import partition  # noqa: E402
from autotune.target import host_target  # noqa: E402
from rpc_server.runners import FarmOptions  # noqa: E402
from search_spaces.rules import rule_for  # noqa: E402
from tests.unit.measure import fakes  # noqa: E402
from tests.unit.rpc_server.farms import running_farm  # noqa: E402
from tests.unit.rpc_server.fixed import LONGER, LongerExecutor  # noqa: E402

BATCH, ROUNDS = 16, 4
OVERHEAD_S, APART, FASTER = 0.005, 0.02, 1.8
"""The limits."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    held = [overhead(options.trials), agreement(), two_boards()]
    sys.exit(not all(held))


def per_trial_s(runner: Runner, trials: int) -> float:
    """Seconds a trial, in batches as a tuner sends them, the first one not counted."""
    batch = tuple(fakes.request(fakes.GOOD) for _ in range(BATCH))
    runner.measure(batch)
    started = time.monotonic()
    for _ in range(max(1, trials // BATCH)):
        runner.measure(batch)
    return (time.monotonic() - started) / (max(1, trials // BATCH) * BATCH)


def overhead(trials: int) -> bool:
    """Of a trial that does nothing, in turns, the best of each."""
    spent_s: dict[str, list[float]] = {"local": [], "farm": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_farm(Path(folder), boards=1) as farm,
        farm.runner() as remote,
        LocalRunner(host_target(), executor=fakes.FAKE) as local,
    ):
        for _ in range(ROUNDS):
            for name, runner in (("local", local), ("farm", remote)):
                spent_s[name].append(per_trial_s(runner, trials // ROUNDS))
    here_s, farm_s = (min(spent_s[n]) for n in ("local", "farm"))
    print(
        f"empty trial: local {here_s * 1e3:.2f} ms, farm {farm_s * 1e3:.2f} ms, "
        f"overhead {(farm_s - here_s) * 1e3:.2f} ms (limit {OVERHEAD_S * 1e3:g} ms)"
    )
    return farm_s - here_s < OVERHEAD_S


def agreement(rounds: int = 12) -> bool:
    """One real candidate measured by turns here and through the farm; the best of each, so that
    what else this machine does counts little."""
    graph = optimize(load_model("zoo:tiny", None))
    target = host_target()
    task = max(partition(graph).weights(), key=lambda t: sum(v.type.nbytes for v in t.values))
    rule = rule_for(task, target)
    schedule = rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))
    request = MeasureRequest(task=task, schedule=schedule, target=target)
    times: dict[str, list[float]] = {"local": [], "farm": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_farm(Path(folder), boards=1, executor=DEFAULT_EXECUTOR) as farm,
        farm.runner() as remote,
        LocalRunner(target) as local,
    ):
        for _ in range(rounds):
            for name, runner in (("local", local), ("farm", remote)):
                (result,) = runner.measure((request,))
                times[name].append(result.median_s)
    here_s, there_s = (min(times[n]) for n in ("local", "farm"))
    print(
        f"a real candidate: local {here_s * 1e6:.2f} us, farm {there_s * 1e6:.2f} us, "
        f"{abs(there_s / here_s - 1):.1%} apart (limit {APART:.0%})"
    )
    return abs(there_s / here_s - 1) < APART


def two_boards(trials: int = 96) -> bool:
    spent_s = {}
    with (
        tempfile.TemporaryDirectory() as name,
        running_farm(Path(name), boards=2, executor=LONGER) as farm,
    ):
        for boards in (2, 1, 2):  # the first one warms up
            farm.in_service()
            with tempfile.TemporaryDirectory() as folder:
                started = time.monotonic()
                autotune.tune(
                    "zoo:tiny",
                    device=farm.url,
                    log=Path(folder) / "tuning.db",
                    trials=trials,
                    strategy="random",
                    farm=FarmOptions(boards=boards),
                )
                spent_s[boards] = time.monotonic() - started
    faster = spent_s[1] / spent_s[2]
    print(
        f"tune, {trials} trials of {LongerExecutor.trial_s:g} s: one board "
        f"{spent_s[1]:.1f} s, two {spent_s[2]:.1f} s, {faster:.2f}x (limit {FASTER:g}x)"
    )
    return faster >= FASTER


if __name__ == "__main__":
    main()

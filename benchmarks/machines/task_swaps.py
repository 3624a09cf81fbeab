"""Whether the candidates that are fastest by themselves are so in the model.

In: models. Each is tuned, and the fastest three candidates of its heaviest tasks are swapped into
the whole model, which is timed kernel by kernel, in turns. Out: for how many tasks the first one
is the fastest there, or as fast (within 2 %); what the model would gain if every task had the one
that is fastest in it; the tasks that differ. Whole runs with the first, the second and the third
ones, and with those that are fastest in the model, tell how far kernels' times are to be believed.

Usage: python benchmarks/machines/task_swaps.py zoo:squeezenet model.onnx [--time 60] [--threads 1]
           [--log tuning.db]
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.compiler.driver import compile_prepared
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.query import describe
from autotune.db.store import TuningLog
from autotune.db.types import LogStore, Record
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.ir import Graph
from autotune.measure.runners.local import LocalRunner
from autotune.placement.types import Partition
from autotune.runtime.image import ModelImage
from autotune.runtime.model import CompiledModel
from autotune.target import Target, host_target
from autotune.tuner.swaps import CANDIDATES, HEAVIEST, SwappedLog
from benchmarks.machines.task_sums import model_options, tuned

TURNS = 5
"""Times that everything is timed: the fastest counts, on a machine that others use too."""
RUNS = 10
"""Of a model in a turn."""
EQUAL = 1.02
"""Time over the fastest's up to which a kernel is as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapper:
    """A tuned model, compiled with other records than its log's best."""

    graph: Graph
    target: Target
    store: TuningLog
    runner: LocalRunner
    partition: Partition

    def images(self, choices: Iterable[Mapping[str, Record]]) -> Iterator[ModelImage]:
        here = dataclasses.replace(self.runner.profile(), target=self.target)
        for taken in choices:
            log = cast(LogStore, SwappedLog(self.store, taken))
            yield compile_prepared(self.graph, self.target, log, profile=here)[0]

    def candidates(self) -> dict[str, list[Record]]:
        """The fastest of each of the heaviest tasks that have several, the heaviest first."""
        found = {}
        for task, weight in self.partition.weights().items():
            top = list(self.store.top(task.key, self.target, CANDIDATES))
            if len(top) > 1:
                found[task.key] = (weight * top[0].result.median_s, top)
        heaviest = sorted(found, key=lambda key: -found[key][0])[:HEAVIEST]
        return {key: found[key][1] for key in heaviest}

    def within(self, times: Sequence[float]) -> dict[str, float]:
        """Seconds of all calls of each task."""
        if len(times) != len(self.partition.calls):
            raise AutotuneError("other layouts make other kernels: tune for longer")
        found: dict[str, float] = defaultdict(float)
        for call, seconds in zip(self.partition.calls, times, strict=True):
            found[call.task.key] += seconds
        return found


def main() -> None:
    options = model_options((__doc__ or "").splitlines()[0]).parse_args()
    for model, log in tuned(options):
        show(model, log, options.threads)


def show(model: str, log: Path, threads: int) -> None:
    target = host_target(threads)
    graph = prepare(load_model(model), target.precision, None).graph
    with TuningLog(log, read_only=True) as store, LocalRunner(target) as runner:
        partition = arranged(graph, target, store)
        swapper = Swapper(
            graph=graph, target=target, store=store, runner=runner, partition=partition
        )
        compare(model, swapper)


def compare(model: str, swapper: Swapper) -> None:
    """Print the model's lines."""
    found, cores = swapper.candidates(), sorted(os.sched_getaffinity(0))
    cores = cores[-swapper.target.threads :]
    choices = [
        {key: records[min(place, len(records) - 1)] for key, records in found.items()}
        for place in range(CANDIDATES)
    ]
    timed = in_turns([CompiledModel(image) for image in swapper.images(choices)], cores)
    times = [swapper.within(kernels) for _, kernels in timed]
    best: dict[str, Record] = {}
    first, equal, gain_s, lines = 0, 0, 0.0, list[str]()
    names = {task.key: describe(task.to_json()) for task in swapper.partition.weights()}
    for key, records in found.items():
        each = [times[place][key] for place in range(len(records))]
        place = min(range(len(each)), key=each.__getitem__)
        best[key] = records[place]
        first, equal = first + (place == 0), equal + (each[0] <= EQUAL * each[place])
        gain_s += each[0] - each[place]
        alone = [r.result.median_s / records[0].result.median_s for r in records]
        if each[0] > EQUAL * each[place]:
            ratios = [f"{a:.2f}/{e / each[0]:.2f}" for a, e in zip(alone, each, strict=True)]
            lines.append(f"    {names[key]}: alone/within {' '.join(ratios)}")
    models = [CompiledModel(image) for image in swapper.images([*choices, best])]
    whole = [1e3 * seconds for seconds, _ in in_turns(models, cores)]
    print(
        f"{model}: the first of {len(found)} tasks is the fastest in the model for {first}, as "
        f"fast for {equal}; {gain_s * 1e3:.3f} ms of kernels to gain; whole runs with first, "
        f"second, third, fastest in the model: {', '.join(f'{t:.3f}' for t in whole)} ms",
        flush=True,
    )
    for line in lines:
        print(line, flush=True)


def in_turns(
    models: Sequence[CompiledModel], cores: Sequence[int]
) -> list[tuple[float, list[float]]]:
    """Seconds of the fastest whole run of each model, and of each of its kernels."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        turns = [[model.bench(RUNS) for model in models] for _ in range(TURNS)]
    finally:
        os.sched_setaffinity(0, everywhere)
    return [
        (
            min(s for times in each for s in times.latency_s),
            [min(k.time_s for k in row) for row in zip(*(t.kernels for t in each), strict=True)],
        )
        for each in zip(*turns, strict=True)
    ]


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None

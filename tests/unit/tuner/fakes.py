"""A runner that looks times up, a store in memory, and partitions without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.db.selection import ALL, Selection
from autotune.db.types import Record
from autotune.graph.ir import Graph
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.placement.types import KernelCall, Partition
from autotune.schedule.base import Step
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from tests.unit.tuner.synthetic import PROFILE, Named, SyntheticRule, subject, true_seconds


def config_of(step: Step) -> Config:
    """The config that a synthetic schedule stands for."""
    assert isinstance(step, Named)
    pairs = (item.split("=") for item in step.name.split(","))
    return Config(tuple((k, int(v) if v.isdigit() else v) for k, v in pairs))


@dataclass
class FakeRunner:
    """Gives every config its true time. `fate` may decide otherwise, per trial number."""

    fate: Callable[[int, Config], Status] = lambda _number, _config: Status.OK
    asked: list[MeasureRequest] = field(default_factory=list)

    def profile(self) -> DeviceProfile:
        return PROFILE

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        results = []
        for place, request in enumerate(requests):
            self.asked.append(request)
            result = self._result(request)
            results.append(result)
            if on_result is not None:
                on_result(place, result)
        return tuple(results)

    def _result(self, request: MeasureRequest) -> MeasureResult:
        config = config_of(request.schedule[0])
        status = self.fate(len(self.asked), config)
        if status is not Status.OK:
            return MeasureResult(status=status, error="it was its fate")
        of = subject(request.task)
        seconds = float(true_seconds(of, of.rows([config]))[0])
        return MeasureResult(status=Status.OK, times_s=(seconds,))

    def close(self) -> None:
        pass


@dataclass
class MemoryStore:
    """A list of records."""

    kept: list[Record] = field(default_factory=list)

    def append(self, records: Iterable[Record]) -> None:
        self.kept += records

    def repeat(self, records: Iterable[Record]) -> None:
        again = list(records)
        mine = [(r.task, r.target, r.schedule) for r in again]
        self.kept = [r for r in self.kept if (r.task, r.target, r.schedule) not in mine] + again

    def best(self, task_key: str, target: Target) -> Record | None:
        return next(iter(self.top(task_key, target, 1)), None)

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]:
        found = [r for r in self.records(task_key, target) if r.result.status is Status.OK]
        return sorted(found, key=lambda r: r.result.median_s)[:count]

    def nearest(
        self, task: Task, target: Target, count: int, *, imported: bool = False, each: int = 1
    ) -> Sequence[Record]:
        del imported, each
        found = [
            r
            for r in self.kept
            if r.task != task and r.target.family == target.family and r.result.status is Status.OK
        ]
        return sorted(found, key=lambda r: r.result.median_s)[:count]

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        return [r for r in self.kept if (r.task.key, r.target.key) == (task_key, target.key)]

    def query(
        self, selection: Selection = ALL, *, top: int = 1, history: bool = False
    ) -> list[dict[str, Any]]:
        raise NotImplementedError("the tuner asks no queries")

    def close(self) -> None:
        pass


def partition_of(*tasks: Task) -> Partition:
    """Calls of the tasks in order; a repeated task weighs more."""
    graph = Graph(name="fake", inputs=(), outputs=(), nodes=(), constants={}, types={})
    calls = tuple(KernelCall(task=t, args=(), name=f"call{n}") for n, t in enumerate(tasks))
    return Partition(graph=graph, calls=calls, placements={}, storages={})


def synthetic_rules(task: Task, target: Target) -> SyntheticRule:  # noqa: ARG001
    del task
    return SyntheticRule()

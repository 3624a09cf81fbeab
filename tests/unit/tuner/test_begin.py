"""A rule that raises ends no run: its task is searched by the next one, or keeps what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from autotune.defects import DefectWarning
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.tuner.budget import Limits
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from search_spaces.cpu.contraction.rule import ContractionRule
from tests.unit.tuner.fakes import MemoryStore, partition_of
from tests.unit.tuner.synthetic import PROFILE, TARGET, matmul_task

TASK = matmul_task(16, 32, 64)


class FlatRunner:
    """Everything takes a millisecond."""

    def profile(self) -> DeviceProfile:
        return PROFILE

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        made = tuple(MeasureResult(status=Status.OK, times_s=(1e-3,)) for _ in requests)
        for place, result in enumerate(made if on_result is not None else ()):
            on_result(place, result)
        return made

    def close(self) -> None:
        """Nothing to end."""


def tune(store: MemoryStore) -> TuneReport:
    options = TuneOptions(target=TARGET, limits=Limits(trials=12))
    ticks = iter(range(10**6))
    return tune_partition(
        partition_of(TASK), FlatRunner(), store, options, clock=lambda: float(next(ticks))
    )


def _raise(*_: object) -> NoReturn:
    raise IndexError("list index out of range")


@pytest.mark.parametrize("method", ["space", "prior", "structure", "write"])
def test_a_task_whose_rule_raises_is_tuned_by_the_next(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContractionRule, method, _raise)
    store = MemoryStore()
    with pytest.warns(DefectWarning, match=rf"{TASK.key}: rule contraction raises: IndexError"):
        tune(store)
    assert {record.rule for record in store.kept} == {"nests"}


def test_a_config_whose_schedule_raises_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    write = _spoilt_after(1, ContractionRule.write)
    monkeypatch.setattr(ContractionRule, "write", write)
    store = MemoryStore()
    with pytest.warns(DefectWarning, match=r"contraction with .*; the config is left out"):
        report = tune(store)
    assert {record.rule for record in store.kept} == {"contraction"}
    assert report.trials == len(store.kept) >= 1


def test_a_search_that_raises_leaves_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    structure = ContractionRule.structure

    def spoilt(rule: ContractionRule, task: object, target: object, configs: object) -> object:
        if len(next(iter(configs.values()))) > 64:  # type: ignore[attr-defined]
            raise ZeroDivisionError("division by zero")
        return structure(rule, task, target, configs)  # type: ignore[arg-type]

    monkeypatch.setattr(ContractionRule, "structure", spoilt)
    store = MemoryStore()
    with pytest.warns(DefectWarning, match="ZeroDivisionError"):
        tune(store)
    assert store.kept


def _spoilt_after(calls: int, function: Callable[..., object]) -> Callable[..., object]:
    """The function, which raises after some calls every second time."""
    seen = []

    def spoilt(*given: object) -> object:
        seen.append(given)
        if len(seen) > calls and len(seen) % 2:
            raise KeyError("axis")
        return function(*given)

    return spoilt

"""Before tuning, what would choose between rewritten graphs is measured; then it is chosen."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from autotune import machine as nominal
from autotune.compiler.prepare import Prepared, prepare
from autotune.compiler.rewriting import rewriting
from autotune.db.store import TuningLog
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.target import load_target
from autotune.tuner.budget import Limits
from autotune.tuner.options import TuneOptions
from autotune.tuner.rewrites import measured_choice
from tests.unit.rewrite.test_search import dilated

TARGET = load_target("x86-64-v4")
GRAPH = dilated(count=1)


def prepared(log: TuningLog | None) -> Prepared:
    return prepare(GRAPH, "float32", rewrite=rewriting(TARGET, None, log))


class Machine:
    """A runner on which convolutions of so many images take a second, all else a millisecond."""

    def __init__(self, slow: int) -> None:
        self.slow, self.asked = slow, list[MeasureRequest]()

    def profile(self) -> DeviceProfile:
        return nominal.Machine.of(TARGET).profile

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        self.asked += requests
        results = tuple(MeasureResult(status=Status.OK, times_s=(self._s(r),)) for r in requests)
        for place, result in enumerate(results if on_result else ()):
            on_result(place, result)
        return results

    def _s(self, request: MeasureRequest) -> float:
        images = request.task.by_role("output")[0].type.shape[0]
        return 1.0 if request.task.op == "conv2d" and images == self.slow else 1e-3


@pytest.mark.parametrize(("slow", "rewritten"), [(4, False), (1, True)])
def test_what_was_measured_chooses(tmp_path: Path, slow: int, rewritten: bool) -> None:
    runner = Machine(slow)
    with TuningLog(tmp_path / "tuning.db") as log:
        options = TuneOptions(target=TARGET, limits=Limits(trials=100))
        first = prepared(log)
        assert [s.rewrite for s in first.derivation] == ["dilated-convolution-by-phases"]
        again = functools.partial(prepared, log)
        chosen, left, tried = measured_choice(first, again, runner, log, options)
        assert bool(chosen.derivation) == rewritten
        assert tried == len(runner.asked) > 0
        assert left.limits.trials == 100 - tried
        assert prepared(log).derivation == chosen.derivation  # compiled is what was tuned
        assert measured_choice(chosen, again, runner, log, options)[2] == 0


def test_a_run_too_short_for_it_tunes_what_is_predicted(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "tuning.db") as log:
        options, first = TuneOptions(target=TARGET, limits=Limits(trials=4)), prepared(log)
        again = functools.partial(prepared, log)
        chosen, left, tried = measured_choice(first, again, Machine(4), log, options)
        assert (chosen, left, tried) == (first, options, 0)

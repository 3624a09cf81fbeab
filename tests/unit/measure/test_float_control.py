"""Candidates are checked and timed under the control word that their model runs under."""

from __future__ import annotations

import pytest

from autotune.codegen.float_control import architecture
from autotune.measure.execute import NativeExecutor
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Status
from autotune.target import host_target, load_target
from tests.needs import require_for
from tests.unit.measure import denormals

FLUSHED = Status.WRONG_RESULT if architecture(host_target()) else Status.OK


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["cpu", "c"])
def test_here(kind: str, threads: int) -> None:
    target, executor = load_target(kind, threads), NativeExecutor()
    require_for(target)
    for accuracy, status in (("normal", FLUSHED), ("strict", Status.OK)):
        asked = denormals.request(target.with_accuracy(accuracy))
        result = executor.check_and_time(asked, executor.build(asked))
        assert result.status is status, result.error


def test_in_worker_processes() -> None:
    target = host_target(2)
    asked = [denormals.request(target.with_accuracy(a)) for a in ("normal", "strict")]
    with LocalRunner(target) as runner:
        found = runner.measure(tuple(asked))
    assert [r.status for r in found] == [FLUSHED, Status.OK]

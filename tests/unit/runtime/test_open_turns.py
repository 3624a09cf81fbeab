"""Runs at once of a model of open sizes: its team of threads serves one after another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.runtime.open_run import OpenRun
from autotune.types import Array
from tests.patience import PATIENCE_S
from tests.unit.compiler.open_models import convolutions

RANGES = {"N": (1, 4), "H": (16, 48, 16), "W": (16, 48, 16)}
SIZES = ((1, 32, 16), (4, 16, 48), (2, 48, 32), (3, 32, 32))


@pytest.fixture(scope="module")
def model() -> Any:
    return autotune.compile(convolutions(), ranges=RANGES, threads=2)


def feed(number: int) -> dict[str, Array]:
    batch, rows, columns = SIZES[number]
    rng = np.random.default_rng(number)
    return {"x": rng.standard_normal((batch, 3, rows, columns)).astype(np.float32)}


def test_threads_that_run_it_at_once_all_get_their_own_results(model: Any) -> None:
    """Workers stay behind by chance alone, so many runs; none may wait for good."""
    want = [model.run(feed(number))["y"] for number in range(len(SIZES))]

    def work(worker: int) -> None:
        for turn in range(40):
            number = (worker + turn) % len(SIZES)
            np.testing.assert_array_equal(model.run(feed(number))["y"], want[number])

    with ThreadPoolExecutor(4) as workers:
        for done in [workers.submit(work, worker) for worker in range(4)]:
            done.result(PATIENCE_S)


def test_a_handler_may_run_it_while_its_thread_does(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal's handler does that strikes before the native call of a run begins."""
    want = model.run(feed(0))["y"]
    enter, strikes = OpenRun._enter, iter([True])
    inner: list[Array] = []

    def interrupted(self: OpenRun, *args: Any) -> None:
        if next(strikes, False):
            inner.append(model.run(feed(0))["y"])
        enter(self, *args)

    monkeypatch.setattr(OpenRun, "_enter", interrupted)
    with ThreadPoolExecutor(1) as worker:
        outer = worker.submit(model.run, feed(0)).result(PATIENCE_S)["y"]
    np.testing.assert_array_equal(outer, want)
    np.testing.assert_array_equal(inner[0], want)

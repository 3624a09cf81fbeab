"""The engine: who computes makes no difference, nor does a lost worker; a lost cluster is said."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
import cost_model
from autotune.cli import execute
from autotune.db.store import TuningLog
from autotune.errors import ConfigError, DeviceError
from autotune.machine import Machine
from autotune.measure.builds import ExecutorBuilds
from autotune.measure.executor import Built
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.target import host_target
from autotune.tuner.budget import Limits
from autotune.tuner.engine import Engine, opened
from autotune.tuner.events import Event, TrialDone
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from cost_model.models import COST_MODELS, Dataset
from cost_model.subject import Subject
from search_spaces.rules import rule_for
from tests.dask_cluster import Cluster, cluster
from tests.patience import PATIENCE_S
from tests.unit.report.samples import filled, tiny
from tests.unit.tuner.fakes import MemoryStore, partition_of
from tests.unit.tuner.synthetic import PROFILE, matmul_task, subject

CHUNK = 200


@pytest.fixture
def engine() -> Iterator[Engine]:
    with ThreadPoolExecutor(2) as pool:
        yield Engine(pool, chunk=CHUNK)


def real_subject() -> Subject:
    task = matmul_task(96, 96, 96)
    return Subject.of(task, host_target(), PROFILE, rule_for(task, host_target()))


def test_features_are_the_same_bit_for_bit(engine: Engine) -> None:
    here = real_subject()
    rows = here.space.rows(20_000, np.random.default_rng(0))
    assert len(rows) > 2 * CHUNK
    there, wanted = engine.attached(here).describe(rows), here.describe(rows)
    assert there.names == wanted.names
    assert there.values.tobytes() == wanted.values.tobytes()
    assert there.prior_s.tobytes() == wanted.prior_s.tobytes()


def test_few_rows_are_described_here() -> None:
    here = real_subject()
    attached = Engine(Refusing(), chunk=CHUNK).attached(here)
    rows = here.space.rows(20_000, np.random.default_rng(0))[:CHUNK]
    assert len(attached.describe(rows).values) == CHUNK


def test_a_rule_that_only_this_process_knows_is_described_here() -> None:
    here = subject()
    assert Engine(Refusing()).attached(here) is here


def test_a_model_trained_elsewhere_predicts_the_same(engine: Engine) -> None:
    of = real_subject()
    described = of.describe(of.space.rows(300, np.random.default_rng(0)))
    count = len(described.prior_s)
    data = Dataset(
        names=described.names,
        values=described.values,
        prior_s=described.prior_s,
        time_s=described.prior_s * np.random.default_rng(1).uniform(1, 2, count),
        group=np.zeros(count, np.int64),
    )
    here, there = COST_MODELS.get("xgb")(3), COST_MODELS.get("xgb")(3)
    here.fit(data)
    engine.train(there, 3, data)
    assert here.predict(described).tobytes() == there.predict(described).tobytes()


class Refusing(ThreadPoolExecutor):
    """An executor that was shut down."""

    def __init__(self) -> None:
        super().__init__(1)
        self.shutdown()


class Silent(ThreadPoolExecutor):
    """An executor that has no worker."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


class Failing(ThreadPoolExecutor):
    """An executor whose workers do not get through a job."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(OSError("the workers that tried died"))
        return future


def request() -> MeasureRequest:
    task = matmul_task(16, 16, 16)
    target = host_target()
    rule = rule_for(task, target)
    schedule = rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))
    return MeasureRequest(task=task, schedule=schedule, target=target)


def test_a_build_that_kills_its_workers_is_the_candidates_failure() -> None:
    builds = ExecutorBuilds(Failing(1))
    result = builds.wait(builds.submit(request()))
    assert isinstance(result, MeasureResult)
    assert result.status is Status.BUILD_ERROR
    assert result.error == "build: OSError: the workers that tried died"


def test_a_cancelled_build_withdraws_its_job() -> None:
    inner: Future[Any] = Future()

    class One(Silent):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            return inner

    assert ExecutorBuilds(One(1)).submit(request()).cancel()
    assert inner.cancelled()


def test_an_executor_without_workers_is_given_up() -> None:
    builds = ExecutorBuilds(Silent(1), "the cluster", patience_s=0.01)
    with pytest.raises(DeviceError, match=r"no worker of the cluster has answered for 0\.01 s"):
        builds.wait(builds.submit(request()))


def test_an_executor_that_is_gone_is_said() -> None:
    with pytest.raises(DeviceError, match=r"the executor is lost .* run the command again"):
        ExecutorBuilds(Refusing()).submit(request())


def test_an_unknown_executor_is_one_line() -> None:
    with pytest.raises(ConfigError, match="expected the executor local or dask://HOST:PORT"):  # noqa: SIM117
        with opened("spark://here"):
            pass


def test_a_scheduler_that_does_not_answer_is_one_line() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(DeviceError, match=f"no Dask scheduler answers at {address}"):  # noqa: SIM117
            with opened(f"dask://{address}"):
                pass


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"autotune-compiler\[dask\]"):  # noqa: SIM117
        with opened("dask://127.0.0.1:1"):
            pass


# ---------------------------------------------------------------------------------- a real cluster


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Cluster]:
    with cluster(2) as found:
        yield found


class LookedUp:
    """A runner that builds on the engine and measures nothing: a candidate's time is the length of
    its machine code. `on_batch` is called when a batch's builds are under way."""

    def __init__(self, builds: ExecutorBuilds, on_batch: Any) -> None:
        self._builds, self._on_batch = builds, on_batch

    def profile(self) -> Any:
        return PROFILE

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: Any = None
    ) -> tuple[MeasureResult, ...]:
        results = []
        pending = [self._builds.submit(r) for r in requests]
        self._on_batch()
        for place, build in enumerate(pending):
            built = self._builds.wait(build)
            if isinstance(built, Built):
                built = MeasureResult(status=Status.OK, times_s=(len(built.code) * 1e-6,))
            results.append(built)
            if on_result is not None:
                on_result(place, built)
        return tuple(results)

    def close(self) -> None:
        pass


def tuned(engine: Engine, on_batch: Any) -> list[tuple[str, float]]:
    """Config and time of every record of a run, in order."""
    store = MemoryStore()
    partition = partition_of(matmul_task(48, 64, 96), matmul_task(80, 96, 64))
    options = TuneOptions(target=host_target(), limits=Limits(trials=36), seed=1, batch=12)
    tune_partition(partition, LookedUp(engine.builds, on_batch), store, options, engine=engine)
    assert all(r.result.status is Status.OK for r in store.kept)
    return [(str(r.config), r.result.median_s) for r in store.kept]


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(two_workers: Cluster) -> None:
    batches = 0

    def kill_one() -> None:
        nonlocal batches
        batches += 1
        if batches == 3:
            os.kill(two_workers.workers[0].pid, signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        wanted = tuned(Engine(pool), lambda: None)
    with opened(f"dask://{two_workers.address}", chunk=CHUNK) as there:
        assert there is not None
        found = tuned(there, kill_one)
    assert two_workers.workers[0].wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert found == wanted
    assert len(found) >= 36


@pytest.mark.slow
def test_a_cost_model_is_trained_on_a_cluster(
    two_workers: Cluster, cache_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    log = str(tmp_path / "log.db")
    with TuningLog(log) as store:
        store.append(filled(tiny(), target=host_target()).kept)
    for where in ("local", f"dask://{two_workers.address}"):
        file = str(tmp_path / where[:4])
        train = ["model", "train", "--log", log, "-o", file, "--executor", where]
        assert execute(train) == 0
    assert (tmp_path / "dask").read_bytes() == (tmp_path / "loca").read_bytes()


@pytest.mark.slow
def test_a_model_is_tuned_with_the_building_done_by_a_cluster(
    two_workers: Cluster, tmp_path: Path
) -> None:
    seen: list[Event] = []
    report = autotune.tune(
        "zoo:tiny",
        log=tmp_path / "log.db",
        executor=f"dask://{two_workers.address}",
        trials=12,
        on_event=seen.append,
    )
    results = [e.record.result for e in seen if isinstance(e, TrialDone)]
    assert report.measured == len(results) == 12
    assert all(r.status is Status.OK and r.build_s > 0 for r in results)

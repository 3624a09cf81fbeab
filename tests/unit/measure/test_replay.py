from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ConfigError, DeviceError
from autotune.measure.types import MeasureRequest, Status
from benchmarks.search.recorded_spaces import (
    ReplayRunner,
    Survey,
    load_survey,
    save_survey,
    schedule_hash,
)
from search_spaces.params import Config
from tests.unit.tuner.synthetic import PROFILE, TARGET, matmul_task, subject, true_seconds

OF = subject(matmul_task(64, 64, 64))


def survey(count: int = 20, *, failed: int = 0, device: str = "synthetic") -> Survey:
    rows = OF.space.sample(np.random.default_rng(0), count)
    seconds = true_seconds(OF, rows)
    seconds[:failed] = np.inf
    schedules = [OF.rule.schedule(OF.task, TARGET, OF.space.config(row)) for row in rows]
    return Survey(
        name="small",
        task=OF.task,
        profile=dataclasses.replace(PROFILE, device=device),
        rule="synthetic",
        params=OF.space.params,
        rows=rows,
        seconds=seconds,
        schedules=np.array([schedule_hash(s) for s in schedules], np.uint64),
    )


def request(config: Config) -> MeasureRequest:
    return MeasureRequest(
        task=OF.task, schedule=OF.rule.schedule(OF.task, TARGET, config), target=TARGET
    )


def test_a_file_gives_the_survey_back(tmp_path: Path) -> None:
    kept = survey(failed=2)
    save_survey(kept, tmp_path / "small.npz")
    found = load_survey(tmp_path / "small.npz")
    order, sorted_ = (np.argsort(s.space().keys(s.rows)) for s in (kept, found))
    assert (found.task, found.profile, found.params) == (kept.task, kept.profile, kept.params)
    np.testing.assert_array_equal(found.rows[sorted_], kept.rows[order])
    np.testing.assert_array_equal(found.schedules[sorted_], kept.schedules[order])
    np.testing.assert_allclose(found.seconds[sorted_], kept.seconds[order], rtol=1e-6)


def test_a_file_tells_what_was_drawn(tmp_path: Path) -> None:
    every = survey()
    kept = dataclasses.replace(every, drawn=every.seconds > np.median(every.seconds))
    save_survey(kept, tmp_path / "small.npz")
    found = load_survey(tmp_path / "small.npz")
    assert found.space(drawn=True).size == 10
    assert found.space().size == every.space(drawn=True).size == 20
    assert kept.drawn is not None
    drawn = kept.rows[kept.drawn]
    assert found.space(drawn=True).valid(drawn).all()


def test_files_from_before_that_still_load(tmp_path: Path) -> None:
    save_survey(survey(), tmp_path / "small.npz")
    with np.load(tmp_path / "small.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "drawn"}
    header = kept["header"].tobytes().replace(b'"format": 2', b'"format": 1')
    np.savez(tmp_path / "old.npz", **{**kept, "header": np.frombuffer(header, np.uint8)})
    assert load_survey(tmp_path / "old.npz").drawn is None


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_no_survey_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a survey"):
        load_survey(tmp_path / "bad.npz")


def test_its_space_holds_what_was_measured_and_nothing_else() -> None:
    kept = survey()
    space = kept.space()
    assert space.size == space.raw_size == 20
    every = OF.space.rows(10**6, np.random.default_rng(0))
    np.testing.assert_array_equal(
        np.sort(space.keys(every[space.valid(every)])), np.sort(space.keys(kept.rows))
    )
    rng = np.random.default_rng(1)
    assert space.valid(np.stack([space.mutate(rng, kept.rows[0]) for _ in range(20)])).all()


def test_results_are_what_was_measured() -> None:
    kept = survey(failed=1)
    runner = ReplayRunner([kept])
    configs = [kept.space().config(row) for row in kept.rows]
    seen: list[int] = []
    results = runner.measure(tuple(map(request, configs)), lambda n, _r: seen.append(n))
    assert results[0].status is Status.BUILD_ERROR
    assert [r.median_s for r in results[1:]] == kept.seconds[1:].tolist()
    assert seen == list(range(20))
    assert runner.profile() == kept.profile


def test_what_was_not_measured_is_a_build_error() -> None:
    kept = survey()
    every = OF.space.rows(10**6, np.random.default_rng(0))
    other = every[~kept.space().valid(every)][0]
    (result,) = ReplayRunner([kept]).measure((request(OF.space.config(other)),))
    assert (result.status, result.error) == (
        Status.BUILD_ERROR,
        "replay: this schedule was not measured",
    )


def test_devices_do_not_mix() -> None:
    with pytest.raises(DeviceError, match="one device"):
        ReplayRunner([survey(), survey(device="another")])
    with pytest.raises(DeviceError, match="at least one"):
        ReplayRunner([])

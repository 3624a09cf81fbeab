"""The runner of this machine: targets that it takes, and what it keeps of its profile."""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
from pathlib import Path

import pytest

from autotune.caches import ROOT, sizes
from autotune.errors import DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners import local
from autotune.measure.runners.local import LocalRunner, check_target
from autotune.measure.throttle import available_cores
from autotune.target import host_target, load_target
from tests.unit.machine import samples
from tests.unit.measure import fakes


@pytest.mark.parametrize(
    ("machine", "name"),
    [("armv7l", "cortex-a7"), ("arm64", "rpi4"), ("AMD64", "x86-64-v4"), ("s390x", "c")],
)
def test_a_machine_takes_targets_of_its_kind(
    machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    check_target(load_target(name), 1)


@pytest.mark.parametrize(
    ("machine", "name", "message"),
    [
        ("aarch64", "cortex-a7", "is cpu arm, this machine is cpu aarch64; measure on a board"),
        ("armv7l", "x86-64-v3", "is cpu x86_64, this machine is cpu arm; measure on a board"),
        ("s390x", "cortex-m4", "is a microcontroller, this machine is none; measure on a board"),
    ],
)
def test_it_takes_no_others(
    machine: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(DeviceError, match=message):
        check_target(load_target(name), 1)


def test_a_simulated_core_takes_targets_of_its_kind_alone() -> None:
    check_target(load_target("cortex-m4"), 1, simulated=True)
    with pytest.raises(DeviceError, match="target c is no microcontroller, and this board simul"):
        check_target(load_target("c"), 1, simulated=True)


def test_it_takes_no_more_threads_than_cores() -> None:
    target = load_target("c").with_threads(3)
    with pytest.raises(DeviceError, match="wants 3 threads, there are 2 cores"):
        check_target(target, 2)


def profile(cache: Path) -> DeviceProfile:
    with LocalRunner(host_target(), executor=fakes.FAKE, cache_dir=cache) as runner:
        return runner.profile()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"target": {}}'])
def test_a_damaged_cache_is_measured_again_and_overwritten(tmp_path: Path, text: str) -> None:
    measured = profile(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_text()
    path.write_text(text)
    assert profile(tmp_path) == measured
    assert path.read_text() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert profile(tmp_path / "file" / "cache").device


def told(cache: Path | None, threads: int = 1) -> LocalRunner:
    core = available_cores()[0]
    target = host_target().with_threads(threads)
    return LocalRunner(target, cores=(core, core), executor=fakes.TOLD, cache_dir=cache)


def times_asked(profile: DeviceProfile) -> float:
    """How often the worker was asked for facts, which is what it tells."""
    assert profile.facts is not None
    assert profile.facts.transfer_s is not None
    assert dataclasses.replace(profile.facts, transfer_s=samples.FACTS.transfer_s) == samples.FACTS
    return profile.facts.transfer_s


def test_facts_are_found_once_for_a_machine_whatever_the_threads(tmp_path: Path) -> None:
    with told(tmp_path) as runner:
        assert times_asked(runner.profile()) == 1.0
    kept = {path: path.read_text() for path in tmp_path.glob("facts-*.json")}
    assert len(kept) == 1
    with told(tmp_path, threads=2) as runner:
        assert times_asked(runner.profile()) == 1.0
    assert {path: path.read_text() for path in tmp_path.glob("facts-*.json")} == kept


def test_facts_from_before_they_held_caches_have_those_of_this_machine(tmp_path: Path) -> None:
    with told(tmp_path) as runner:
        runner.profile()
    (path,) = tmp_path.glob("facts-*.json")
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "caches": []}))
    with told(tmp_path) as runner:
        facts = runner.profile().facts
    assert facts is not None
    assert facts.caches == tuple(sorted(sizes(ROOT).items()))


def test_a_profile_that_is_measured_again_has_new_facts(tmp_path: Path) -> None:
    with told(tmp_path) as runner:
        assert times_asked(runner.profile()) == 1.0
        (path,) = tmp_path.glob("facts-*.json")
        before = path.read_text()
        path.write_text(before.replace('"transfer_s": 1.0', '"transfer_s": 5.0'))
    with told(tmp_path) as runner:
        assert times_asked(runner.profile()) == 5.0
        assert times_asked(runner.remeasure()) == 1.0
    assert path.read_text() == before


def test_without_a_place_to_keep_them_no_facts_are_found_unless_asked_for() -> None:
    with told(None) as runner:
        assert runner.profile().facts is None
        assert runner.facts() is not None


def test_without_facts_a_profile_is_as_good_as_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        LocalRunner(host_target(), executor=fakes.SILENT, cache_dir=tmp_path) as runner,
        caplog.at_level(logging.WARNING, "autotune.measure"),
    ):
        assert runner.profile().facts is None
        assert "micro-benchmarks failed: no loops for cpu" in caplog.text
        with pytest.raises(DeviceError, match="micro-benchmarks failed: no loops for cpu"):
            runner.facts()


@pytest.mark.parametrize(("now", "asked"), [(0.0, 1.0), (0.3, 1.0), (0.5, 5.0), (None, 5.0)])
def test_facts_of_a_busy_machine_are_found_again_on_a_quieter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float | None, asked: float
) -> None:
    with told(tmp_path) as runner:
        runner.profile()
    (path,) = tmp_path.glob("facts-*.json")
    busy = path.read_text().replace('"transfer_s": 1.0', '"transfer_s": 5.0')
    path.write_text(busy.replace('"others": 0.05', '"others": 0.8'))
    monkeypatch.setattr(local, "glance", lambda _: now)
    with told(tmp_path) as runner:
        facts = runner.profile().facts
    assert facts is not None
    assert facts.transfer_s == asked


def test_facts_of_a_quiet_machine_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with told(tmp_path) as runner:
        assert runner.profile().facts is not None
    monkeypatch.setattr(local, "glance", None)
    with told(tmp_path) as runner:
        assert runner.profile().facts is not None

"""The runner of this machine: targets that it takes, and what it keeps of its profile."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from autotune.errors import DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import LocalRunner, check_target
from autotune.target import host_target, load_target
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
    ],
)
def test_it_takes_no_others(
    machine: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(DeviceError, match=message):
        check_target(load_target(name), 1)


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

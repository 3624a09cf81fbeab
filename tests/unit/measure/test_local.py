"""Which targets a machine takes: those whose code it can run."""

from __future__ import annotations

import platform

import pytest

from autotune.errors import DeviceError
from autotune.measure.runners.local import check_target
from autotune.target import load_target


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

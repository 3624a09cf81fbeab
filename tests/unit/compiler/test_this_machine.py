"""Default schedules are for this machine, which is measured once."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotune
from autotune.compiler.this_machine import this_machine
from autotune.errors import DeviceError
from autotune.measure.runners.local import LocalRunner
from autotune.target import host_target, load_target


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    this_machine.cache_clear()


@pytest.mark.slow
def test_it_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = this_machine(host_target(2).with_accuracy("strict"), tmp_path)
    assert found is not None
    assert found.facts is not None
    this_machine.cache_clear()
    monkeypatch.setattr(LocalRunner, "_measure_profile", None)
    assert this_machine(host_target(1), tmp_path) == found


def test_another_device_is_not_asked(tmp_path: Path) -> None:
    foreign = "cortex-a72" if "x86" in host_target().triple else "x86-64-v3"
    for name in (foreign, "opencl", "sm_80", "c"):
        assert this_machine(load_target(name), tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_nominal_measures_nothing(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", machine="nominal", cache_dir=tmp_path)
    assert model.notes == ()
    assert not list(tmp_path.iterdir())


def test_nothing_is_measured_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file" / "folder"):
        assert this_machine(host_target(1), folder) is None


def test_a_machine_that_cannot_be_measured_is_one_in_general(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: LocalRunner) -> None:
        raise DeviceError("no worker starts")

    monkeypatch.setattr(LocalRunner, "profile", fails)
    autotune.compile("zoo:tiny", cache_dir=tmp_path)
    assert "this one is not known: no worker starts" in caplog.text

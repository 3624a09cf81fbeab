"""CUDA through the real packages, whose driver is the emulated one of `tests/emulator`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emulator.driver import break_down, emulated_machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def machine(folder: Path) -> Mapping[str, str]:
    return emulated_machine(folder)


def script(machine: Mapping[str, str], *arguments: str) -> list[str]:
    """The lines that a script prints."""
    return ran(machine, "-m", "tests.unit.measure.driver_scripts", *arguments)


def ran(machine: Mapping[str, str], *arguments: str) -> list[str]:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, check=False, env=machine, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_data_goes_there_and_back_and_what_cannot_be_is_one_line(
    machine: Mapping[str, str],
) -> None:
    back, conditions, beyond, much, text, left = script(machine, "data")
    assert back == str([0.0] * 8 + [float(i) for i in range(8)])
    assert conditions == "345/3201 MHz 41 C 120 W"
    assert beyond == "DeviceError: the GPU's driver answers INVALID_VALUE to cuMemcpyHtoDAsync"
    assert much == (
        "DeviceError: the GPU has no 1099511.6 MB left: 150754.8 of 150754.8 MB are free; end "
        "what else uses it, or take a smaller batch"
    )
    assert text == (
        "BuildError: the GPU's driver refused the kernel: INVALID_PTX (cuModuleLoadDataEx); "
        "ptxas fatal: not a kernel"
    )
    assert left == "[0, 0, 0, 0]"  # no memory, no context


def test_a_device_is_for_every_thread(machine: Mapping[str, str]) -> None:
    assert script(machine, "threads") == ["[] 0"]


@pytest.mark.slow
def test_a_network_runs_as_graphs(machine: Mapping[str, str]) -> None:
    assert script(machine, "model") == ["True", "True", "True", "True True"]


def test_the_gpu_is_listed(machine: Mapping[str, str]) -> None:
    lines = ran(machine, "-m", "autotune", "targets")
    (gpu,) = [line for line in lines if line.startswith("cuda (sm_90a): NVIDIA H200, CUDA 13.0")]
    assert "132 units; 1980 MHz; 151 GB of memory; 227 KiB shared by a block" in gpu
    assert not any("no GPU here" in line for line in lines)


@pytest.mark.slow
def test_a_gpu_that_breaks_down_loses_no_more_than_it_must(
    machine: Mapping[str, str], folder: Path
) -> None:
    good, wild, after, hung, away, lost, none, back = script(machine, "faults", str(folder))
    break_down(folder, "")
    for line in (good, after, back):
        assert line == " OK  345/3201 MHz 41 C 120 W"
    assert wild.startswith("illegal RUN_CRASH run: the GPU's driver answers ILLEGAL_ADDRESS to ")
    assert hung.startswith("endless RUN_TIMEOUT ")
    assert away.startswith("hung DEVICE_LOST the device does not come back")
    assert lost.startswith(
        "lost DEVICE_LOST no NVIDIA driver answers here (the GPU's driver answe"
    )
    assert none.startswith("none DEVICE_LOST the NVIDIA driver finds no GPU; see nvidia-smi")

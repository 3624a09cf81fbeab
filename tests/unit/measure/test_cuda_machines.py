"""Machines with other GPUs than one that runs everything: what they are told, what is chosen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emulator.driver import break_down, emulated_machine, put_in
from tests.patience import PATIENCE_S

A100, H200 = "8.0 81920 NVIDIA A100", "9.0 143771 NVIDIA H200"
SCRIPTS = "tests.unit.measure.driver_scripts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Each test's own: whoever unlocks clocks for a process that ended may do so later."""
    return tmp_path


@pytest.fixture
def machine(folder: Path) -> Mapping[str, str]:
    return emulated_machine(folder)


def test_a_gpu_too_old_is_one_line(machine: Mapping[str, str], folder: Path) -> None:
    put_in(folder, "7.5 16384 Tesla T4")
    command = [sys.executable, "-m", "autotune", "bench", "zoo:tiny", "--target", "cuda"]
    done = subprocess.run(command, check=False, env=machine, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "error: code for sm_80 runs on none of Tesla T4 (sm_75); choose another target, if there "
        "is one for it (`autotune targets`), or compile only\n"
    )


@pytest.mark.parametrize(
    ("target", "gpus", "said"),
    [
        ("sm_90a:1", (A100, H200),
         "there is no device 1 for sm_90a here; choose one of 0: NVIDIA H200"),
        ("cuda", ("8.0 1 NVIDIA A100", H200),
         "the GPU has no 1.0 MB left: 0.0 of 1.0 MB are free; end what else uses it, or take a "
         "smaller batch"),
        ("sm_90a", (H200,),
         "the NVIDIA driver is of CUDA 10.2, code for sm_90a needs one of CUDA 12.4 or newer; "
         "update the driver"),
    ],
    ids=["number", "memory", "driver"],
)  # fmt: skip
def test_what_is_not_there_is_said(
    machine: Mapping[str, str], folder: Path, target: str, gpus: tuple[str, ...], said: str
) -> None:
    put_in(folder, *gpus)
    break_down(folder, "old" if "driver" in said else "full" if "left" in said else "")
    command = [sys.executable, "-m", SCRIPTS, "opened", target]
    done = subprocess.run(command, check=False, env=machine, capture_output=True, text=True)
    break_down(folder, "")
    assert done.stdout == f"DeviceError: {said}\n", done.stderr


@pytest.mark.parametrize(
    ("target", "name", "files"), [("sm_80:1", "NVIDIA H200", ["clock1"]),
                                  ("sm_80", "NVIDIA A100", ["clock"])],
)  # fmt: skip
def test_the_second_gpu_is_taken_where_it_is_asked_for(
    machine: Mapping[str, str], folder: Path, target: str, name: str, files: list[str]
) -> None:
    put_in(folder, A100, H200)
    command = [sys.executable, "-m", SCRIPTS, "chosen", target]
    done = subprocess.run(command, check=False, env=machine, capture_output=True, text=True)
    assert done.stdout.splitlines() == [name, "1980/3201 MHz 41 C 120 W"], done.stderr
    locked = list(folder.glob("clock*"))
    for file in locked:
        file.unlink()
    assert [file.name for file in locked] == files


def test_clocks_are_unlocked_when_the_process_that_holds_them_is_killed(
    machine: Mapping[str, str], folder: Path
) -> None:
    put_in(folder, H200)
    process = subprocess.Popen(
        [sys.executable, "-m", SCRIPTS, "locked", "sm_90a"],
        env=machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        assert (folder / "clock").read_text() == "1980"
        os.kill(process.pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while (folder / "clock").read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert (folder / "clock").read_text() == ""

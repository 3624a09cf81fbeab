"""What `autotune targets` says of devices."""

from __future__ import annotations

import pytest

from autotune.cli import execute
from autotune.cli.targets import describe
from autotune.measure.devices import DeviceFacts

CPU = DeviceFacts(
    kind="opencl", name="a processor", arch="cpu", driver="PoCL 3", memory_bytes=8_000_000_000,
    multiprocessors=4, max_threads=4096, shared_bytes=1 << 20, clock_hz=2.5e9,
    features=("fp64",),
)  # fmt: skip
GPU = DeviceFacts(
    kind="cuda", name="a GPU", arch="sm_80", driver="12", memory_bytes=0, multiprocessors=108,
    max_threads=1024, shared_bytes=0, clock_hz=0.0,
)  # fmt: skip


def test_a_machine_without_gpu_says_so_in_one_line() -> None:
    assert describe([]) == ["no GPU here: targets of kind cuda can be compiled for, not run"]
    assert describe([CPU])[1:] == describe([])


def test_a_device_says_what_it_can_do() -> None:
    assert describe([CPU])[0] == (
        "opencl (cpu): a processor, PoCL 3: 4 units; 2500 MHz; 8.00 GB of memory; 1024 KiB shared "
        "by a block; 4096 threads in a block; fp64"
    )
    assert describe([GPU]) == ["cuda (sm_80): a GPU, 12: 108 units; 1024 threads in a block"]


def test_the_command_lists_targets_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["targets"]) == 0
    out = capsys.readouterr().out
    assert "sm_90a" in out
    assert "opencl (" in out

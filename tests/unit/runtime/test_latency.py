"""Whole models, timed side by side in a process of their own."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.errors import DeviceError
from autotune.runtime.image import ModelImage
from autotune.runtime.latency import MOST_RUNS, TURNS, in_turns, latencies
from autotune.runtime.model import CompiledModel


@pytest.fixture(scope="module")
def image() -> ModelImage:
    return autotune.compile("zoo:tiny").image


def test_every_model_gets_its_runs(image: ModelImage) -> None:
    core = max(os.sched_getaffinity(0))
    first, second = latencies([image, image], [core])
    assert len(first) == len(second) == TURNS * MOST_RUNS
    assert all(0 < seconds < 1 for seconds in first + second)


def test_models_take_turns_and_slow_ones_fewer_runs(image: ModelImage) -> None:
    ticks = itertools.count(step=0.02)
    compiled = [CompiledModel(image) for _ in range(2)]
    times = in_turns(compiled, lambda: next(ticks))
    assert [len(t) for t in times] == [2 * TURNS] * 2


def test_a_model_that_does_not_load_is_an_error_with_its_reason(image: ModelImage) -> None:
    broken = dataclasses.replace(image, objects=(b"nothing",))
    with pytest.raises(DeviceError, match="the whole model does not run"):
        latencies([broken])


def test_a_process_that_dies_is_an_error_too(
    image: ModelImage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(DeviceError, match="its process ended with -9"):
        latencies([image])


def test_an_interrupt_ends_the_process(image: ModelImage, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(child: subprocess.Popen[bytes], timeout: float) -> None:
        del timeout
        started.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        latencies([image])
    assert started[0].returncode == -signal.SIGKILL


def test_a_process_whose_parent_has_ended_runs_nothing() -> None:
    command = [sys.executable, "-m", "autotune.runtime.latency", "1", "", "runs", "no-such-file"]
    assert os.getpid() != 1
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the process that asked has ended\n"


def test_nothing_is_left_of_it(image: ModelImage) -> None:
    before = set(os.listdir("/proc/self/fd"))
    latencies([image])
    assert set(os.listdir("/proc/self/fd")) <= before

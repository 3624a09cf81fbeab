"""What a worker within its bounds may do for a GPU's driver, beside what others may."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.sandbox import Sandbox
from autotune.target import load_target

PROGRAM = """
import json, sys, threading
from pathlib import Path
from autotune.measure.sandbox import Sandbox, confine

settings = json.loads(sys.argv[1])
confine(Sandbox(**{**settings, "devices": tuple(settings["devices"])}), sys.argv[2])

def write(path):
    try:
        Path(path).write_text("1")
        return "written"
    except OSError as error:
        return type(error).__name__

own = threading.Thread(target=lambda: said.append(
    write(f"/proc/self/task/{threading.get_native_id()}/comm")))
said = []
own.start()
own.join()
print(*said, write("/proc/self/oom_score_adj"), write("/proc/sys/kernel/core_pattern"))
"""


def written(bounds: Sandbox, folder: str) -> list[str]:
    """What became of a thread's name, a setting of this process and one of the machine."""
    settings = json.dumps(dataclasses.asdict(bounds))
    command = [sys.executable, "-c", PROGRAM, settings, folder]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("board", [False, True])
def test_a_gpus_driver_may_name_its_threads(
    board: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Else it does not start: CUDA answers OPERATING_SYSTEM to cuInit."""
    bounds = dataclasses.replace(
        sandbox_for(load_target("sm_90a"), Sandbox()), read_system_only=board
    )
    name, *others = written(bounds, str(tmp_path_factory.mktemp("worker")))
    assert name == "written"
    assert "written" not in others


def test_other_workers_may_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert "written" not in written(Sandbox(), str(tmp_path_factory.mktemp("worker")))

"""Streams that the caller closed, or that take nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

COMMANDS = ("autotune targets", "rpc_server certs init farm")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in a shell, with its redirections."""
    module, _, rest = command.partition(" ")
    line = f"exec {sys.executable} -m {module} {rest}"
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams_cost_nothing(command: str, tmp_path: Path) -> None:
    done = shell(f"{command} <&- >&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_under_the_output_is_one_line(command: str, tmp_path: Path) -> None:
    done = shell(f"{command} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: the system refuses the output: No space left on device\n"


def test_a_closed_stream_s_number_is_no_other_file_s(tmp_path: Path) -> None:
    code = "from autotune import streams; streams.open_closed(); print(open('x', 'w').fileno())"
    done = subprocess.run(
        ["sh", "-c", f'exec {sys.executable} -c "{code}" <&-'],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert int(done.stdout) > 2


@pytest.mark.parametrize("arguments", ["", "fly", "certs issue"])
def test_arguments_that_cannot_be_used_are_one_line(arguments: str, tmp_path: Path) -> None:
    done = shell(f"rpc_server {arguments}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1

"""Every command in the README is run, and its Python example too."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
PATIENCE_S = 120.0
"""For what takes seconds where nobody else uses the machine."""


def blocks(language: str) -> list[str]:
    """Contents of the README's fenced blocks of a language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def commands(first: str) -> list[str]:
    """The README's commands that begin with a word, without their comments."""
    lines = (line.split("  #")[0].strip() for block in blocks("") for line in block.splitlines())
    return [line for line in lines if line.split(" ")[0] == first]


def run(line: str, folder: Path, **replace: str) -> str:
    """Run a command of the README in a folder; what it printed."""
    for old, new in replace.items():
        line = line.replace(old, new)
    program, *arguments = shlex.split(line)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_command_is_of_a_kind_that_is_run_here() -> None:
    words = {line.split()[0] for block in blocks("") for line in block.splitlines() if line}
    assert words == {"autotune", "dask", "make", "pip", "rpc_server"}


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in commands("make"):
        assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line


def test_every_path_named_in_the_table_of_parts_exists() -> None:
    folders = re.findall(r"^\| [^|]+ \| `([a-z_/]+/)x\.\w+`", README, re.MULTILINE)
    assert len(folders) >= 9
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


@pytest.mark.slow
def test_the_commands_run_in_their_order(tmp_path: Path) -> None:
    lines = commands("autotune")
    elsewhere = ("rpc://", "tracker://", "dask://", "resnet18")
    local = [line for line in lines if not any(word in line for word in elsewhere)]
    assert len(local) >= 10
    for line in local:
        out = run(line, tmp_path)
        assert out or "query" in line, line


@pytest.mark.slow
def test_the_first_screen_s_commands_run(tmp_path: Path) -> None:
    lines = [line for line in commands("autotune") if "resnet18" in line]
    assert len(lines) == 3
    for line in lines:
        assert run(line, tmp_path, **{"5m": "8s"})


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def board(port: int) -> Iterator[str]:
    (line,) = [line for line in commands("rpc_server") if "serve --listen" in line]
    arguments = shlex.split(line.replace("9190", str(port)))
    with subprocess.Popen(
        [str(BIN / arguments[0]), *arguments[1:]], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        assert any(text.startswith("listening on") for text in lines), "the board did not start"
        yield str(port)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
def test_the_board_s_commands_run(board: str, tmp_path: Path) -> None:
    run("autotune zoo export tiny -o tiny.onnx", tmp_path)
    (line,) = [line for line in commands("autotune") if "rpc://" in line]
    assert "ended:" in run(line, tmp_path, **{"9190": board})


@pytest.mark.slow
def test_the_farm_s_commands_run(port: int, tmp_path: Path) -> None:
    run("autotune zoo export tiny -o tiny.onnx", tmp_path)
    servers = [line for line in commands("rpc_server") if line.split()[1] == "tracker"]
    servers += [line for line in commands("rpc_server") if "serve --tracker" in line]
    (tune,) = [line for line in commands("autotune") if "tracker://" in line]
    with contextlib.ExitStack() as stack:
        for line in servers:
            arguments = shlex.split(line.replace("9191", str(port)))
            server = subprocess.Popen([str(BIN / arguments[0]), *arguments[1:]], cwd=tmp_path)
            stack.callback(server.wait, PATIENCE_S)
            stack.callback(server.terminate)
            _wait_for(port)
        deadline = time.monotonic() + PATIENCE_S
        status = f"rpc_server status --tracker 127.0.0.1:{port} --json"
        while "rpi4" not in run(status, tmp_path):
            assert time.monotonic() < deadline, "the board did not register"
        assert "ended:" in run(tune, tmp_path, **{"9191": str(port)})


@pytest.mark.slow
def test_the_cluster_s_commands_run(port: int, tmp_path: Path) -> None:
    run("autotune zoo export tiny -o tiny.onnx", tmp_path)
    (tune,) = [line for line in commands("autotune") if "dask://" in line]
    with contextlib.ExitStack() as stack:
        for line in commands("dask"):
            program, *arguments = shlex.split(line.replace("8786", str(port)))
            server = subprocess.Popen(
                [str(BIN / program), *arguments, "--no-dashboard"], stderr=subprocess.DEVNULL
            )
            stack.callback(server.wait, PATIENCE_S)
            stack.callback(server.terminate)
            _wait_for(port)
        assert "ended:" in run(tune, tmp_path, **{"8786": str(port)})


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens at port {port}")


@pytest.mark.slow
def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    run("autotune zoo export tiny -o resnet18.onnx", tmp_path)
    setup = """
import numpy as np, onnx
dims = onnx.load("resnet18.onnx").graph.input[0].type.tensor_type.shape.dim
array = np.zeros([d.dim_value for d in dims], np.float32)
"""
    name = "import onnx; print(onnx.load('resnet18.onnx').graph.input[0].name)"
    done = subprocess.run(
        [sys.executable, "-c", name], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    code = code.replace('{"x"', f'{{"{done.stdout.strip()}"').replace("500", "10")
    subprocess.run([sys.executable, "-c", setup + code], cwd=tmp_path, check=True)
    assert shutil.which("autotune", path=str(BIN))

"""Pages for readers, and the commands in them. In: a page of the repository. Out: its fenced
blocks, and a folder in which its commands are run in their order, servers beside the others."""

from __future__ import annotations

import contextlib
import platform
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotune.cli import execute
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PAGES = ("README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")))
WORKERS = """
import sys, distributed
distributed.Client(sys.argv[1]).wait_for_workers(1)
"""
PORTS = ("9190", "9191", "9192", "8786")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """The parts of a page that begin with `## `, by their headings; what comes before, by ''."""
    parts = re.split(r"^## (.+)$", text_of(page), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def blocks(text: str, language: str = "") -> list[str]:
    """Contents of fenced blocks of a language, in order; of none: commands."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for name, body in found if name == language]


def commands(text: str) -> list[str]:
    """The commands of a text, without their comments."""
    lines = [line.split("  #")[0].strip() for block in blocks(text) for line in block.splitlines()]
    return [line for line in lines if line]


@dataclass
class Reader:
    """Somebody who types a page's commands in a folder. Servers run until `close`."""

    folder: Path
    replace: dict[str, str] = field(default_factory=dict)
    """Words of commands -> what is typed instead: free ports, shorter times."""
    servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def type(self, line: str) -> None:
        """Run one command; fails the test where it fails."""
        for old, new in self.replace.items():
            line = line.replace(old, new)
        program, *arguments = shlex.split(line)
        if (program, arguments[0]) in SERVERS:
            self._serve(program, arguments)
        elif program in CHECKED:
            CHECKED[program](arguments)
        elif program == "autotune":
            assert execute(arguments) == 0, line
        else:
            done = self._start(program, arguments)
            _, error = done.communicate(timeout=PATIENCE_S)
            assert done.returncode == 0, f"{line}\n{error}"

    def _start(self, program: str, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(BIN / program), *arguments],
            cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _serve(self, program: str, arguments: list[str]) -> None:
        quiet = ["--no-dashboard"] if program == "dask" else []
        server = subprocess.Popen(
            [str(BIN / program), *arguments, *quiet], cwd=self.folder, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.servers.callback(server.wait, PATIENCE_S)
        self.servers.callback(server.send_signal, signal.SIGTERM)
        (port,) = re.findall(r":?\b(\d{4,5})\b", " ".join(arguments))
        _until(lambda: _listens(port), f"nobody listens at port {port}")
        if arguments[0] == "worker":
            wait = [sys.executable, "-c", WORKERS, f"127.0.0.1:{port}"]
            subprocess.run(wait, check=True, timeout=PATIENCE_S, capture_output=True)
        if "--tracker" in arguments:
            _until(lambda: self._is_registered(port), "the board did not register")

    def _is_registered(self, port: str) -> bool:
        status = self._start("rpc_server", ["status", "--tracker", f"127.0.0.1:{port}", "--json"])
        return "rpi4" in status.communicate(timeout=PATIENCE_S)[0]


def _until(holds: object, failure: str) -> None:
    assert callable(holds)
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)


def _listens(port: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", int(port)), 1).close()
        return True
    return False


def _free_ports() -> list[str]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in PORTS]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


@contextlib.contextmanager
def reader(folder: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader in an empty folder, with ports of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    found = Reader(
        folder, {"BOARD": platform.node(), **dict(zip(PORTS, _free_ports(), strict=True))}
    )
    with found.servers:
        yield found


def check_make(arguments: list[str]) -> None:
    """The target exists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), arguments


def check_pip(arguments: list[str]) -> None:
    """What is installed is this project, with extras that it has, or a folder that is there."""
    named = arguments[-1]
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    found = re.fullmatch(r"autotune-compiler\[(\w+)\]", named)
    assert found is None or found[1] in extras, named
    assert found is not None or (ROOT / named / "pyproject.toml").is_file(), named


def check_python(arguments: list[str]) -> None:
    """The script is there; what it does is tested where it has a test of its own."""
    assert (ROOT / arguments[0]).is_file(), arguments


def check_pytest(arguments: list[str]) -> None:
    """The tests named are there."""
    paths = [a.partition("::")[0] for a in arguments if a.startswith("tests/")]
    assert paths, arguments
    assert all((ROOT / path).exists() for path in paths), arguments


CHECKED = {
    "make": check_make, "pip": check_pip, "python": check_python, "pytest": check_pytest,
}  # fmt: skip
SERVERS = {
    ("rpc_server", "serve"), ("rpc_server", "tracker"), ("dask", "scheduler"), ("dask", "worker"),
}  # fmt: skip

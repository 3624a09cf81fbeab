"""What this project does, in about two minutes: `make demo`.

Serves this machine as a board, tunes a bundled model through it, and shows the model's latency
before and after and what the tuning log knows. Files go to build/demo.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path("build/demo")
BIN = Path(sys.executable).parent
REPEATS = "300"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="zoo:shufflenet")
    parser.add_argument("--time", default="60s", help="to spend on tuning")
    options = parser.parse_args()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    with board() as address:
        steps(options.model, options.time, address)


def steps(model: str, time: str, address: str) -> None:
    """The demo itself: the commands a user would type."""
    log, before, after = (
        str(HERE / name) for name in ("tuning.db", "before.model", "after.model")
    )
    say("As it is without tuning: every kernel has its default schedule.")
    autotune("compile", model, "--log", log, "-o", before)
    say("Tuning on the board.")
    autotune("tune", model, "--device", f"rpc://{address}", "--log", log, "--time", time)
    autotune("compile", model, "--log", log, "-o", after)
    say("Before and after.")
    for model_file in (before, after) * 2:  # in turns: what else the machine does hits both
        autotune("bench", model_file, "--brief", "--repeats", REPEATS)
    say("The best record of every task.")
    autotune("query", model, "--log", log)


@contextlib.contextmanager
def board() -> Iterator[str]:
    """`rpc_server serve` on a free loopback port while the body runs; its HOST:PORT."""
    command = [str(BIN / "rpc_server"), "serve", "--listen", "127.0.0.1:0"]
    show(command)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield listening(server)
        finally:
            server.terminate()
            try:
                server.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()


def listening(server: subprocess.Popen[str]) -> str:
    """The address that the server prints last, when it is ready."""
    for line in server.stdout or ():
        print(line, end="", flush=True)
        if line.startswith("listening on "):
            return line.removeprefix("listening on ").strip()
    sys.exit("demo: the board did not start; see the lines above")


def autotune(*arguments: str) -> None:
    command = [str(BIN / "autotune"), *arguments]
    show(command)
    status = subprocess.run(command, check=False).returncode
    if status:
        sys.exit(status)


def show(command: Sequence[str]) -> None:
    print("$", Path(command[0]).name, *command[1:], flush=True)


def say(text: str) -> None:
    print(f"{os.linesep}# {text}", flush=True)


if __name__ == "__main__":
    main()

"""What this project does, in about two minutes: `make demo`.

Serves this machine as a board, tunes a bundled model through it, and shows the model's latency
before and after, timed in turns, and what the tuning log knows. Files go to build/demo.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.runtime.image_file import read_image
from autotune.runtime.latency import latencies

HERE = Path("build/demo")
BIN = Path(sys.executable).parent
ROUNDS = 7
"""Odd: the one in the middle is shown."""


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
    say("Before and after, in turns on one core.")
    images = [read_image(path) for path in (before, after)]
    core = min(os.sched_getaffinity(0))
    print(gain([latencies(images, (core,)) for _ in range(ROUNDS)]), flush=True)
    say("The best record of every task.")
    autotune("query", model, "--log", log)


def gain(rounds: Sequence[Sequence[Sequence[float]]]) -> str:
    """What tuning gained, of seconds of whole runs before and after in each round. Whatever else
    runs here makes some runs longer, none shorter: a round is the fastest run of each."""
    best = [(min(before), min(after)) for before, after in rounds]
    ratios = sorted(before / after for before, after in best)
    before_s, after_s = (statistics.median(times) for times in zip(*best, strict=True))
    runs = sum(len(before) for before, _ in rounds)
    return (
        f"before {before_s * 1e3:.2f} ms, after {after_s * 1e3:.2f} ms "
        f"(fastest run of a round, median of {len(rounds)} rounds; {runs} runs of each)\n"
        f"speedup {statistics.median(ratios):.2f}x (by round {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}x)"
    )


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

"""How long whole models take, timed side by side in a process of their own.

In: images of models for this machine. Out: seconds of whole runs of each, or a DeviceError.

The models take turns, so that whatever else the machine does meets all of them; a process of its
own, because code that was never run as a whole must not end the one who asks.

The process itself: `python -m autotune.runtime.latency PARENT CORES FILE...` prints the seconds as
JSON; it ends when the process PARENT does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO

from autotune.errors import DeviceError
from autotune.graph.feeds import random_feeds
from autotune.measure.process import start_child
from autotune.measure.sandbox import end_with_parent
from autotune.runtime.artifact import load
from autotune.runtime.image import ModelImage
from autotune.runtime.image_file import write_image
from autotune.runtime.model import CompiledModel

TURNS = 5
MOST_RUNS = 10
"""Runs of a model in a turn, at most."""
TURN_S = 0.05
"""About what a model's turn takes, if it does more than one run."""
TIMEOUT_S = 120.0

Latencies = tuple[tuple[float, ...], ...]
"""Seconds of whole runs, per model."""


def latencies(images: Iterable[ModelImage], cores: Sequence[int] = ()) -> Latencies:
    """Seconds of whole runs of each image, on these cores; images are asked for one by one. Raises
    DeviceError where a model cannot be run here, or its process ends or hangs."""
    files: list[IO[bytes]] = []
    try:
        for image in images:
            files.append(_unnamed_file())
            write_image(image, files[-1])
            files[-1].flush()
        return _timed_there([file.fileno() for file in files], cores)
    except OSError as error:
        raise DeviceError(f"there is no room for the whole model: {error.strerror}") from None
    finally:
        for file in files:
            file.close()


def _unnamed_file() -> IO[bytes]:
    """In memory where that goes; whoever is killed leaves nothing behind."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("model"), "w+b")
    return tempfile.TemporaryFile()


def _timed_there(files: Sequence[int], cores: Sequence[int]) -> Latencies:
    names = [f"/dev/fd/{number}" for number in files]
    child = start_child(
        [sys.executable, "-m", __name__, str(os.getpid()), ",".join(map(str, cores)), *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for the one who asks
        pass_fds=tuple(files),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    with child:
        try:
            out, err = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DeviceError(f"the whole model took more than {TIMEOUT_S:g} s") from None
        finally:
            child.kill()
    if child.returncode:
        words = err.decode(errors="replace").strip().splitlines()
        raise DeviceError(
            "the whole model does not run: "
            + (words[-1] if words else f"its process ended with {child.returncode}")
        )
    return tuple(tuple(map(float, times)) for times in json.loads(out))


def in_turns(models: Sequence[CompiledModel], clock: Callable[[], float]) -> list[list[float]]:
    """Seconds of whole runs of each model, some runs at a time."""
    feeds = [random_feeds(model.inputs, seed=0) for model in models]

    def run_s(number: int) -> float:
        start = clock()
        models[number].run(feeds[number])
        return clock() - start

    numbers = range(len(models))
    times: list[list[float]] = [[] for _ in models]
    for number in numbers:
        run_s(number)  # loads it
    for _ in range(TURNS):
        for number in numbers:
            warm_s = run_s(number)
            runs = max(1, min(MOST_RUNS, int(TURN_S / warm_s)))
            times[number] += [run_s(number) for _ in range(runs)]
    return times


def main() -> None:
    """The process that times."""
    from autotune.errors import AutotuneError

    parent, cores, *names = sys.argv[1:]
    try:
        end_with_parent()
        if os.getppid() != int(parent):
            raise DeviceError("the process that asked has ended")
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
        print(json.dumps(in_turns([load(name) for name in names], time.perf_counter)))
    except (AutotuneError, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

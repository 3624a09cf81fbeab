"""Latencies of whole models, timed side by side in a process of their own.

In: images of models for this machine. Out: seconds of whole runs of each, or a DeviceError.

The models take turns, so that whatever else the machine does meets all of them; a process of its
own, because code that was never run as a whole must not end the one who asks.

The process itself: `python -m autotune.runtime.latency PARENT CORES WHAT FILE...` prints the
seconds as JSON, WHAT being runs or kernels; it ends when the process PARENT does.
"""

from __future__ import annotations

import json
import os
import statistics
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
from autotune.runtime.image import ModelImage
from autotune.runtime.image_file import read_image, write_image
from autotune.runtime.model import CompiledModel

TURNS = 5
"""Runs of each model, in turns with the others."""
MOST_RUNS = 10
"""Runs of a model in a turn, at most."""
KERNEL_RUNS = 3
"""Times that each kernel is timed in a turn."""
TURN_S = 0.05
"""About what a model's turn takes, if it does more than one run."""
TIMEOUT_S = 120.0
"""Seconds of the process that runs them."""

Latencies = tuple[tuple[float, ...], ...]
"""Seconds of whole runs, or of kernels, per model."""


def latencies(images: Iterable[ModelImage], cores: Sequence[int] = ()) -> Latencies:
    """Seconds of whole runs of each image, on these cores; images are asked for one by one. Raises
    DeviceError where a model cannot be run here, or its process ends or hangs."""
    return _timed(images, cores, "runs")


def kernel_times(images: Iterable[ModelImage], cores: Sequence[int] = ()) -> Latencies:
    """Seconds of each kernel of each image in its place in the model, the images in turns; the
    rest is as for `latencies`."""
    return _timed(images, cores, "kernels")


def _timed(images: Iterable[ModelImage], cores: Sequence[int], what: str) -> Latencies:
    files: list[IO[bytes]] = []
    try:
        for image in images:
            files.append(_unnamed_file())
            write_image(image, files[-1])
            files[-1].flush()
        return _timed_there([file.fileno() for file in files], cores, what)
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


def _timed_there(files: Sequence[int], cores: Sequence[int], what: str) -> Latencies:
    names = [f"/dev/fd/{number}" for number in files]
    bound = [str(os.getpid()), ",".join(map(str, cores))]
    command = [sys.executable, "-m", __name__, *bound, what, *names]
    child = start_child(
        command,
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


def kernels_in_turns(models: Sequence[CompiledModel]) -> list[list[float]]:
    """Seconds of each model's kernels, the middle ones of all turns."""
    turns = [[model.bench(KERNEL_RUNS).kernels for model in models] for _ in range(TURNS)]
    return [
        [statistics.median(k.time_s for k in same) for same in zip(*of_model, strict=True)]
        for of_model in zip(*turns, strict=True)
    ]


def main() -> None:
    """The process that times."""
    from autotune.errors import AutotuneError

    parent, cores, what, *names = sys.argv[1:]
    try:
        end_with_parent()
        if os.getppid() != int(parent):
            raise DeviceError("the process that asked has ended")
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
        models = [CompiledModel(read_image(name)) for name in names]
        found = in_turns(models, time.perf_counter) if what == "runs" else kernels_in_turns(models)
        print(json.dumps(found))
    except (AutotuneError, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

"""A whole model in a worker process: what boards do with models that clients bring.

In: a model's file and its inputs, dense, as one block of bytes. Out: its outputs the same way,
seconds of whole runs and of its kernels, and how much memory the process had.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.measure.execute import NativeExecutor
from autotune.measure.frames import Frame
from autotune.runtime.dense import feeds_of
from autotune.runtime.image_file import read_image
from autotune.runtime.model import CompiledModel


class ModelExecutor(NativeExecutor):
    """An executor that runs models."""

    def run_model(self, header: Mapping[str, Any], blob: bytes) -> Frame:
        """Raises InputError."""
        sizes = [int(size) for size in header["sizes"]]
        ends = np.cumsum(sizes).tolist()
        files = [blob[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        return run_model(files[0], files[1:], int(header["repeats"]), time.perf_counter)


def run_model(
    data: bytes, inputs: Sequence[bytes], repeats: int, clock: Callable[[], float]
) -> Frame:
    """One run for its outputs, and `repeats` to be timed, if any."""
    with CompiledModel(read_image(data)) as model:
        feeds = feeds_of(model, inputs)
        outputs = [np.ascontiguousarray(array) for array in model.run(feeds).values()]
        times = model.bench(repeats, feeds=feeds, clock=clock) if repeats else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    header = {
        "sizes": [array.nbytes for array in outputs],
        "times_s": times.latency_s if times else (),
        "kernels_s": [kernel.time_s for kernel in times.kernels] if times else (),
        "peak_bytes": peak,
    }
    return header, b"".join(array.tobytes() for array in outputs)

"""Int8 models as C beside TensorFlow Lite Micro as its package has it, on this machine, in turns.

    pip install --no-deps --target FOLDER tflite-micro
    python benchmarks/deployment/tflite_micro.py --packages FOLDER MODEL.tflite ...
        [--target cortex-m4] [--seconds 20]

In: models. Out: a line for each: processor time of the fastest runs of both, in milliseconds,
their ratio, and how far results are apart. The package is an interpreter for x86-64 with the
portable kernels, without CMSIS-NN; our C is compiled by GCC with -O2 for the same processor,
without the instructions that `--target` has.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.compiler.driver import compile_request
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.target import Target, load_target
from autotune.types import Array
from tests.unit.export.library import pointers

LEAST_RUNS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--packages", required=True)
    parser.add_argument("--target", default="cortex-m4")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    sys.path.insert(0, options.packages)
    micro = importlib.import_module("tflite_micro.python.tflite_micro.runtime")
    print("| model | here, ms | TensorFlow Lite Micro | ratio | apart |\n" + "| --- " * 5 + "|")
    for path in options.models:
        theirs = micro.Interpreter.from_file(str(path))
        shape = theirs.get_input_details(0)["shape"]
        x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
        theirs.set_input(x, 0)
        theirs.invoke()
        wanted = theirs.get_output(0)
        ours, found = compiled(path, source_target(load_target(options.target)), x, wanted)
        here, there = fastest_ms([ours, theirs.invoke], options.seconds)
        apart = np.abs(found.astype(int) - wanted.astype(int)).max()
        print(
            f"| {path.stem} | {here:.3f} | {there:.3f} | {here / there:.2f} | {apart} |",
            flush=True,
        )


def compiled(
    path: Path, target: Target, x: Array, like: Array
) -> tuple[Callable[[], None], Array]:
    """A call of the model as C on an input, and where its output is."""
    model = compile_request(CompileRequest(model=str(path), target=target))
    if not isinstance(model, CompiledModel):
        raise SystemExit(f"{path}: the sizes are open")
    with tempfile.TemporaryDirectory() as place:
        export_image(model.image, place, ExportOptions(format="c"))
        command = ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", "model.c", "-lm", "-o", "m.so"]
        subprocess.run(command, cwd=place, check=True)
        library = ctypes.CDLL(str(Path(place) / "m.so"))
        header = (Path(place) / "model.h").read_text()
    nbytes = int(re.findall(r"MODEL_MEMORY_BYTES (\d+)", header)[0])
    memory, instance, out = np.zeros(nbytes + 64, np.uint8), ctypes.c_void_p(), np.empty_like(like)
    start = ctypes.c_void_p(-(-memory.ctypes.data // 64) * 64)
    if library.model_create_in(start, ctypes.c_size_t(nbytes), None, ctypes.byref(instance)):
        raise SystemExit("model_create_in failed")
    inputs, outputs = pointers([x]), pointers([out])

    def run() -> None:
        if library.model_run(instance, inputs, outputs):
            raise SystemExit("model_run failed")

    run.__dict__["held"] = memory, x
    run()
    return run, out


def fastest_ms(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """Processor time of each call's fastest run, in turns, each behind one that warms caches."""
    times: list[list[int]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < LEAST_RUNS:
        for call, own in zip(calls, times, strict=True):
            call()
            start = time.thread_time_ns()
            call()
            own.append(time.thread_time_ns() - start)
    return [min(own) / 1e6 for own in times]


if __name__ == "__main__":
    main()

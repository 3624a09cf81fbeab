"""Models as shared libraries: bytes beyond their weights, load, first run, speed beside Python's.

    python benchmarks/deployment/exported.py MODEL.onnx ... [--size] [--threads 1] [--seconds 4]
        [--no-times]

In: models (open dimensions are taken as 1). Out: a line for each: megabytes of weights in the
ONNX file, of `libmodel.so`, and beyond; the fewest milliseconds of five fresh processes to load
(dlopen, and model_create, which touches the pages of an instance: how many), the least of their
first runs over the median of later ones, the library's fastest run over that of the Python
executor, in turns; in the last line what a call costs beside its kernels (a model of one sum of 16
numbers).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.compiler.driver import compile_request
from autotune.export.write import ExportOptions, export_image
from autotune.graph.feeds import random_feeds
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.types import Array
from tests.unit.export.library import Model, pointers

HEAD = (
    "| model | weights, MB | .so | beyond | dlopen, ms | create | pages | first run | to Python |"
)
PROCESSES = 5
"""Fresh processes that load a library."""
FIRST_RUNS = 9
"""Runs of a fresh process; the first is compared with the median of the others."""
CALLS = 20_000
"""Calls of the smallest model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--size", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--no-times", action="store_true", help="sizes only")
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fresh:
        print(json.dumps(fresh(options.models[0])))
        return
    print(HEAD)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for path in options.models:
        print(line(path, options), flush=True)
    if not options.no_times:
        print(f"a call: {call_s() * 1e6:.2f} us")


def line(path: Path, options: argparse.Namespace) -> str:
    """One model's row."""
    request = CompileRequest(model=str(path), threads=options.threads)
    model = compile_request(request, small=options.size)
    if not isinstance(model, CompiledModel):
        raise SystemExit(f"{path}: the sizes are open")
    with tempfile.TemporaryDirectory() as place:
        export_image(model.image, place, ExportOptions())
        library = Path(place) / "libmodel.so"
        nbytes, weights = library.stat().st_size, weight_bytes(path)
        cells = [path.stem, *(f"{n / 1e6:.2f}" for n in (weights, nbytes, nbytes - weights))]
        if not options.no_times:
            command = [sys.executable, __file__, str(library), "--fresh"]
            found = [
                json.loads(
                    subprocess.run(command, capture_output=True, text=True, check=True).stdout
                )
                for _ in range(PROCESSES)
            ]
            opening_s, creation_s, pages, first = map(min, zip(*found, strict=True))
            ratio = beside_python(model, library, options.seconds)
            cells += [f"{opening_s * 1e3:.2f}", f"{creation_s * 1e3:.2f}", str(pages)]
            cells += [f"{first:.2f}x", f"{ratio:.3f}"]
    return f"| {' | '.join(cells)} |"


def weight_bytes(path: Path) -> int:
    """Bytes of the ONNX file's constants."""
    graph = onnx.load(path).graph
    return sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer)


def fresh(path: Path) -> tuple[float, float, int, float]:
    """Seconds of dlopen and of model_create in this process, pages that both touch for the first
    time, and the first run over later ones."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    library = ctypes.CDLL(str(path))
    opened = time.perf_counter()
    made = ctypes.c_void_p()
    code = library.model_create(None, ctypes.byref(made))
    created = time.perf_counter()
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    if code:
        raise SystemExit(f"model_create: {code}")
    call = caller(Model(path), made, None)
    times = [timed(call) for _ in range(FIRST_RUNS)]
    return opened - start, created - opened, pages, times[0] / statistics.median(times[1:])


def caller(
    library: Model, instance: ctypes.c_void_p, arrays: list[Array] | None
) -> Callable[[], None]:
    """A run on these arrays, or on zeros."""
    sides = []
    for side in ("input", "output"):
        made = [np.zeros(t.shape[: t.rank], t.type.decode()) for t in library.tensors(side)]
        sides.append(arrays if arrays is not None and side == "input" else made)
    inputs, outputs = (pointers(side) for side in sides)
    function = library.function("run")

    def run() -> None:
        if function(instance, inputs, outputs):
            raise SystemExit("model_run failed")

    run.__dict__["held"] = sides  # the pointers' targets
    return run


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def beside_python(model: CompiledModel, path: Path, seconds: float) -> float:
    """The library's fastest run over the Python executor's, in turns."""
    library = Model(path)
    _, instance = library.create()
    feeds = random_feeds(model.inputs, 3)
    calls = {
        "library": caller(library, instance, list(feeds.values())),
        "python": lambda: model.run(feeds),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["python"]) < FIRST_RUNS:
        for name, call in calls.items():
            call()
            times[name].append(timed(call))
    library.destroy(instance)
    return min(times["library"]) / min(times["python"])


def call_s() -> float:
    """Seconds of a call of a model that adds 16 numbers, from C's side: those of a call of the
    same library that only tells its number of threads, which ctypes costs too, are left out."""
    value = helper.make_tensor_value_info
    ports = [value(name, TensorProto.FLOAT, [16]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "sum", ports[:1], ports[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with tempfile.TemporaryDirectory() as place:
        export_image(autotune.compile(proto).image, place, ExportOptions())
        library = Model(Path(place) / "libmodel.so")
        _, instance = library.create()
        call = caller(library, instance, None)
        threads = library.function("threads")
        blocks = (None, None, None)

        def idle() -> None:
            if threads(*blocks) != 1:
                raise SystemExit("model_threads failed")

        costs = []
        for function in (call, idle) * 3:
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            costs.append((time.perf_counter() - start) / CALLS)
        library.destroy(instance)
        return min(costs[0::2]) - min(costs[1::2])


if __name__ == "__main__":
    main()

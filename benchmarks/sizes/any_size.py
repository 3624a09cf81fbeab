"""One program for all sizes of a network, against a compile for each and engines of any shape.

    python benchmarks/sizes/any_size.py resnet18.onnx mobilenetv2.onnx detector bert [--count 200]
        [--static-every 20] [--threads 1] [--seed 0] [--alone]

A file's batch and image are opened (N 1 to 8; H, W 64 to 640 in steps of 32); `detector` (N 1;
H, W 320 to 1280 in steps of 32) and `bert` (B 1 to 16, S 8 to 512) are written in
`open_networks.py`. Sizes are drawn by orders of magnitude, within ranges. At every size, each
engine runs one after the other: once on the size before, so that its weights are where they were
left, then the first call of the new size, then more. Every `--static-every`-th size is compiled
for itself, too, and timed in turns with the one program. Prints a row of a Markdown table per
network: the speed of the one program over that of the compile for the size alone (median, least),
first calls over second ones (median, worst tenth), geometric mean of the speed-ups over ONNX
Runtime and OpenVINO with dynamic shapes (calls of sizes that they have met; first calls), memory
of values over that of the compile for the size alone (median, most), seconds to compile.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.runtime.sized import SizedModel
from benchmarks.sizes import open_networks

Feeds = dict[str, Any]
Sizes = Mapping[str, int]
Run = Callable[[Feeds], object]
SECONDS = 0.4
"""Of timing an engine at a size, about; every engine is run twice at least."""
TURNS = 15
"""Of the one program and the compile for the size alone."""
IMAGES = {"N": (1, 8, 1), "H": (64, 640, 32), "W": (64, 640, 32)}
RANGES = {
    "detector": {"N": (1, 1, 1), "H": (320, 1280, 32), "W": (320, 1280, 32)},
    "bert": {"B": (1, 16, 1), "S": (8, 512, 1)},
}


def network(name: str) -> onnx.ModelProto:
    if name == "detector":
        return open_networks.detector()
    return open_networks.bert() if name == "bert" else open_networks.opened(Path(name))


def drawn(
    ranges: Mapping[str, tuple[int, int, int]], count: int, seed: int
) -> Iterator[dict[str, int]]:
    """Sizes, each symbol by orders of magnitude."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sizes = {}
        for name, (low, high, step) in ranges.items():
            exact = math.exp(rng.uniform(math.log(low), math.log(high + step)))
            sizes[name] = low + int(exact - low) // step * step
        yield sizes


def feeds_at(model: SizedModel, sizes: Sizes) -> Feeds:
    rng, feeds = np.random.default_rng(1), {}
    for name, kind in model.inputs.items():
        shape = kind.at(sizes).shape
        if kind.dtype == "float32":
            feeds[name] = rng.standard_normal(shape, np.float32)
        elif "mask" in name:
            feeds[name] = np.ones(shape, kind.dtype)
        else:
            feeds[name] = rng.integers(0, 1000, shape).astype(kind.dtype)
    return feeds


def onnxruntime_run(data: bytes, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def openvino_run(data: bytes, threads: int) -> Run:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    core = openvino.Core()
    request = core.compile_model(core.read_model(data), "CPU", settings).create_infer_request()
    run: Run = request.infer
    return run


def timed(run: Run, feeds: Feeds) -> float:
    start = time.perf_counter()
    run(feeds)
    return time.perf_counter() - start


@dataclass(slots=True)
class Found:
    """What was measured, a number per size."""

    first: dict[str, list[float]] = field(default_factory=dict)
    """Engine -> seconds of a first call."""
    later: dict[str, list[float]] = field(default_factory=dict)
    calls: list[float] = field(default_factory=list)
    """Seconds of the first call over those of the second."""
    speed: list[float] = field(default_factory=list)
    """Of the one program over that of the compile for the size alone."""
    memory: list[float] = field(default_factory=list)


def at_size(engines: Mapping[str, Run], before: Feeds, feeds: Feeds, found: Found) -> None:
    for name, run in engines.items():
        run(before)
        taken = [timed(run, feeds), timed(run, feeds)]
        while len(taken) < 8 and sum(taken) < SECONDS:
            taken.append(timed(run, feeds))
        found.first.setdefault(name, []).append(taken[0])
        found.later.setdefault(name, []).append(min(taken[1:]))
        if name == "ours":
            found.calls.append(taken[0] / taken[1])


def against_alone(model: SizedModel, sizes: Sizes, feeds: Feeds, found: Found) -> None:
    """The one program and a compile for these sizes, in turns; both give the same."""
    alone = model.specialize(sizes)
    for name, wanted in alone.run(feeds).items():
        np.testing.assert_allclose(model.run(feeds)[name], wanted, rtol=1e-2, atol=1e-3)
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(timed(model.run, feeds))
        theirs.append(timed(alone.run, feeds))
    found.speed.append(statistics.median(theirs) / statistics.median(ours))
    shapes = tuple(feeds[name].shape for name in model.inputs)
    image = model._anywhere(shapes).image
    found.memory.append(
        (image.arena_bytes + image.workspace_bytes)
        / (alone.image.arena_bytes + alone.image.workspace_bytes)
    )
    print(f"  {sizes}: {found.speed[-1]:.2f}, memory {found.memory[-1]:.2f}", file=sys.stderr)


def measured(name: str, options: argparse.Namespace) -> tuple[str, Found]:
    """A row of the table."""
    ranges = RANGES.get(name, IMAGES)
    proto, start = network(name), time.perf_counter()
    made = autotune.compile(proto, ranges=ranges, threads=options.threads)
    compile_s = time.perf_counter() - start
    model = cast(SizedModel, made)
    if "one program" not in model.notes[0]:
        raise SystemExit(f"{name}: {model.notes[0]}")
    data = proto.SerializeToString()
    engines: dict[str, Run] = {"ours": model.run}
    if not options.alone:
        engines["onnxruntime"] = onnxruntime_run(data, options.threads)
        engines["openvino"] = openvino_run(data, options.threads)
    found, sizes = Found(), list(drawn(ranges, options.count, options.seed))
    before = feeds_at(model, {symbol: low for symbol, (low, _, _) in ranges.items()})
    for number, at in enumerate(sizes):
        feeds = feeds_at(model, at)
        at_size(engines, before, feeds, found)
        if number % options.static_every == 0:
            against_alone(model, at, feeds, found)
        before = feeds
    return f"{Path(name).stem} | {_cells(found)} | {compile_s:.0f} s |", found


def _cells(found: Found) -> str:
    parts = [f"{statistics.median(found.speed):.2f}, {min(found.speed):.2f}"]
    tenth = sorted(found.calls)[-max(1, len(found.calls) // 10)]
    parts.append(f"{statistics.median(found.calls):.2f}, {tenth:.2f}")
    for name in ("onnxruntime", "openvino"):
        if name not in found.later:
            continue
        later = _geomean(found.later[name], found.later["ours"])
        first = _geomean(found.first[name], found.first["ours"])
        parts.append(f"{later:.2f}x, {first:.2f}x")
    parts.append(f"{statistics.median(found.memory):.2f}, {max(found.memory):.2f}")
    return " | ".join(parts)


def _geomean(theirs: list[float], ours: list[float]) -> float:
    logs = [math.log(a / b) for a, b in zip(theirs, ours, strict=True)]
    return math.exp(statistics.fmean(logs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--static-every", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="without the other engines")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-options.threads :]))
    print(
        "| network | of the compile for a size alone: median, least | first call over second: "
        "median, worst tenth | over ONNX Runtime: later, first calls | over OpenVINO: later, "
        "first calls | memory over a size alone: median, most | compile |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.networks:
        row, _ = measured(name, options)
        print(f"| {row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

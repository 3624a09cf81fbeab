"""Latency of models here and on the engines one would use instead, interleaved in one process.

    python benchmarks/peers.py MODEL.onnx ... [--log tuning.db] [--threads 1] [--precision int8]

Needs onnxruntime and openvino (the extra [bench]). The process is pinned to as many cores as there
are threads. Every round runs each engine once after another, so a drift of the machine hits all
alike. Prints a table in Markdown: median milliseconds, the speed-up over the faster of the others,
the largest difference to ONNX Runtime's output over its largest value; then the geometric mean.

With `--precision int8` the others run the model as ONNX Runtime's static quantisation writes it,
on the samples that calibrate ours; our float32 stands beside, and float32 is what outputs are
compared with.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quantized import write_quantized

Feed = dict[str, Any]
Run = Callable[[], list[Any]]
SAMPLES = 4


def feeds(path: Path, seed: int = 7) -> Feed:
    """Seeded inputs: normal floats; small positive integers; masks of ones."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    rng, out, constants = np.random.default_rng(seed), {}, {i.name for i in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        shape = [max(1, d.dim_value) for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(kind, np.floating):
            out[value.name] = rng.standard_normal(shape).astype(kind)
        elif "mask" in value.name:
            out[value.name] = np.ones(shape, kind)
        else:
            out[value.name] = rng.integers(0, 256, shape).astype(kind)
    return out


def ours(
    path: Path, feed: Feed, options: argparse.Namespace, log: str | None, precision: str
) -> Run:
    import autotune

    given = samples(path) if precision == "int8" else None
    model = autotune.compile(
        path, log=log, threads=options.threads, precision=precision, calibration=given
    )
    return lambda: list(model.run(feed).values())


def samples(path: Path) -> list[Feed]:
    """What ranges are found on; the input that is timed is none of them."""
    return [feeds(path, seed) for seed in range(SAMPLES)]


def onnxruntime(path: Path, feed: Feed, options: argparse.Namespace) -> Run:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, feed))


def openvino(path: Path, feed: Feed, options: argparse.Namespace) -> Run:
    import openvino as ov

    kind = "bf16" if options.precision == "bf16" else "f32"
    hints = {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": kind,
    }  # fmt: skip
    compiled = ov.Core().compile_model(str(path), "CPU", hints)
    request = compiled.create_infer_request()

    def run() -> list[Any]:
        request.infer(feed)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def compare(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds per engine, and the errors."""
    feed, kind, theirs = feeds(path), options.precision, path
    runs = {"untuned": ours(path, feed, options, None, kind)}
    if options.log:
        runs["tuned"] = ours(path, feed, options, options.log, kind)
    exact = onnxruntime(path, feed, options)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "int8":
            runs["float32"] = ours(path, feed, options, options.log, "float32")
            theirs = write_quantized(path, samples(path), Path(folder))
        runs["onnxruntime"] = onnxruntime(theirs, feed, options) if theirs != path else exact
        runs["openvino"] = openvino(theirs, feed, options)
    reference = [np.array(a) for a in exact()]
    errors = {
        name: max(_difference(a, b) for a, b in zip(reference, run(), strict=True))
        for name, run in runs.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(v) * 1e3 for name, v in times.items()}
    others = min(medians["onnxruntime"], medians["openvino"])
    best = "tuned" if options.log else "untuned"
    return {
        "model": path.stem, "threads": options.threads, "ms": medians, "error": errors[best],
        "speedup": others / medians[best], "errors": errors,
        "fastest_ms": {name: min(v) * 1e3 for name, v in times.items()},
    }  # fmt: skip


def _difference(wanted: Any, got: Any) -> float:
    largest = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(wanted - np.asarray(got, dtype=np.float64)).max()) / largest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--log")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16", "int8"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-options.threads :]))
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    names = ["untuned", *(["tuned"] if options.log else []), "onnxruntime", "openvino"]
    names += ["float32"] if options.precision == "int8" else []
    print(f"| model | {' | '.join(names)} | speed-up | error |")
    print("| --- |" + " --- |" * (len(names) + 2))
    results = []
    for path in options.models:
        result = compare(path, options)
        results.append(result)
        cells = " | ".join(f"{result['ms'][n]:.2f}" for n in names)
        print(
            f"| {result['model']} | {cells} | {result['speedup']:.2f}x | {result['error']:.0e} |",
            flush=True,
        )
    mean = math.exp(statistics.fmean(math.log(r["speedup"]) for r in results))
    print(f"\ngeometric mean of the speed-ups: {mean:.2f}x")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

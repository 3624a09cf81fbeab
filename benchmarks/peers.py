"""Latency of models here and on the engines one would use instead, interleaved in one process.

    python benchmarks/peers.py MODEL.onnx ... [--log tuning.db] [--threads 1] [--precision int8]
        [--target x86-64-v3] [--processor-time]

Needs onnxruntime and openvino (the extra [bench]). The process is pinned to as many cores as there
are threads. Every round runs each engine once after another, so a drift of the machine hits all
alike. Prints a table in Markdown: median milliseconds, the speed-up over the faster of the others,
the largest difference to ONNX Runtime's output over its largest value; then the geometric mean.

On several threads the engines disturb each other: threads of one spin on for tens of milliseconds
after its run, on cores that the next one needs. With `--apart` each has a process of its own,
which is stopped while the others run.

`--target` is that of our code; OpenVINO is held to AVX2 by ONEDNN_MAX_CPU_ISA=AVX2 around the
command, ONNX Runtime is not. `--processor-time` leaves out what others on the machine took.

With `--precision int8` the others run the model as ONNX Runtime's static quantization writes it,
on the samples that calibrate ours, and so do we in the column `quantized`; our float32 stands
beside, and float32 is what outputs are compared with.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.networks.quantized import write_quantized

Feed = dict[str, Any]
Run = Callable[[], list[Any]]
SAMPLES = 4
BESIDE = {"float32": [], "bf16": ["float32"], "int8": ["float32", "quantized"]}
"""What else of ours is measured, by precision."""


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
        path, target=options.target, log=log, threads=options.threads, precision=precision,
        calibration=given,
    )  # fmt: skip
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


def engine(name: str, path: Path, theirs: Path, options: argparse.Namespace) -> Run:
    """`theirs`: the model that the others run."""
    feed, kind = feeds(path), options.precision
    makers: dict[str, Callable[[], Run]] = {
        "untuned": lambda: ours(path, feed, options, None, kind),
        "tuned": lambda: ours(path, feed, options, options.log, kind),
        "float32": lambda: ours(path, feed, options, options.log, "float32"),
        "quantized": lambda: ours(theirs, feed, options, options.log, "float32"),
        "exact": lambda: onnxruntime(path, feed, options),
        "onnxruntime": lambda: onnxruntime(theirs, feed, options),
        "openvino": lambda: openvino(theirs, feed, options),
    }
    return makers[name]()


class Together:
    """An engine in this process."""

    def __init__(self, name: str, path: Path, theirs: Path, options: argparse.Namespace) -> None:
        self._run = engine(name, path, theirs, options)
        self._clock = time.process_time if options.processor_time else time.perf_counter

    def outputs(self) -> list[Any]:
        return [np.array(a) for a in self._run()]

    def time_s(self) -> float:
        """Of a run, right after another."""
        self._run()
        start = self._clock()
        self._run()
        return self._clock() - start

    def close(self) -> None:
        """Nothing to end."""


class Apart:
    """An engine in a process of its own, which stands still but for its turns."""

    def __init__(self, name: str, path: Path, theirs: Path, options: argparse.Namespace) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".npz")  # noqa: SIM115 (closed with us)
        given = vars(options) | {"models": [], "json": None, "path": str(path)}
        job = json.dumps(given | {"theirs": str(theirs), "name": name, "out": self._file.name})
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", job],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._answer()
        self._process.send_signal(signal.SIGSTOP)

    def _answer(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def outputs(self) -> list[Any]:
        with np.load(self._file.name, allow_pickle=False) as saved:
            return [saved[f"arr_{n}"] for n in range(len(saved.files))]

    def time_s(self) -> float:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        taken_s = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return taken_s

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._file.close()


def serve(job: str) -> None:
    """The process of an engine: a line in, a run, its seconds out."""
    options = argparse.Namespace(**json.loads(job))
    alone = Together(options.name, Path(options.path), Path(options.theirs), options)
    np.savez(options.out, *alone.outputs())
    print(0.0, flush=True)
    for _ in sys.stdin:
        print(alone.time_s(), flush=True)


def compare(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds per engine, and the errors."""
    names, theirs = ["untuned", *(["tuned"] if options.log else [])], path
    names += BESIDE[options.precision]
    place = Apart if options.apart else Together
    with tempfile.TemporaryDirectory() as folder:
        if options.precision == "int8":
            theirs = write_quantized(path, samples(path), Path(folder))
        engines = {
            name: place(name, path, theirs, options)
            for name in (*names, "onnxruntime", "openvino")
        }
        exact = engines["onnxruntime"]
        if theirs != path:
            exact = Together("exact", path, theirs, options)
        reference = exact.outputs()
        errors = {
            name: max(_difference(a, b) for a, b in zip(reference, e.outputs(), strict=True))
            for name, e in engines.items()
        }
        times: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(options.rounds):
            for name, e in engines.items():
                times[name].append(e.time_s())
        for e in engines.values():
            e.close()
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
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--log")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16", "int8"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--apart", action="store_true", help="every engine in its own process")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-options.threads :]))
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    names = ["untuned", *(["tuned"] if options.log else []), "onnxruntime", "openvino"]
    names += BESIDE[options.precision]
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

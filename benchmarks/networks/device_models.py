"""Whole models on a device: is every output ONNX Runtime's, and how long does a run take?

    python benchmarks/networks/device_models.py MODEL.onnx ... [--target opencl] [--log tuning.db]
    python benchmarks/networks/device_models.py MODEL.onnx ... --target sm_90a --emulated

Needs onnxruntime (extra [bench]) and what the target needs (extra [opencl] or [cuda], a driver);
with `--emulated` the tests' driver, which runs kernels for GPUs on the processor, slowly. A
model is right where every output lies within 1e-4 of ONNX Runtime's largest value. Prints a table
in Markdown: kernels, seconds to compile and to load, the median run with the data on the device,
the largest error; ends with status 1 where a model is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.runtime.model import random_feeds
from autotune.types import Array

TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was found of one model."""

    name: str
    kernels: int
    compile_s: float
    load_s: float
    run_s: float
    error: float


def measured(path: Path, target: str, log: str | None, repeats: int) -> Row:
    start = time.perf_counter()
    model = autotune.compile(path, target=target, log=log)
    compile_s = time.perf_counter() - start
    feeds = random_feeds(model.inputs, 0)
    start = time.perf_counter()
    model.run(feeds)  # drivers compile kernels when they are first launched
    load_s = time.perf_counter() - start
    got, want = model.run(feeds), reference(path, feeds)
    return Row(
        name=path.stem,
        kernels=len(model.image.kernels),
        compile_s=compile_s,
        load_s=load_s,
        run_s=model.bench(repeats, feeds=feeds).median_s,
        error=max(relative_error(got[name], array) for name, array in want.items()),
    )


def reference(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def relative_error(got: Array, want: Array) -> float:
    largest = max(float(np.abs(want).max()), 1e-30)
    return float(np.abs(got.astype(np.float64) - want).max()) / largest


def emulated(command: list[str]) -> int:
    """The command again, where there is an emulated GPU."""
    from tests.emulator.driver import emulated_machine

    with tempfile.TemporaryDirectory() as folder:
        machine = emulated_machine(Path(folder))
        return subprocess.run([sys.executable, *command], env=machine, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--log")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--emulated", action="store_true", help="an NVIDIA GPU, by the tests' driver"
    )
    options = parser.parse_args()
    if options.emulated:
        return emulated([a for a in sys.argv if a != "--emulated"])
    print("| model | kernels | compile s | load s | run ms | error | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    wrong = 0
    for path in options.models:
        row = measured(path, options.target, options.log, options.repeats)
        verdict = "right" if row.error <= TOLERANCE else "WRONG"
        wrong += verdict != "right"
        print(
            f"| {row.name} | {row.kernels} | {row.compile_s:.1f} | {row.load_s:.1f} | "
            f"{row.run_s * 1e3:.1f} | {row.error:.1e} | {verdict} |",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

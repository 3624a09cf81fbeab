"""The small tasks whose spaces `search_efficiency.py` measures. In: nothing. Out: tasks by name.

Two of each kind at least, so that one can learn from the other. Those of `fresh` came later, with
other kernels and shapes: the prior was fitted without them, but for a few constants of Winograd's
algorithm, and the order in which algorithms are tried was chosen with their results in view.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.types import Array, Attr, Task, TensorType


def tasks() -> dict[str, Task]:
    """Name -> task, of at least eight kinds."""
    return {
        "conv3x3_28x64": _conv(28, 64, 64, 3),
        "conv3x3_14x128": _conv(14, 128, 128, 3),
        "conv3x3_56x64": _conv(56, 64, 64, 3),
        "conv3x3_7x256": _conv(7, 256, 256, 3),
        "conv7x7_112x3": _conv(112, 3, 64, 7, stride=2),
        "conv7x7_56x4": _conv(56, 4, 32, 7, stride=2),
        "conv1x1_7x512": _conv(7, 512, 256, 1),
        "conv1x1_28x128": _conv(28, 128, 128, 1),
        "conv1x1_14x256": _conv(14, 256, 64, 1),
        "depthwise_28x96": _conv(28, 96, 96, 3, groups=96),
        "depthwise_14x192": _conv(14, 192, 192, 3, groups=192),
        "strided_28x64": _conv(28, 64, 96, 3, stride=2),
        "strided_56x32": _conv(56, 32, 48, 3, stride=2),
        "matmul_256": _matmul((256, 256), (256, 256)),
        "matmul_128x384": _matmul((128, 384), (384, 384)),
        "batched_4x128": _matmul((4, 128, 64), (4, 64, 128)),
        "batched_8x96": _matmul((8, 96, 32), (8, 32, 96)),
        "max_pool_56x64": _unary("max_pool2d", (1, 56, 56, 64), **_POOL),
        "max_pool_28x160": _unary("max_pool2d", (1, 28, 28, 160), **_POOL),
        "softmax_512x384": _unary("softmax", (512, 384), axis=-1),
        "softmax_256x200": _unary("softmax", (256, 200), axis=-1),
        "layer_norm_128x384": _layer_norm(128, 384),
        "layer_norm_256x100": _layer_norm(256, 100),
        "mean_14x256": _unary("reduce_mean", (1, 14, 14, 256), axes=(1, 2), keepdims=True),
        "mean_7x512": _unary("reduce_mean", (1, 7, 7, 512), axes=(1, 2), keepdims=True),
    }


def fresh() -> dict[str, Task]:
    """Name -> task, of shapes and kinds that the prior was not fitted to."""
    return {
        "conv3x3_14x256": _conv(14, 256, 256, 3),
        "conv3x3_112x32": _conv(112, 32, 32, 3),
        "conv1x1_56x64": _conv(56, 64, 256, 1),
        "conv1x7_17x128": _conv(17, 128, 128, (1, 7)),
        "conv5x5_28x32": _conv(28, 32, 64, 5),
        "grouped_28x256": _conv(28, 256, 256, 3, groups=32),
        "depthwise5_14x240": _conv(14, 240, 240, 5, groups=240),
        "strided_14x256": _conv(14, 256, 512, 3, stride=2),
        "matmul_128x1536": _matmul((128, 1536), (1536, 384)),
        "matmul_64x768": _matmul((64, 768), (768, 768)),
        "attention_12x128": _matmul((12, 128, 64), (12, 64, 128)),
        "attention_6x197": _matmul((6, 197, 197), (6, 197, 64)),
        "average_pool_28x192": _unary("avg_pool2d", (1, 28, 28, 192), **_SAME),
        "softmax_1536x128": _unary("softmax", (1536, 128), axis=-1),
        "layer_norm_512x768": _layer_norm(512, 768),
    }


_POOL: dict[str, Attr] = {
    "kernel": (3, 3),
    "strides": (2, 2),
    "pads": (1, 1, 1, 1),
    "dilations": (1, 1),
}
_SAME: dict[str, Attr] = {**_POOL, "strides": (1, 1)}


def _float(*shape: int) -> TensorType:
    return TensorType(dtype="float32", shape=shape)


def _constant(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _only(graph: Graph, op: str) -> Task:
    """The task of that op in a small graph."""
    return next(t for t in partition(optimize(graph)).weights() if t.op == op)


def _conv(
    side: int,
    channels: int,
    outputs: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    groups: int = 1,
) -> Task:
    """A convolution with bias and relu; its input comes from another kernel, so it has a halo."""
    build = GraphBuilder("conv")
    data = build.op("sigmoid", build.input("x", _float(1, side, side, channels)))
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    weights = build.constant(_constant((height, width, channels // groups, outputs)))
    pads = (height // 2, width // 2) * 2
    product = build.op(
        "conv2d", data, weights, strides=(stride, stride), pads=pads, dilations=(1, 1),
        groups=groups,
    )  # fmt: skip
    bias = build.op("add", product, build.constant(_constant((outputs,))))
    return _only(build.finish([("y", build.op("relu", bias))]), "conv2d")


def _matmul(left: tuple[int, ...], right: tuple[int, ...]) -> Task:
    """Plain: times constant weights. Batched: of two activations."""
    build = GraphBuilder("matmul")
    data = build.input("x", _float(*left))
    plain = len(right) == 2
    other = build.constant(_constant(right)) if plain else build.input("w", _float(*right))
    return _only(build.finish([("y", build.op("matmul", data, other))]), "matmul")


def _layer_norm(rows: int, width: int) -> Task:
    build = GraphBuilder("layer_norm")
    data = build.input("x", _float(rows, width))
    scale, shift = (build.constant(_constant((width,))) for _ in range(2))
    done = build.op("layer_norm", data, scale, shift, axis=1, epsilon=1e-5)
    return _only(build.finish([("y", done)]), "layer_norm")


def _unary(op: str, shape: tuple[int, ...], **attrs: Attr) -> Task:
    build = GraphBuilder(op)
    data = build.input("x", _float(*shape))
    return _only(build.finish([("y", build.op(op, data, **attrs))]), op)

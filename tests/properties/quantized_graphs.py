"""Random small networks, quantized as ONNX Runtime writes it: whole graphs, not single operators.

In: a seed. Out: a model, its inputs, and how it was quantized. Networks are of images
(convolutions of all kinds, pools, residuals, concatenations, a head) or of sequences (embeddings,
attention, norms, feed-forward blocks); ranges come from samples, by ONNX Runtime's own tools.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from autotune.types import Array
from tests.unit.frontend.onnx_models import nodes_model

OPSET = 17
SAMPLES = 3
Shape = tuple[int, ...]


class Network:
    """A float network that grows block by block; every block gives a value and its shape."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def draw(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.draw(0, len(choices) - 1)]

    def op(self, op: str, *operands: str | Array, **attrs: Any) -> str:
        names = []
        for operand in operands:
            if isinstance(operand, str):
                names.append(operand)
            else:
                names.append(f"c{len(self.tensors)}")
                self.tensors.append(numpy_helper.from_array(operand, names[-1]))
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], name=name, **attrs))
        return name

    def weights(self, *shape: int) -> Array:
        """As large as keeps what passes through of one size."""
        fan = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
        return (self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)

    def bias(self, size: int) -> Array:
        return (0.1 * self.rng.standard_normal(size)).astype(np.float32)

    def active(self, x: str) -> str:
        kind = self.pick(("", "Relu", "Clip", "Sigmoid", "HardSwish", "LeakyRelu", "Tanh"))
        if kind == "Clip":
            return self.op(kind, x, np.float32(0).reshape(()), np.float32(6).reshape(()))
        return self.op(kind, x) if kind else x


# -------------------------------------------------------------------------------------- images


def conv(m: Network, x: str, shape: Shape, same: bool = False) -> tuple[str, Shape]:
    n, c, h, w = shape
    depthwise = not same and m.draw(0, 3) == 0
    out = c if same or depthwise else m.pick((4, 5, 8, 16))
    kernel, stride = m.pick((1, 3)), 1 if same or min(h, w) < 4 else m.pick((1, 1, 2))
    groups = c if depthwise else 1
    operands = [m.weights(out, c // groups, kernel, kernel)]
    if m.draw(0, 1):
        operands.append(m.bias(out))
    pads = [kernel // 2] * 4
    y = m.op("Conv", x, *operands, group=groups, strides=[stride] * 2, pads=pads)
    return m.active(y), (n, out, -(-h // stride), -(-w // stride))


def residual(m: Network, x: str, shape: Shape) -> tuple[str, Shape]:
    y, _ = conv(m, x, shape, same=True)
    return m.active(m.op("Add", y, x)), shape


def branches(m: Network, x: str, shape: Shape) -> tuple[str, Shape]:
    y, _ = conv(m, x, shape, same=True)
    n, c, h, w = shape
    return m.op("Concat", *m.pick(((y, x), (x, y), (y, y))), axis=1), (n, 2 * c, h, w)


def pool(m: Network, x: str, shape: Shape) -> tuple[str, Shape]:
    n, c, h, w = shape
    if min(h, w) < 2:
        return x, shape
    kind = m.pick(("MaxPool", "AveragePool"))
    return m.op(kind, x, kernel_shape=[2, 2], strides=[2, 2]), (n, c, h // 2, w // 2)


def scaled(m: Network, x: str, shape: Shape) -> tuple[str, Shape]:
    """Squeeze and excitation."""
    mean = m.op("GlobalAveragePool", x)
    gate = m.op("Conv", mean, m.weights(shape[1], shape[1], 1, 1), m.bias(shape[1]))
    return m.op("Mul", x, m.op("Sigmoid", gate)), shape


def normed(m: Network, x: str, shape: Shape) -> tuple[str, Shape]:
    c = shape[1]
    ones = 1 + m.bias(c)
    if m.draw(0, 1):
        return m.op("InstanceNormalization", x, ones, m.bias(c), epsilon=0.1), shape
    moments = (m.bias(c), 1 + np.abs(m.bias(c)))
    return m.op("BatchNormalization", x, ones, m.bias(c), *moments), shape


def head(m: Network, x: str, shape: Shape) -> str:
    kind = m.pick(("mean", "flat", ""))
    if kind == "mean":
        x = m.op("Flatten", m.op("GlobalAveragePool", x))
        return m.op("Gemm", x, m.weights(shape[1], 10), m.bias(10))
    if kind == "flat":
        x, size = m.op("Flatten", x), int(np.prod(shape[1:]))
        return m.op("Softmax", m.op("MatMul", x, m.weights(size, 7)), axis=-1)
    return x


IMAGE: tuple[Callable[[Network, str, Shape], tuple[str, Shape]], ...] = (
    conv, conv, conv, residual, residual, branches, pool, scaled, normed,
)  # fmt: skip


def images(m: Network) -> tuple[str, Mapping[str, Shape]]:
    size = m.draw(3, 11)
    shape: Shape = (m.draw(1, 2), m.pick((1, 3, 8)), size, m.pick((size, m.draw(3, 11))))
    first, x = shape, "x"
    for _ in range(m.draw(2, 5)):
        x, shape = m.pick(IMAGE)(m, x, shape)
        if shape[1] > 32:
            break
    if x == "x":
        x, shape = conv(m, x, shape)
    return head(m, x, shape), {"x": first}


# ----------------------------------------------------------------------------------- sequences


def norm(m: Network, x: str, width: int) -> str:
    scale = 1 + m.bias(width)
    return m.op("LayerNormalization", x, scale, m.bias(width), axis=-1, epsilon=1e-5)


def dense(m: Network, x: str, i: int, o: int) -> str:
    y = m.op("MatMul", x, m.weights(i, o))
    return m.op("Add", *m.pick(((y, m.bias(o)), (m.bias(o), y)))) if m.draw(0, 2) else y


def attention(m: Network, x: str, batch: int, rows: int, width: int) -> str:
    heads = m.pick((1, 2, 4))
    depth = width // heads
    parts = []
    for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        y = dense(m, x, width, width)
        y = m.op("Reshape", y, np.array([batch, rows, heads, depth]))
        parts.append(m.op("Transpose", y, perm=order))
    query, key, value = parts
    scores = m.op("MatMul", query, key)
    scores = m.op("Mul", scores, np.float32(depth**-0.5).reshape(()))
    if m.draw(0, 1):
        hidden = np.where(np.tri(rows) > 0, 0, -1e4).astype(np.float32)
        scores = m.op("Add", scores, hidden)
    y = m.op("MatMul", m.op("Softmax", scores, axis=-1), value)
    y = m.op("Transpose", y, perm=(0, 2, 1, 3))
    y = m.op("Reshape", y, np.array([batch, rows, width]))
    return dense(m, y, width, width)


def forward(m: Network, x: str, width: int) -> str:
    inner = m.pick((width, 2 * width))
    y = dense(m, x, width, inner)
    kind = m.pick(("Relu", "Sigmoid", "Erf", "Tanh"))
    y = m.op("Mul", y, m.op(kind, y)) if kind in ("Sigmoid", "Erf") else m.op(kind, y)
    return dense(m, y, inner, width)


def sequences(m: Network) -> tuple[str, Mapping[str, Shape]]:
    batch, rows, width = m.draw(1, 2), m.pick((4, 5, 8, 16)), m.pick((12, 16, 32, 64))
    x = "x"
    if m.draw(0, 1):
        places = m.weights(rows, width) * np.float32(np.sqrt(rows))
        x = norm(m, m.op("Add", m.op("Add", x, m.bias(width)), places), width)
    for _ in range(m.draw(1, 2)):
        before = m.draw(0, 1)
        for block in m.pick((("a", "f"), ("f",), ("a",))):
            y = norm(m, x, width) if before else x
            y = attention(m, y, batch, rows, width) if block == "a" else forward(m, y, width)
            x = m.op("Add", y, x)
            x = x if before else norm(m, x, width)
    return x, {"x": (batch, rows, width)}


# ------------------------------------------------------------------------------------ quantized


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A model, its inputs, and in words how it was made."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    how: str


def quantized(seed: int) -> Quantized:
    """A network of the seed, in one of the forms in which ONNX Runtime's tools write it."""
    rng = np.random.default_rng(seed)
    m = Network(rng)
    output, shapes = m.pick((images, sequences, sequences))(m)
    draws = [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(SAMPLES + 1)
    ]
    model = nodes_model(m.nodes, draws[0], m.tensors, [output], OPSET)
    model.ir_version = 10
    form = m.pick(("qdq", "qdq", "qoperator", "dynamic"))
    kinds = {"U8": QuantType.QUInt8, "S8": QuantType.QInt8}
    # ONNX Runtime has no kernels of some pairs: unsigned weights for signed data.
    data, weights = m.pick((("U8", "S8"), ("U8", "S8"), ("U8", "U8"), ("S8", "S8")))
    per_channel = bool(m.draw(0, 1))
    with tempfile.TemporaryDirectory() as folder:
        plain, out = Path(folder, "plain.onnx"), Path(folder, "out.onnx")
        onnx.save(model, str(plain))
        common = {"per_channel": per_channel, "weight_type": kinds[weights]}
        if form == "dynamic":
            quantize_dynamic(str(plain), str(out), **common)
        else:
            style = QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator
            quantize_static(
                str(plain), str(out), _Reader(draws[1:]), quant_format=style,
                activation_type=kinds[data], **common,
            )  # fmt: skip
        made = onnx.load(str(out))
    how = f"seed {seed}: {form} {data}{weights}{' per channel' if per_channel else ''}"
    return Quantized(model=made, feeds=draws[0], how=how)


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Sequence[Mapping[str, Array]]) -> None:
        self.left = list(samples)

    def get_next(self) -> Mapping[str, Array] | None:
        return self.left.pop(0) if self.left else None

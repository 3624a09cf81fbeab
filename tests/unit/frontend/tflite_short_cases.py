"""Cases of TensorFlow Lite operators on int16 that counts in steps of a scale, by weights of
int8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.tflite_models import (
    NONE,
    RELU,
    RELU6,
    RNG,
    SAME,
    VALID,
    Tensor,
    activation,
    constant,
    conv,
    depthwise,
    f,
    pool,
    q,
    weights,
)
from tests.unit.frontend.tflite_number_cases import Case


def s(*shape: int, scale: float = 0.0013) -> Tensor:
    return Tensor(shape=shape, dtype="int16", scale=scale)


def wide_bias(count: int) -> Tensor:
    return constant(RNG.integers(-(2**33), 2**33, count), "int64")


def short_cases() -> Iterator[tuple[str, Case]]:
    yield from products()
    yield from pairs()
    yield from functions()


def products() -> Iterator[tuple[str, Case]]:
    for channels in (3, 8):
        image = s(1, 9, 7, channels)
        for stride, padded, kind, out in (
            (1, SAME, NONE, (1, 9, 7, 5)), (2, SAME, RELU, (1, 5, 4, 5)),
            (1, VALID, RELU6, (1, 7, 5, 5)),
        ):  # fmt: skip
            inputs = [image, weights(5, 3, 3, channels), wide_bias(5)]
            name = f"convolution of int16 {channels} {stride} {padded}"
            yield name, ("CONV_2D", inputs, [s(*out, scale=0.09)], conv(stride, padded, kind))
    inputs = [s(1, 9, 7, 6), weights(1, 3, 3, 6, axis=3), wide_bias(6)]
    options = depthwise(2, SAME)
    yield "depthwise of int16", (
        "DEPTHWISE_CONV_2D", inputs, [s(1, 5, 4, 6, scale=0.01)], options
    )  # fmt: skip
    dense = ("FullyConnectedOptions", {"fusedActivationFunction": NONE, "weightsFormat": 0})
    for biased in (True, False):
        more: list[Any] = [wide_bias(9)] if biased else []
        inputs = [s(64, 600), weights(9, 600, channels=False), *more]
        yield f"fully connected of int16 {biased}", (
            "FULLY_CONNECTED", inputs, [s(64, 9, scale=30.0 if biased else 2.2)], dense
        )  # fmt: skip


def pairs() -> Iterator[tuple[str, Case]]:
    for name, kind in (("ADD", "AddOptions"), ("SUB", "SubOptions")):
        for value in (NONE, RELU):
            options = kind, {"fusedActivationFunction": value, "potScaleInt16": False}
            yield f"{name} of int16 {value}", (
                name, [s(3, 70), s(3, 70, scale=0.0007)], [s(3, 70, scale=0.0017)], options
            )  # fmt: skip
    yield "mul of int16", (
        "MUL", [s(3, 70), s(3, 70, scale=0.0007)], [s(3, 70, scale=0.03)],
        activation("MulOptions", RELU),
    )  # fmt: skip
    for name in ("MAXIMUM", "MINIMUM"):
        yield f"{name} of int16", (
            name, [s(4, 7), s(4, 7)], [s(4, 7)], ("MaximumMinimumOptions", {})
        )  # fmt: skip


def functions() -> Iterator[tuple[str, Case]]:
    for scale in (1 / 4096, 1 / 2048, 0.00031, 0.0021, 0.00004):
        every = s(1, 65536, scale=scale)
        for name in ("LOGISTIC", "TANH"):
            yield f"{name} of int16 {scale}", (name, [every], [s(1, 65536, scale=1 / 32768)], None)
    for scale, depth in ((0.0002, 12), (0.001, 500), (0.00003, 3)):
        yield f"softmax of int16 {scale}", (
            "SOFTMAX", [s(5, depth, scale=scale)], [s(5, depth, scale=1 / 32768)],
            ("SoftmaxOptions", {"beta": 1.0}),
        )  # fmt: skip
    image = s(1, 9, 7, 6)
    for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for size, stride, padded, out in (
            (3, 2, SAME, (5, 4)), (2, 2, VALID, (4, 3)), (7, 7, VALID, (1, 1))
        ):  # fmt: skip
            yield f"{name} of int16 {size}", (
                name, [image], [s(1, *out, 6)], pool(size, stride, padded, RELU)
            )  # fmt: skip
    keep = ("ReducerOptions", {"keepDims": True})
    yield "mean of int16", (
        "MEAN", [s(3, 9, 7, 6), constant([1, 2])], [s(3, 1, 1, 6, scale=0.0004)], keep
    )  # fmt: skip
    for name in ("RELU", "RELU6"):
        yield f"{name} of int16", (name, [s(3, 300)], [s(3, 300, scale=0.0008)], None)
    quantize = ("QuantizeOptions", {})
    yield "quantize as int16", ("QUANTIZE", [f(9, 40)], [s(9, 40, scale=0.0001)], quantize)
    yield "bytes as int16", ("QUANTIZE", [q(9, 40)], [s(9, 40)], quantize)
    yield "int16 as bytes", ("QUANTIZE", [s(9, 40)], [q(9, 40, scale=0.4, zero=-9)], quantize)
    yield "dequantize int16", ("DEQUANTIZE", [s(1, 300)], [f(1, 300)], ("DequantizeOptions", {}))
    shape = ("ReshapeOptions", {"newShape": [3, 126]})
    yield "reshape of int16", ("RESHAPE", [image, constant([3, 126])], [s(3, 126)], shape)
    yield "concatenation of int16", (
        "CONCATENATION", [s(2, 3, 5), s(2, 2, 5)], [s(2, 5, 5)],
        ("ConcatenationOptions", {"axis": 1}),
    )  # fmt: skip

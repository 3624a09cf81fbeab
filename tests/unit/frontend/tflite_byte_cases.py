"""Cases of TensorFlow Lite operators whose numbers are bytes in part, or are moved and mixed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.tflite_models import (
    NONE,
    RELU,
    RELU6,
    RNG,
    SAME,
    VALID,
    Tensor,
    activation,
    bias,
    constant,
    conv,
    depthwise,
    f,
    floats,
    pool,
    q,
    weights,
)
from tests.unit.frontend.tflite_number_cases import Case


def byte_cases() -> Iterator[tuple[str, Case]]:
    yield from transposed()
    yield from resized()
    yield from hybrid()
    yield from unsigned()


def transposed() -> Iterator[tuple[str, Case]]:
    for stride, padded, kernel, extent, zero in (
        (2, SAME, 3, 10, 3), (2, VALID, 3, 11, -128), (1, SAME, 4, 5, -7), (3, VALID, 2, 14, 60),
        (2, SAME, 5, 9, 0),
    ):  # fmt: skip
        options = {
            "strideH": stride, "strideW": stride, "padding": padded,
            "fusedActivationFunction": NONE,
        }  # fmt: skip
        for biased in (True, False):
            inputs = [
                constant([1, extent, extent, 4]), weights(4, kernel, kernel, 6),
                q(1, 5, 5, 6, zero=zero), *([bias(4)] if biased else []),
            ]  # fmt: skip
            yield (
                f"transposed convolution of bytes {stride} {padded} {kernel} {biased}",
                (
                    "TRANSPOSE_CONV",
                    inputs,
                    [q(1, extent, extent, 4, scale=0.3, zero=-11)],
                    ("TransposeConvOptions", options),
                ),
            )


def resized() -> Iterator[tuple[str, Case]]:
    for align, half in ((False, False), (True, False), (False, True)):
        for extent in ((13, 4), (18, 14), (1, 1), (9, 20)):
            yield (
                f"bilinear of bytes {align} {half} {extent}",
                (
                    "RESIZE_BILINEAR",
                    [q(2, 9, 7, 5), constant(extent)],
                    [q(2, *extent, 5)],
                    ("ResizeBilinearOptions", {"alignCorners": align, "halfPixelCenters": half}),
                ),
            )


def hybrid() -> Iterator[tuple[str, Case]]:
    """Floats by weights of bytes."""
    for asymmetric in (False, True):
        full = {"fusedActivationFunction": RELU, "asymmetricQuantizeInputs": asymmetric}
        for biased in (floats(7), None):
            yield (
                f"fully connected by bytes {asymmetric} {biased is None}",
                (
                    "FULLY_CONNECTED",
                    [f(3, 20), weights(7, 20, channels=False), biased],
                    [f(3, 7)],
                    ("FullyConnectedOptions", full),
                ),
            )
    for n, (options, out) in enumerate(
        [(conv(1, SAME, NONE), (2, 9, 7, 5)), (conv(2, SAME, RELU), (2, 5, 4, 5)),
         (conv(1, VALID, RELU6), (2, 7, 5, 5))]
    ):  # fmt: skip
        yield (
            f"convolution by bytes {n}",
            ("CONV_2D", [f(2, 9, 7, 6), weights(5, 3, 3, 6), floats(5)], [f(*out)], options),
        )
    yield (
        "convolution by bytes of one scale",
        (
            "CONV_2D",
            [f(2, 9, 7, 6), weights(5, 3, 3, 6, channels=False), floats(5)],
            [f(2, 5, 4, 5)],
            conv(2, SAME, RELU),
        ),
    )
    for stride, padded, extent in ((2, SAME, (1, 5, 4, 6)), (1, VALID, (1, 7, 5, 6))):
        yield (
            f"depthwise by bytes {stride}",
            (
                "DEPTHWISE_CONV_2D",
                [f(1, 9, 7, 6), weights(1, 3, 3, 6, axis=3), floats(6)],
                [f(*extent)],
                depthwise(stride, padded),
            ),
        )


def u(*shape: int, scale: float = 0.05, zero: int = 131) -> Tensor:
    return Tensor(shape=shape, dtype="uint8", scale=scale, zero=zero)


def unsigned_weights(*shape: int, zero: int) -> Tensor:
    return constant(RNG.integers(0, 256, shape), "uint8", scale=0.007, zero=zero)


def unsigned() -> Iterator[tuple[str, Case]]:
    """Bytes without a sign, weights with zero points, as older converters wrote them."""
    image = u(1, 9, 7, 6)
    for zero, padded, out in ((128, SAME, (1, 5, 4, 5)), (0, VALID, (1, 4, 3, 5)),
                              (255, SAME, (1, 5, 4, 5)), (117, SAME, (1, 5, 4, 5))):  # fmt: skip
        inputs = [image, unsigned_weights(5, 3, 3, 6, zero=zero), bias(5)]
        result = u(*out, scale=0.3, zero=120)
        options = conv(2, padded, RELU)
        yield f"convolution of unsigned bytes {zero} {padded}", (
            "CONV_2D", inputs, [result], options,
        )  # fmt: skip
    yield (
        "depthwise of unsigned bytes",
        (
            "DEPTHWISE_CONV_2D",
            [image, unsigned_weights(1, 3, 3, 6, zero=140), bias(6)],
            [u(1, 5, 4, 6, scale=0.1, zero=3)],
            depthwise(2, SAME),
        ),
    )
    yield (
        "fully connected of unsigned bytes",
        (
            "FULLY_CONNECTED",
            [u(3, 20), unsigned_weights(7, 20, zero=99), bias(7)],
            [u(3, 7, scale=0.1, zero=100)],
            activation("FullyConnectedOptions", RELU),
        ),
    )
    for name, kind in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        inputs = [u(1, 256, scale=0.11, zero=121), u(1, 256, scale=0.04, zero=20)]
        yield (
            f"{name} of unsigned bytes",
            (name, inputs, [u(1, 256, scale=0.13)], activation(kind, RELU)),
        )
    for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        yield f"{name} of unsigned bytes", (name, [image], [u(1, 5, 4, 6)], pool(3, 2, SAME, RELU))
    around = constant([[0, 0], [1, 2], [2, 0], [0, 1]])
    yield "pad of unsigned bytes", ("PAD", [image, around], [u(1, 12, 9, 7)], ("PadOptions", {}))
    yield (
        "softmax of unsigned bytes",
        (
            "SOFTMAX",
            [u(7, 12, scale=0.14)],
            [u(7, 12, scale=1 / 256, zero=0)],
            ("SoftmaxOptions", {"beta": 1.0}),
        ),
    )
    yield (
        "concatenation of unsigned bytes",
        ("CONCATENATION", [u(2, 3), u(2, 4)], [u(2, 7)], ("ConcatenationOptions", {"axis": 1})),
    )
    yield "relu of unsigned bytes", ("RELU", [u(1, 256)], [u(1, 256, scale=0.03, zero=9)], None)
    yield "reshape of unsigned bytes", (
        "RESHAPE", [image, constant([3, 126])], [u(3, 126)],
        ("ReshapeOptions", {"newShape": [3, 126]}),
    )  # fmt: skip
    quantize = ("QuantizeOptions", {})
    yield "floats as unsigned bytes", ("QUANTIZE", [f(9, 40)], [u(9, 40, scale=0.03)], quantize)
    yield "unsigned bytes as int8", ("QUANTIZE", [u(1, 256)], [q(1, 256)], quantize)
    yield "unsigned bytes as floats", (
        "DEQUANTIZE", [u(1, 256, scale=0.0371)], [f(1, 256)], ("DequantizeOptions", {}),
    )  # fmt: skip

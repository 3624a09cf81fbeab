"""Every TensorFlow Lite operator that is known gives what the reference kernels give, to the bit
where it is of int8."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotune.frontend import load_model
from autotune.frontend.tflite.context import TFLITE_IMPORTERS
from autotune.graph.interp import run_graph
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.tflite_models import (
    N1_TO_1,
    NONE,
    RELU,
    RELU6,
    RNG,
    SAME,
    VALID,
    Operator,
    Tensor,
    activation,
    bias,
    constant,
    conv,
    depthwise,
    f,
    floats,
    judged,
    pool,
    q,
    tflite_bytes,
    weights,
)
from tests.unit.frontend.tflite_byte_cases import byte_cases
from tests.unit.frontend.tflite_number_cases import Case, number_cases
from tests.unit.frontend.tflite_short_cases import short_cases
from tests.unit.frontend.tflite_step_cases import step_cases


def every(scale: float, zero: int) -> Tensor:
    """All bytes are fed to it."""
    return q(1, 256, scale=scale, zero=zero)


def cases() -> Iterator[tuple[str, Case]]:
    image = q(1, 9, 7, 6)
    for n, (options, out) in enumerate(
        [
            (conv(1, SAME, NONE), (1, 9, 7, 5)),
            (conv(2, SAME, RELU), (1, 5, 4, 5)),
            (conv(1, VALID, RELU6), (1, 7, 5, 5)),
            (conv(1, SAME, N1_TO_1, 2), (1, 9, 7, 5)),
        ]
    ):
        yield (
            f"conv {n}",
            (
                "CONV_2D",
                [image, weights(5, 3, 3, 6), bias(5)],
                [q(*out, scale=0.3, zero=-20)],
                options,
            ),
        )
    one = q(2, 8, 5, 1, zero=-128)
    yield (
        "conv of one channel",
        (
            "CONV_2D",
            [one, weights(8, 4, 3, 1), bias(8)],
            [q(2, 8, 5, 8, scale=0.1, zero=-128)],
            conv(1, SAME, RELU),
        ),
    )
    for stride, padded, out in ((2, SAME, (1, 5, 5, 4)), (3, VALID, (1, 2, 2, 4))):
        yield (
            f"conv of two channels by {stride}",
            (
                "CONV_2D",
                [q(1, 9, 10, 2, zero=3), weights(4, 5, 5, 2), bias(4)],
                [q(*out, scale=0.2, zero=7)],
                conv(stride, padded, NONE),
            ),
        )
    yield (
        "conv of floats",
        (
            "CONV_2D",
            [f(1, 9, 7, 6), floats(5, 3, 3, 6), floats(5)],
            [f(1, 5, 4, 5)],
            conv(2, SAME, RELU6),
        ),
    )
    yield (
        "depthwise",
        (
            "DEPTHWISE_CONV_2D",
            [image, weights(1, 3, 3, 6, axis=3), bias(6)],
            [q(1, 5, 4, 6, scale=0.1)],
            depthwise(2, SAME),
        ),
    )
    yield (
        "depthwise by two",
        (
            "DEPTHWISE_CONV_2D",
            [image, weights(1, 3, 3, 12, axis=3), bias(12)],
            [q(1, 7, 5, 12, scale=0.1)],
            depthwise(1, VALID, 2),
        ),
    )
    yield (
        "depthwise of floats",
        (
            "DEPTHWISE_CONV_2D",
            [f(1, 9, 7, 6), floats(1, 3, 3, 6), floats(6)],
            [f(1, 9, 7, 6)],
            depthwise(1, SAME),
        ),
    )
    full = activation("FullyConnectedOptions", RELU)
    yield (
        "fully connected",
        (
            "FULLY_CONNECTED",
            [q(3, 20), weights(7, 20, channels=False), bias(7)],
            [q(3, 7, scale=0.1)],
            full,
        ),
    )
    yield (
        "fully connected of an image",
        (
            "FULLY_CONNECTED",
            [q(2, 2, 5, 2), weights(7, 20, channels=False), None],
            [q(2, 7, scale=0.1)],
            full,
        ),
    )
    yield (
        "fully connected of floats",
        ("FULLY_CONNECTED", [f(3, 20), floats(7, 20), floats(7)], [f(3, 7)], full),
    )
    for name, kind in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        yield (
            f"{name} of bytes",
            (
                name,
                [every(0.11, -7), every(0.04, 20)],
                [q(1, 256, scale=0.13, zero=5)],
                activation(kind, RELU),
            ),
        )
        yield (
            f"{name} of a constant",
            (
                name,
                [q(2, 3, 5), constant(RNG.integers(-128, 128, 5), "int8", scale=0.3, zero=4)],
                [q(2, 3, 5, scale=0.2)],
                activation(kind),
            ),
        )
        yield (
            f"{name} of floats",
            (name, [f(2, 3, 5), f(1, 3, 5)], [f(2, 3, 5)], activation(kind, RELU6)),
        )
    for name, op in (("mean", "AVERAGE_POOL_2D"), ("max", "MAX_POOL_2D")):
        yield f"{name} of windows", (op, [image], [q(1, 5, 4, 6)], pool(3, 2, SAME, RELU))
        yield f"{name} of all", (op, [q(1, 5, 5, 6)], [q(1, 1, 1, 6)], pool(5, 5, VALID))
        yield f"{name} of floats", (op, [f(1, 9, 7, 6)], [f(1, 5, 4, 6)], pool(3, 2, SAME))
    keep = ("ReducerOptions", {"keepDims": True})
    yield (
        "mean of an image",
        ("MEAN", [image, constant([1, 2])], [q(1, 1, 1, 6, scale=0.03, zero=-5)], keep),
    )
    yield (
        "mean of a row",
        (
            "MEAN",
            [q(4, 7), constant([-1])],
            [q(4, scale=0.04, zero=1)],
            ("ReducerOptions", {"keepDims": False}),
        ),
    )
    yield "mean of floats", ("MEAN", [f(1, 9, 7, 6), constant([1, 2])], [f(1, 1, 1, 6)], keep)
    yield "largest of rows", ("REDUCE_MAX", [q(4, 7), constant([1])], [q(4, 1)], keep)
    yield "least of rows", ("REDUCE_MIN", [q(4, 7), constant([1])], [q(4, 1)], keep)
    yield (
        "place of the largest",
        (
            "ARG_MAX",
            [q(4, 7), constant(1)],
            [Tensor(shape=(4,), dtype="int32")],
            ("ArgMaxOptions", {"outputType": 2}),
        ),
    )
    for scale, depth in ((0.14, 12), (0.6, 5), (0.02, 100), (1.7, 256)):
        yield (
            f"softmax of {scale}",
            (
                "SOFTMAX",
                [q(7, depth, scale=scale, zero=14)],
                [q(7, depth, scale=1 / 256, zero=-128)],
                ("SoftmaxOptions", {"beta": 1.0}),
            ),
        )
    yield (
        "softmax of floats",
        ("SOFTMAX", [f(7, 12)], [f(7, 12)], ("SoftmaxOptions", {"beta": 1.0})),
    )
    for scale, zero in ((0.06, 3), (0.002, -100), (0.4, 0)):
        yield (
            f"logistic {scale}",
            ("LOGISTIC", [every(scale, zero)], [q(1, 256, scale=1 / 256, zero=-128)], None),
        )
        yield (
            f"tanh {scale}",
            ("TANH", [every(scale, zero)], [q(1, 256, scale=1 / 128, zero=0)], None),
        )
        hard = ("HardSwishOptions", {})
        yield (
            f"hard swish {scale}",
            ("HARD_SWISH", [every(scale, zero)], [q(1, 256, scale=scale * 0.7, zero=-9)], hard),
        )
        leaky = ("LeakyReluOptions", {"alpha": 0.17})
        yield (
            f"leaky relu {scale}",
            ("LEAKY_RELU", [every(scale, zero)], [q(1, 256, scale=scale * 0.8, zero=-50)], leaky),
        )
        yield (
            f"requantize {scale}",
            (
                "QUANTIZE",
                [every(scale, zero)],
                [q(1, 256, scale=scale * 1.3, zero=11)],
                ("QuantizeOptions", {}),
            ),
        )
        for name in ("RELU", "RELU6", "RELU_N1_TO_1"):
            yield (
                f"{name} {scale}",
                (name, [every(scale, zero)], [q(1, 256, scale=scale * 0.61, zero=-zero)], None),
            )
    for name, kind in (
        ("LOGISTIC", None),
        ("TANH", None),
        ("RELU", None),
        ("RELU6", None),
        ("RELU_N1_TO_1", None),
        ("HARD_SWISH", ("HardSwishOptions", {})),
        ("LEAKY_RELU", ("LeakyReluOptions", {"alpha": 0.2})),
    ):
        yield f"{name} of floats", (name, [f(3, 50)], [f(3, 50)], kind)  # type: ignore[misc]
    yield "quantize", ("QUANTIZE", [f(9, 40)], [q(9, 40, scale=0.03)], ("QuantizeOptions", {}))
    yield "dequantize", ("DEQUANTIZE", [every(0.0371, 5)], [f(1, 256)], ("DequantizeOptions", {}))
    for name in ("MAXIMUM", "MINIMUM"):
        yield name, (name, [q(4, 7), q(4, 1)], [q(4, 7)], ("MaximumMinimumOptions", {}))
    yield from moves(image)


def moves(image: Tensor) -> Iterator[tuple[str, Case]]:
    shape = ("ReshapeOptions", {"newShape": [3, 126]})
    yield "reshape", ("RESHAPE", [image, constant([3, 126])], [q(3, 126)], shape)
    yield (
        "squeeze",
        ("SQUEEZE", [q(1, 3, 1, 5)], [q(3, 5)], ("SqueezeOptions", {"squeezeDims": [0, 2]})),
    )
    yield (
        "expand dims",
        ("EXPAND_DIMS", [q(3, 5), constant(1)], [q(3, 1, 5)], ("ExpandDimsOptions", {})),
    )
    yield (
        "transpose",
        ("TRANSPOSE", [q(2, 3, 5), constant([2, 0, 1])], [q(5, 2, 3)], ("TransposeOptions", {})),
    )
    yield (
        "concatenation",
        (
            "CONCATENATION",
            [q(2, 3, 5), q(2, 2, 5)],
            [q(2, 5, 5)],
            ("ConcatenationOptions", {"axis": 1}),
        ),
    )
    around = constant([[0, 0], [1, 2], [2, 0], [0, 1]])
    yield "pad", ("PAD", [image, around], [q(1, 12, 9, 7)], ("PadOptions", {}))
    value = constant([17], "int8", scale=0.05, zero=3)
    yield (
        "pad with a number",
        ("PADV2", [image, around, value], [q(1, 12, 9, 7)], ("PadV2Options", {})),
    )
    yield (
        "slice",
        (
            "SLICE",
            [image, constant([0, 1, 2, 0]), constant([1, 3, -1, 2])],
            [q(1, 3, 5, 2)],
            ("SliceOptions", {}),
        ),
    )
    masks = {
        "beginMask": 1,
        "endMask": 4,
        "shrinkAxisMask": 8,
        "ellipsisMask": 0,
        "newAxisMask": 0,
    }
    yield (
        "strided slice",
        (
            "STRIDED_SLICE",
            [image, constant([5, 1, -4, 2]), constant([1, 8, 0, 3]), constant([1, 3, 2, 1])],
            [q(1, 3, 2)],
            ("StridedSliceOptions", masks),
        ),
    )
    yield (
        "split",
        (
            "SPLIT",
            [constant(2), q(2, 3, 6)],
            [q(2, 3, 2) for _ in range(3)],
            ("SplitOptions", {"numSplits": 3}),
        ),
    )
    yield (
        "pack",
        ("PACK", [q(2, 3), q(2, 3)], [q(2, 2, 3)], ("PackOptions", {"axis": 1, "valuesCount": 2})),
    )
    for align, half in ((False, False), (True, False), (False, True)):
        yield (
            f"nearest {align} {half}",
            (
                "RESIZE_NEAREST_NEIGHBOR",
                [image, constant([13, 4])],
                [q(1, 13, 4, 6)],
                (
                    "ResizeNearestNeighborOptions",
                    {"alignCorners": align, "halfPixelCenters": half},
                ),
            ),
        )


MORE = (number_cases, byte_cases, step_cases, short_cases)
CASES = dict(cases()) | {name: case for more in MORE for name, case in more()}


NOT_BY_REFERENCE = ("sum of bytes", "sum of bytes along two dimensions")
"""The reference kernel gives other numbers than sums here; the judge is the default one."""


def test_every_importer_has_a_case() -> None:
    cases = {case[0] for case in CASES.values()} | {"UNIDIRECTIONAL_SEQUENCE_LSTM"}  # elsewhere
    assert cases == set(TFLITE_IMPORTERS)


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_reference_kernels(name: str) -> None:
    operator, inputs, outputs, options = CASES[name]
    given = [t for t in inputs if t is not None and t.data is None]
    made = Operator(name=operator, inputs=inputs, outputs=outputs, options=options)
    model = tflite_bytes([made], given, outputs)
    graph = load_model(model)
    verify_graph(graph)
    for seed in range(3):
        arrays = [_fed(tensor, seed) for tensor in given]
        feeds = dict(zip((name for name, _ in graph.inputs), arrays, strict=True))
        got = run_graph(graph, feeds)
        wanted = judged(model, arrays, reference=name not in NOT_BY_REFERENCE)
        for (name_, _), want in zip(graph.outputs, wanted, strict=True):
            if want.dtype == np.float32:
                np.testing.assert_allclose(got[name_], want, rtol=2e-5, atol=2e-5)
            else:
                np.testing.assert_array_equal(got[name_], want, strict=True)


def _fed(tensor: Tensor, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if tensor.dtype == "float32":
        return (rng.standard_normal(tensor.shape) * 2).astype(np.float32)
    if tensor.dtype in ("int32", "int64"):
        return rng.integers(-9, 10, tensor.shape).astype(tensor.dtype)
    if tensor.dtype == "int16":
        shorts = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
        return rng.permuted(shorts)[None] if tuple(tensor.shape) == (1, 65536) else rng.choice(
            shorts, tensor.shape
        )  # fmt: skip
    every = np.arange(-128, 128, dtype=np.int8).view(tensor.dtype)
    if tuple(tensor.shape) == (1, 256):
        return rng.permuted(every)[None]
    return rng.choice(every, tensor.shape)

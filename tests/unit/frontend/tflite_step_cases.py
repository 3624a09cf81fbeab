"""Cases of TensorFlow Lite operators on int8 that counts in steps of a scale, beyond those of
convolutional networks."""

from __future__ import annotations

from collections.abc import Iterator

from tests.tflite_models import RELU, RNG, Tensor, activation, bias, constant, f, q, weights
from tests.unit.frontend.tflite_number_cases import Case, whole


def step_cases() -> Iterator[tuple[str, Case]]:
    yield from functions()
    yield from pairs()
    yield from products()
    yield from along_dimensions()
    yield from places()


def every(scale: float, zero: int) -> Tensor:
    """All bytes are fed to it."""
    return q(1, 256, scale=scale, zero=zero)


def functions() -> Iterator[tuple[str, Case]]:
    for name in ("ABS", "EXP", "LOG", "ELU"):
        for scale, zero, step, point in ((0.05, 3, 0.05, 3), (0.03, -128, 0.021, -20),
                                         (0.011, 127, 0.007, 90)):  # fmt: skip
            yield (
                f"{name} of bytes {zero}",
                (name, [every(scale, zero)], [every(step, point)], None),
            )
    for approximate in (False, True):
        options = ("GeluOptions", {"approximate": approximate})
        yield (
            f"gelu of bytes {approximate}",
            ("GELU", [every(0.04, 5)], [every(0.021, -100)], options),
        )
    for scale, step, point in ((0.05, 0.02, -128), (0.7, 0.004, 11), (0.0039, 0.13, -100)):
        yield (
            f"reciprocal roots of bytes {point}",
            ("RSQRT", [every(scale, -128)], [every(step, point)], None),
        )
    for name in ("RELU_0_TO_1",):
        yield f"{name} of bytes", (name, [every(0.03, 4)], [every(1 / 255, -128)], None)
        yield f"{name} of floats", (name, [f(3, 50)], [f(3, 50)], None)


def pairs() -> Iterator[tuple[str, Case]]:
    left, right = every(0.05, 3), every(0.031, -40)
    yield (
        "squared difference of bytes",
        ("SQUARED_DIFFERENCE", [left, right], [every(0.6, -128)], None),
    )
    yield (
        "squared difference of rows of bytes",
        ("SQUARED_DIFFERENCE", [q(4, 7), q(1, 7, scale=0.02)], [q(4, 7, scale=0.3)], None),
    )
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        made = whole(1, 256, dtype="bool")
        yield f"{name} of bytes", (name, [left, right], [made], None)
        yield f"{name} of bytes of one scale", (name, [left, every(0.05, 3)], [made], None)
    slopes = constant(RNG.integers(-127, 128, (1, 1, 5)), "int8", scale=0.004, zero=2)
    yield (
        "prelu of bytes",
        ("PRELU", [q(2, 3, 4, 5), slopes], [q(2, 3, 4, 5, scale=0.045, zero=-9)], None),
    )
    truth = constant(RNG.random((3, 5)) < 0.5, "bool")
    yield "select of bytes", ("SELECT_V2", [truth, q(3, 5), q(1, 5)], [q(3, 5)], None)
    yield (
        "select of bytes by rows",
        ("SELECT", [constant([True, False, True], "bool"), q(3, 5), q(3, 5)], [q(3, 5)], None),
    )
    yield "sum of several", ("ADD_N", [f(3, 5), f(3, 5), f(3, 5)], [f(3, 5)], ("AddNOptions", {}))


def products() -> Iterator[tuple[str, Case]]:
    for turned in (False, True):
        for zero in (0, -7):
            left = q(2, 3, 4, 5)
            right = q(2, 3, 6, 5, zero=zero) if turned else q(2, 3, 5, 6, zero=zero)
            options = ("BatchMatMulOptions", {"adjY": turned})
            yield (
                f"products of bytes {turned} {zero}",
                ("BATCH_MATMUL", [left, right], [q(2, 3, 4, 6, scale=0.2, zero=9)], options),
            )
    yield (
        "products of bytes by one matrix",
        ("BATCH_MATMUL", [q(3, 4, 20), weights(20, 6, channels=False)],
         [q(3, 4, 6, scale=0.2)], ("BatchMatMulOptions", {})),
    )  # fmt: skip
    full = activation("FullyConnectedOptions", RELU)
    for zero in (0, 5):
        computed = q(7, 20, scale=0.01, zero=zero)
        yield (
            f"fully connected by computed bytes {zero}",
            ("FULLY_CONNECTED", [q(3, 20), computed, bias(7)], [q(3, 7, scale=0.1)], full),
        )
    yield (
        "fully connected by computed floats",
        ("FULLY_CONNECTED", [f(3, 20), f(7, 20), None], [f(3, 7)], full),
    )


def along_dimensions() -> Iterator[tuple[str, Case]]:
    keep = ("ReducerOptions", {"keepDims": True})
    yield "sum of bytes", ("SUM", [q(2, 9, 6), constant([1])], [q(2, 1, 6, scale=0.3)], keep)
    yield (
        "sum of bytes along two dimensions",
        ("SUM", [q(2, 9, 6), constant([0, 2])], [q(9, scale=0.21, zero=-5)],
         ("ReducerOptions", {})),
    )  # fmt: skip
    for count in (3, 64, 1000):
        yield (
            f"{count} bytes by their length",
            ("L2_NORMALIZATION", [q(4, count)], [q(4, count, scale=1 / 128, zero=0)],
             ("L2NormOptions", {})),
        )  # fmt: skip
    for name in ("REDUCE_ANY", "REDUCE_ALL"):
        truth = constant(RNG.random((3, 4)) < 0.6, "bool")
        yield (
            name,
            (name, [truth, constant([1])], [whole(3, dtype="bool")], ("ReducerOptions", {})),
        )
    for tensor in (q(3, 9), f(3, 9)):
        yield (
            f"place of the least of {tensor.dtype}",
            ("ARG_MIN", [tensor, constant(1)], [whole(3)], ("ArgMinOptions", {"outputType": 2})),
        )
        values = Tensor(shape=(3, 4), dtype=tensor.dtype, scale=tensor.scale, zero=tensor.zero)
        yield (
            f"largest of {tensor.dtype}",
            ("TOPK_V2", [tensor, constant(4)], [values, whole(3, 4)], ("TopKV2Options", {})),
        )


def places() -> Iterator[tuple[str, Case]]:
    for tensor in (q, f):
        yield (
            f"images of a batch for blocks {tensor.__name__}",
            ("SPACE_TO_BATCH_ND", [tensor(2, 5, 7, 3), constant([2, 3]),
                                   constant([[1, 2], [0, 2]])],
             [tensor(12, 4, 3, 3)], ("SpaceToBatchNDOptions", {})),
        )  # fmt: skip
        yield (
            f"blocks of images of a batch {tensor.__name__}",
            ("BATCH_TO_SPACE_ND", [tensor(12, 4, 3, 3), constant([2, 3]),
                                   constant([[1, 2], [0, 2]])],
             [tensor(2, 5, 7, 3)], ("BatchToSpaceNDOptions", {})),
        )  # fmt: skip
    chosen = constant([[0, 2], [2, 4], [1, 0]])
    yield (
        "gather of places",
        ("GATHER_ND", [q(3, 5, 2), chosen], [q(3, 2)], ("GatherNdOptions", {})),
    )
    on, off = (constant(v, "float32") for v in (1.0, 0.0))
    for axis, shape in ((-1, (3, 6)), (0, (6, 3))):
        yield (
            f"one of many {axis}",
            ("ONE_HOT", [constant([4, 0, 7]), constant(6), on, off], [f(*shape)],
             ("OneHotOptions", {"axis": axis})),
        )  # fmt: skip
    backward = [constant(v) for v in ([0, 4, 0, 1], [3, 0, 2, 9], [1, -2, 1, 2])]
    yield (
        "ranges backward",
        ("STRIDED_SLICE", [q(3, 5, 2, 8), *backward], [q(3, 2, 2, 4)],
         ("StridedSliceOptions", {})),
    )  # fmt: skip
    two = [constant(v) for v in ([0, 1], [0, 2], [1, 1])]
    yield (
        "ranges of the last dimension alone",
        ("STRIDED_SLICE", [q(3, 5, 8), *two], [q(3, 5)],
         ("StridedSliceOptions", {"ellipsisMask": 1, "shrinkAxisMask": 2})),
    )  # fmt: skip
    three = [constant(v) for v in ([0, 0, 1], [0, 0, 3], [1, 1, 1])]
    yield (
        "ranges around a new dimension",
        ("STRIDED_SLICE", [q(3, 8), *three], [q(3, 1, 2)],
         ("StridedSliceOptions", {"newAxisMask": 2, "beginMask": 1, "endMask": 1})),
    )  # fmt: skip
    for kind in ("float32", "int32"):
        yield (
            f"counts of bytes as {kind}",
            ("CAST", [q(3, 5)], [Tensor(shape=(3, 5), dtype=kind)], ("CastOptions", {})),
        )

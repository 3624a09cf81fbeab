"""Cases of TensorFlow Lite operators on numbers without scales, and of those that move
elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.tflite_models import NONE, RELU, RNG, SAME, VALID, Tensor, constant, f, floats, q

Case = tuple[str, Sequence[Tensor | None], Sequence[Tensor], "tuple[str, dict[str, Any]] | None"]


def whole(*shape: int, dtype: str = "int32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


def number_cases() -> Iterator[tuple[str, Case]]:
    yield from functions()
    yield from sums()
    yield from places()
    yield from images()


def functions() -> Iterator[tuple[str, Case]]:
    for name in (
        "ABS",
        "CEIL",
        "COS",
        "ELU",
        "EXP",
        "FLOOR",
        "NEG",
        "ROUND",
        "SIN",
        "SQUARE",
        "SIGN",
    ):
        yield f"{name} of floats", (name, [f(3, 50)], [f(3, 50)], None)
    for name in ("LOG", "RSQRT", "SQRT"):
        positive = constant(RNG.uniform(0.01, 9, (3, 50)), "float32")
        yield name, (name, [positive], [f(3, 50)], None)
    for approximate in (False, True):
        options = ("GeluOptions", {"approximate": approximate})
        yield f"gelu {approximate}", ("GELU", [f(3, 50)], [f(3, 50)], options)
    yield "squared difference", ("SQUARED_DIFFERENCE", [f(3, 5), f(1, 5)], [f(3, 5)], None)
    apart = constant(RNG.uniform(0.5, 3, (1, 5)) * [1, -1, 1, -1, 1], "float32")
    fused = ("DivOptions", {"fusedActivationFunction": RELU})
    yield "div", ("DIV", [f(3, 5), apart], [f(3, 5)], fused)
    few = constant([[3, -2, 5, -7, 1]])
    for name in ("FLOOR_DIV", "FLOOR_MOD"):
        yield f"{name} of floats", (name, [f(3, 5), apart], [f(3, 5)], None)
        yield f"{name} of integers", (name, [whole(3, 5), few], [whole(3, 5)], None)
    yield (
        "pow",
        ("POW", [constant(RNG.uniform(0.1, 2, (3, 5)), "float32"), f(1, 5)], [f(3, 5)], None),
    )
    yield "prelu", ("PRELU", [f(2, 3, 4, 5), floats(1, 1, 5)], [f(2, 3, 4, 5)], None)
    truth = constant(RNG.random((3, 5)) < 0.5, "bool")
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        yield name, (name, [whole(3, 5), whole(1, 5)], [whole(3, 5, dtype="bool")], None)
    both = [truth, constant([[True, False, True, True, False]], "bool")]
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield name, (name, both, [whole(3, 5, dtype="bool")], None)
    yield "LOGICAL_NOT", ("LOGICAL_NOT", [truth], [whole(3, 5, dtype="bool")], None)
    yield (
        "select by rows",
        ("SELECT", [constant([True, False, True], "bool"), f(3, 5), f(3, 5)], [f(3, 5)], None),
    )
    yield "select", ("SELECT_V2", [truth, f(3, 5), f(1, 5)], [f(3, 5)], None)
    for of, to in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("int32", "int64"),
        ("int32", "bool"),
    ):
        yield (
            f"{of} as {to}",
            ("CAST", [whole(3, 5, dtype=of)], [whole(3, 5, dtype=to)], ("CastOptions", {})),
        )


def sums() -> Iterator[tuple[str, Case]]:
    keep = ("ReducerOptions", {"keepDims": True})
    yield "sum", ("SUM", [f(2, 9, 6), constant([1])], [f(2, 1, 6)], keep)
    yield "sum of integers", ("SUM", [whole(2, 9, 6), constant([0, 2])], [whole(1, 9, 1)], keep)
    yield (
        "product",
        ("REDUCE_PROD", [f(2, 5, 6), constant([-1])], [f(2, 5)], ("ReducerOptions", {})),
    )
    for exclusive, reverse in ((False, False), (True, False), (False, True)):
        options = ("CumsumOptions", {"exclusive": exclusive, "reverse": reverse})
        yield (
            f"sums up to each {exclusive} {reverse}",
            ("CUMSUM", [f(2, 9, 6), constant(1)], [f(2, 9, 6)], options),
        )
    yield "lengths of one", ("L2_NORMALIZATION", [f(4, 9)], [f(4, 9)], ("L2NormOptions", {}))
    yield "log softmax", ("LOG_SOFTMAX", [f(4, 9)], [f(4, 9)], ("LogSoftmaxOptions", {}))
    for turned in (False, True):
        left, right = f(2, 3, 4, 5), f(2, 3, 6, 5) if turned else f(2, 3, 5, 6)
        options = ("BatchMatMulOptions", {"adjY": turned})
        yield f"products {turned}", ("BATCH_MATMUL", [left, right], [f(2, 3, 4, 6)], options)


def places() -> Iterator[tuple[str, Case]]:
    around = constant([[0, 0], [1, 2], [2, 0], [0, 1]])
    for mode in (0, 1):
        yield (
            f"mirrored {mode}",
            (
                "MIRROR_PAD",
                [q(1, 4, 3, 5), around],
                [q(1, 7, 5, 6)],
                ("MirrorPadOptions", {"mode": mode}),
            ),
        )
    chosen = constant([4, 0, 4, 2])
    yield "gather", ("GATHER", [q(3, 5), chosen], [q(3, 4)], ("GatherOptions", {"axis": 1}))
    yield "gather of floats", ("GATHER", [f(5, 2), chosen], [f(4, 2)], ("GatherOptions", {}))
    yield "tile", ("TILE", [f(3, 5), constant([2, 3])], [f(6, 15)], None)
    yield "broadcast", ("BROADCAST_TO", [f(3, 1), constant([2, 3, 5])], [f(2, 3, 5)], None)
    yield (
        "unpack",
        ("UNPACK", [q(3, 2, 4)], [q(3, 4), q(3, 4)], ("UnpackOptions", {"axis": 1, "num": 2})),
    )
    parts = [f(3, 2), f(3, 5), f(3, 3)]
    yield (
        "split in given parts",
        (
            "SPLIT_V",
            [f(3, 10), constant([2, -1, 3]), constant(1)],
            parts,
            ("SplitVOptions", {"numSplits": 3}),
        ),
    )
    yield "reverse", ("REVERSE_V2", [f(3, 5), constant([1])], [f(3, 5)], ("ReverseV2Options", {}))
    yield (
        "depth to space",
        (
            "DEPTH_TO_SPACE",
            [q(1, 3, 2, 12)],
            [q(1, 6, 4, 3)],
            ("DepthToSpaceOptions", {"blockSize": 2}),
        ),
    )
    yield (
        "space to depth",
        (
            "SPACE_TO_DEPTH",
            [f(1, 6, 4, 3)],
            [f(1, 3, 2, 12)],
            ("SpaceToDepthOptions", {"blockSize": 2}),
        ),
    )
    yield "shape", ("SHAPE", [f(3, 5)], [whole(2)], ("ShapeOptions", {"outType": 2}))
    yield "rank", ("RANK", [f(3, 5)], [whole()], ("RankOptions", {}))
    yield "zeros", ("ZEROS_LIKE", [f(3, 5)], [f(3, 5)], ("ZerosLikeOptions", {}))
    yield (
        "fill",
        ("FILL", [constant([3, 5]), constant(2.5, "float32")], [f(3, 5)], ("FillOptions", {})),
    )
    for block in ((1, 1), (2, 3)):
        mask = np.kron(RNG.random((8 // block[0], 12 // block[1])) < 0.3, np.ones(block))
        numbers = (RNG.standard_normal((8, 12)) * mask).astype(np.float32)
        sparse = Tensor(shape=(8, 12), dtype="float32", data=numbers, block=block)
        yield (
            f"sparse in blocks of {block}",
            ("DENSIFY", [sparse], [f(8, 12)], ("DensifyOptions", {})),
        )


def images() -> Iterator[tuple[str, Case]]:
    for stride, padded, extent in ((2, SAME, 10), (2, VALID, 11), (1, SAME, 5), (3, VALID, 15)):
        options = {
            "strideH": stride,
            "strideW": stride,
            "padding": padded,
            "fusedActivationFunction": NONE,
        }
        yield (
            f"transposed convolution by {stride} {padded}",
            (
                "TRANSPOSE_CONV",
                [constant([1, extent, extent, 4]), floats(4, 3, 3, 6), f(1, 5, 5, 6), floats(4)],
                [f(1, extent, extent, 4)],
                ("TransposeConvOptions", options),
            ),
        )
    for align, half in ((False, False), (True, False), (False, True)):
        for extent in ((13, 4), (18, 14)):
            yield (
                f"bilinear {align} {half} {extent}",
                (
                    "RESIZE_BILINEAR",
                    [f(1, 9, 7, 6), constant(extent)],
                    [f(1, *extent, 6)],
                    ("ResizeBilinearOptions", {"alignCorners": align, "halfPixelCenters": half}),
                ),
            )

"""Single operators at sizes that networks have, as ONNX models, for `benchmarks/ops.py`.

A case is one node in the standard's layout, the arrays that it is given and those it holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.operators import further_ops, odd_ops
from benchmarks.operators.single_ops_case import Case, Draw, ints, size_of

RNG_SEED = 0


def cases() -> Iterator[Case]:
    """Every case, family by family; arrays are drawn under one seed."""
    draw = Draw(np.random.default_rng(RNG_SEED))
    for family in (*FAMILIES, *further_ops.FAMILIES, *odd_ops.FAMILIES):
        yield from family(draw)


IMAGES = ((64, 128, 128), (256, 40, 40), (19, 65, 65), (128, 28, 28))


def resizes(draw: Draw) -> Iterator[Case]:
    kinds = (("nearest", 2), ("linear", 2), ("linear", 4), ("cubic", 2), ("nearest", 3))
    for (mode, factor), image in itertools.product(kinds, IMAGES):
        scales = np.array([1, 1, factor, factor], np.float32)
        yield Case(
            name=f"resize {mode} x{factor} {size_of(*image)}", op="Resize",
            feeds={"x": draw.floats(1, *image)}, constants={"s": scales},
            attrs={"mode": mode}, order=("x", "", "s"),
        )  # fmt: skip
    for image in IMAGES:
        yield Case(
            name=f"resize linear aligned x2 {size_of(*image)}", op="Resize",
            feeds={"x": draw.floats(1, *image)},
            constants={"s": np.array([1, 1, 2, 2], np.float32)},
            attrs={"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            order=("x", "", "s"),
        )  # fmt: skip


def pads(draw: Draw) -> Iterator[Case]:
    for mode, width, image in itertools.product(
        ("constant", "reflect", "edge"), (1, 3), IMAGES[:3]
    ):
        yield Case(
            name=f"pad {mode} {width} {size_of(*image)}", op="Pad",
            feeds={"x": draw.floats(1, *image)},
            constants={"p": ints(0, 0, width, width, 0, 0, width, width)},
            attrs={"mode": mode},
        )  # fmt: skip


def transposes(draw: Draw) -> Iterator[Case]:
    images = (*IMAGES, (256, 56, 56), (3, 224, 224), (512, 7, 7), (64, 112, 112))
    for shape in images:
        yield Case(
            name=f"transpose to channels last {size_of(*shape)}", op="Transpose",
            feeds={"x": draw.floats(1, *shape)}, attrs={"perm": [0, 2, 3, 1]},
        )  # fmt: skip
        channels, height, width = shape
        yield Case(
            name=f"transpose to channels first {size_of(height, width, channels)}", op="Transpose",
            feeds={"x": draw.floats(1, height, width, channels)}, attrs={"perm": [0, 3, 1, 2]},
        )  # fmt: skip
    for rows, heads, width in ((512, 12, 64), (197, 12, 64), (2048, 8, 128)):
        yield Case(
            name=f"transpose of heads {size_of(rows, heads, width)}", op="Transpose",
            feeds={"x": draw.floats(1, rows, heads, width)}, attrs={"perm": [0, 2, 1, 3]},
        )  # fmt: skip
    for size in (512, 1000, 1024, 2048):
        yield Case(
            name=f"transpose {size_of(size, size)}", op="Transpose",
            feeds={"x": draw.floats(size, size)}, attrs={"perm": [1, 0]},
        )  # fmt: skip
    for block, (channels, height, width) in itertools.product((2, 4), IMAGES[:2]):
        yield Case(
            name=f"depth to space {block} {size_of(channels, height, width)}", op="DepthToSpace",
            feeds={"x": draw.floats(1, channels, height, width)}, attrs={"blocksize": block},
        )  # fmt: skip
        yield Case(
            name=f"space to depth {block} {size_of(channels, height, width)}", op="SpaceToDepth",
            feeds={"x": draw.floats(1, channels, height, width)}, attrs={"blocksize": block},
        )  # fmt: skip


def reductions(draw: Draw) -> Iterator[Case]:
    for channels, size in ((21, 256), (19, 128), (80, 40), (150, 64)):
        image = draw.floats(1, channels, size, size)
        shape = size_of(channels, size, size)
        for op in ("ArgMax", "Softmax", "LogSoftmax"):
            yield Case(name=f"{op.lower()} over channels {shape}", op=op, feeds={"x": image},
                       attrs={"axis": 1})  # fmt: skip
        yield Case(name=f"reducemax over channels {shape}", op="ReduceMax", feeds={"x": image},
                   constants={"a": ints(1)})  # fmt: skip
        yield Case(name=f"reducemean over points {shape}", op="ReduceMean", feeds={"x": image},
                   constants={"a": ints(2, 3)})  # fmt: skip
    for rows, width in ((4096, 512), (512, 768), (128, 3072), (1000, 1000)):
        matrix, shape = draw.floats(rows, width), size_of(rows, width)
        yield Case(name=f"softmax {shape}", op="Softmax", feeds={"x": matrix})
        yield Case(name=f"argmax {shape}", op="ArgMax", feeds={"x": matrix}, attrs={"axis": 1})
        for axis in (0, 1):
            yield Case(name=f"cumsum {axis} {shape}", op="CumSum", feeds={"x": matrix},
                       constants={"a": np.array(axis, np.int64)})  # fmt: skip
            yield Case(name=f"reducesum {axis} {shape}", op="ReduceSum", feeds={"x": matrix},
                       constants={"a": ints(axis)})  # fmt: skip
        scales = {"s": draw.floats(width), "b": draw.floats(width)}
        yield Case(name=f"layernorm {shape}", op="LayerNormalization", feeds={"x": matrix},
                   constants=scales, attrs={"axis": -1})  # fmt: skip


def pools(draw: Draw) -> Iterator[Case]:
    for channels, size in ((64, 112), (128, 56), (32, 128), (256, 28)):
        image, shape = draw.floats(1, channels, size, size), size_of(channels, size, size)
        for op, kernel, stride in itertools.product(("MaxPool", "AveragePool"), (2, 3), (1, 2)):
            yield Case(
                name=f"{op.lower()} {kernel}x{kernel}/{stride} {shape}", op=op,
                feeds={"x": image},
                attrs={
                    "kernel_shape": [kernel] * 2, "strides": [stride] * 2,
                    "pads": [kernel // 2] * 4 if kernel == 3 else [0] * 4,
                },
            )  # fmt: skip
    for channels, size in ((2048, 7), (1280, 7), (512, 14)):
        yield Case(name=f"global mean {size_of(channels, size, size)}", op="GlobalAveragePool",
                   feeds={"x": draw.floats(1, channels, size, size)})  # fmt: skip


CONVOLUTIONS = (
    # channels, filters, size, kernel, stride, groups, dilation
    (64, 64, 56, 3, 1, 1, 1), (256, 64, 56, 1, 1, 1, 1), (128, 128, 28, 3, 1, 1, 1),
    (3, 64, 224, 7, 2, 1, 1), (96, 96, 56, 7, 1, 96, 1), (144, 144, 56, 3, 1, 144, 1),
    (240, 240, 28, 5, 2, 240, 1), (256, 256, 28, 3, 1, 32, 1), (128, 128, 48, 3, 1, 1, 2),
    (32, 64, 112, 3, 2, 1, 1), (512, 512, 7, 3, 1, 1, 1), (16, 16, 128, 3, 1, 1, 1),
)  # fmt: skip
TRANSPOSED = ((256, 128, 16, 4, 2), (64, 32, 64, 2, 2), (64, 32, 128, 2, 2), (32, 16, 64, 4, 4))


def convolutions(draw: Draw) -> Iterator[Case]:
    for channels, filters, size, kernel, stride, groups, dilation in CONVOLUTIONS:
        pad = dilation * (kernel - 1) // 2
        yield Case(
            name=f"conv {kernel}x{kernel}/{stride} g{groups} d{dilation} {channels}->{filters} "
            f"{size_of(size, size)}",
            op="Conv", feeds={"x": draw.floats(1, channels, size, size)},
            constants={"w": draw.floats(filters, channels // groups, kernel, kernel, scale=0.05)},
            attrs={
                "group": groups, "pads": [pad] * 4, "strides": [stride] * 2,
                "dilations": [dilation] * 2,
            },
        )  # fmt: skip
    for channels, filters, size, kernel, stride in TRANSPOSED:
        pad = (kernel - stride) // 2
        yield Case(
            name=f"transposed conv {kernel}x{kernel}/{stride} {channels}->{filters} "
            f"{size_of(size, size)}",
            op="ConvTranspose", feeds={"x": draw.floats(1, channels, size, size)},
            constants={"w": draw.floats(channels, filters, kernel, kernel, scale=0.05)},
            attrs={"strides": [stride] * 2, "pads": [pad] * 4},
        )  # fmt: skip


def products(draw: Draw) -> Iterator[Case]:
    for rows, depth, width in (
        (1, 4096, 4096), (1, 1280, 1000), (128, 768, 768), (128, 1024, 1024), (197, 768, 3072),
        (512, 64, 512), (32, 2048, 1000),
    ):  # fmt: skip
        yield Case(
            name=f"matmul {size_of(rows, depth, width)}", op="MatMul",
            feeds={"x": draw.floats(rows, depth)},
            constants={"w": draw.floats(depth, width, scale=0.02)},
        )  # fmt: skip
    for heads, rows, depth in ((12, 197, 64), (8, 512, 64), (12, 128, 64)):
        yield Case(
            name=f"matmul of inputs {size_of(heads, rows, depth, rows)}", op="MatMul",
            feeds={
                "x": draw.floats(1, heads, rows, depth), "z": draw.floats(1, heads, depth, rows),
            },
        )  # fmt: skip


def elementwise(draw: Draw) -> Iterator[Case]:
    ops = ("Exp", "Erf", "Sigmoid", "Tanh", "Relu", "Sqrt", "HardSwish", "Log", "Neg", "Floor")
    for op, shape in itertools.product(ops, ((1024, 1024), (1, 128, 28, 28))):
        values = np.abs(draw.floats(*shape)) + np.float32(0.1)
        yield Case(name=f"{op.lower()} {size_of(*shape)}", op=op, feeds={"x": values})
    for op, image in itertools.product(("Add", "Mul", "Div"), IMAGES[:2]):
        yield Case(
            name=f"{op.lower()} per channel {size_of(*image)}", op=op,
            feeds={"x": draw.floats(1, *image), "z": np.abs(draw.floats(1, image[0], 1, 1)) + 1},
        )  # fmt: skip
    wide = {"x": draw.floats(1024, 1024), "z": draw.floats(1024, 1024)}
    chosen = {"c": draw.rng.random((1024, 1024)) < 0.5}
    yield Case(name="where 1024x1024", op="Where", feeds={**chosen, **wide})
    steps = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8)}
    yield Case(name="quantize 1024x1024", op="QuantizeLinear", feeds={"x": wide["x"]},
               constants=steps)  # fmt: skip
    yield Case(name="dequantize 1024x1024", op="DequantizeLinear",
               feeds={"x": draw.places(256, 1024, 1024).astype(np.uint8)},
               constants=steps)  # fmt: skip


def moves(draw: Draw) -> Iterator[Case]:
    for image in IMAGES:
        parts = {name: draw.floats(1, *image) for name in "xzu"}
        yield Case(name=f"concat 3 of {size_of(*image)}", op="Concat", feeds=parts,
                   attrs={"axis": 1})  # fmt: skip
    for rows, width, count in ((30000, 768, 512), (50257, 768, 128), (1000, 64, 4096)):
        yield Case(
            name=f"gather {count} of {size_of(rows, width)}", op="Gather",
            feeds={"i": draw.places(rows, 1, count)}, constants={"w": draw.floats(rows, width)},
            order=("w", "i"),
        )  # fmt: skip
    for image in IMAGES:
        _, height, width = image
        grid = np.clip(draw.floats(1, height, width, 2, scale=0.5), -1, 1)
        yield Case(name=f"gridsample {size_of(*image)}", op="GridSample",
                   feeds={"x": draw.floats(1, *image), "g": grid})  # fmt: skip
    for step in (2, -1):
        image = IMAGES[0]
        begin, end = (0, 1 << 30) if step > 0 else (-1, -(1 << 30))
        yield Case(
            name=f"slice ::{step} of columns {size_of(*image)}", op="Slice",
            feeds={"x": draw.floats(1, *image)},
            constants={"b": ints(begin), "e": ints(end), "a": ints(3), "s": ints(step)},
        )  # fmt: skip
    for extent, count in ((100000, 100), (8400, 300)):
        yield Case(name=f"topk {count} of {extent}", op="TopK",
                   feeds={"x": draw.floats(1, extent)}, constants={"k": ints(count)},
                   outputs=2)  # fmt: skip
    for image in IMAGES[:2]:
        scales = {"s": draw.floats(image[0]), "b": draw.floats(image[0])}
        yield Case(name=f"instancenorm {size_of(*image)}", op="InstanceNormalization",
                   feeds={"x": draw.floats(1, *image)}, constants=scales)  # fmt: skip


FAMILIES = (
    resizes, pads, transposes, reductions, pools, convolutions, products, elementwise, moves,
)  # fmt: skip

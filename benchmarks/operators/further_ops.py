"""Further single operators for `benchmarks/ops.py`: sequences, volumes, norms, attention's parts.

What networks of speech, text, video and detection add to the images of `single_ops.py`: recurrent
layers, convolutions along one and three dimensions, products of batches, scores, norms by groups,
reductions over several dimensions, moves of four and five dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.operators.single_ops_case import Case, Draw, ints, size_of

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OPSET_OF_NORMS = 21
OPSET_OF_ATTENTION = 23


def recurrent(draw: Draw) -> Iterator[Case]:
    for op, length, batch, width, directions in (
        ("LSTM", 50, 1, 256, 1), ("LSTM", 35, 8, 200, 2), ("GRU", 100, 1, 128, 2),
        ("GRU", 20, 16, 256, 1), ("RNN", 64, 1, 128, 1),
    ):  # fmt: skip
        rows, scale = GATES[op] * width, width**-0.5
        direction = "bidirectional" if directions == 2 else "forward"
        yield Case(
            name=f"{op.lower()} {direction} {size_of(length, batch, width)}", op=op,
            feeds={"x": draw.floats(length, batch, width)},
            constants={
                "w": draw.floats(directions, rows, width, scale=scale),
                "r": draw.floats(directions, rows, width, scale=scale),
            },
            attrs={"hidden_size": width, "direction": direction},
        )  # fmt: skip


LINES = (
    # channels, filters, length, taps, stride, groups, dilation
    (80, 384, 1500, 3, 1, 1, 1), (384, 384, 1500, 3, 2, 1, 1), (1, 512, 16000, 10, 5, 1, 1),
    (512, 512, 400, 3, 2, 1, 1), (256, 256, 400, 31, 1, 256, 1), (64, 64, 2000, 3, 1, 1, 4),
    (512, 512, 200, 1, 1, 1, 1),
)  # fmt: skip
VOLUMES = (
    # channels, filters, depth, size, taps, stride, groups
    (3, 32, 8, 56, 3, 1, 1), (32, 64, 8, 28, 3, 2, 1), (64, 64, 4, 14, 3, 1, 1),
    (32, 32, 8, 28, 3, 1, 32), (64, 128, 8, 28, 1, 1, 1),
)  # fmt: skip
SPATIAL = (
    # channels, filters, size, taps, stride, groups: windows of depthwise and grouped layers
    (96, 96, 56, 5, 1, 96), (96, 96, 56, 5, 2, 96), (64, 64, 112, 3, 2, 64),
    (576, 576, 14, 5, 1, 576), (960, 960, 7, 3, 1, 960), (128, 128, 56, 3, 1, 4),
    (256, 256, 14, 3, 2, 8), (232, 232, 14, 1, 1, 8),
)  # fmt: skip


def lines_and_volumes(draw: Draw) -> Iterator[Case]:
    for channels, filters, length, taps, stride, groups, dilation in LINES:
        pad = dilation * (taps - 1) // 2
        yield Case(
            name=f"conv1d {taps}/{stride} g{groups} d{dilation} {channels}->{filters} {length}",
            op="Conv", feeds={"x": draw.floats(1, channels, length)},
            constants={"w": draw.floats(filters, channels // groups, taps, scale=0.05)},
            attrs={
                "group": groups, "pads": [pad] * 2, "strides": [stride], "dilations": [dilation],
            },
        )  # fmt: skip
    for channels, filters, depth, size, taps, stride, groups in VOLUMES:
        yield Case(
            name=f"conv3d {taps}/{stride} g{groups} {channels}->{filters} "
            f"{size_of(depth, size, size)}",
            op="Conv", feeds={"x": draw.floats(1, channels, depth, size, size)},
            constants={"w": draw.floats(filters, channels // groups, *[taps] * 3, scale=0.05)},
            attrs={"group": groups, "pads": [taps // 2] * 6, "strides": [stride] * 3},
        )  # fmt: skip
    for op in ("MaxPool", "AveragePool"):
        yield Case(
            name=f"{op.lower()} 3d 2/2 32x16x56x56", op=op,
            feeds={"x": draw.floats(1, 32, 16, 56, 56)},
            attrs={"kernel_shape": [2] * 3, "strides": [2] * 3},
        )  # fmt: skip
        yield Case(
            name=f"{op.lower()} 1d 3/2 256x1500", op=op, feeds={"x": draw.floats(1, 256, 1500)},
            attrs={"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
        )  # fmt: skip
        yield Case(
            name=f"{op.lower()} 5x5/1 256x20x20", op=op, feeds={"x": draw.floats(1, 256, 20, 20)},
            attrs={"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4},
        )  # fmt: skip
    for channels, filters, size, taps, stride, groups in SPATIAL:
        yield Case(
            name=f"conv {taps}x{taps}/{stride} g{groups} of {channels}->{filters} "
            f"{size_of(size, size)}",
            op="Conv", feeds={"x": draw.floats(1, channels, size, size)},
            constants={"w": draw.floats(filters, channels // groups, taps, taps, scale=0.05)},
            attrs={"group": groups, "pads": [taps // 2] * 4, "strides": [stride] * 2},
        )  # fmt: skip


def norms(draw: Draw) -> Iterator[Case]:
    for channels, size, groups in ((320, 32, 32), (64, 128, 32), (512, 16, 32)):
        image, shape = draw.floats(1, channels, size, size), size_of(channels, size, size)
        scales = {"s": draw.floats(channels), "b": draw.floats(channels)}
        yield Case(
            name=f"groupnorm {groups} {shape}", op="GroupNormalization", feeds={"x": image},
            constants=scales, attrs={"num_groups": groups}, opset=OPSET_OF_NORMS,
        )  # fmt: skip
        yield Case(name=f"instancenorm of {shape}", op="InstanceNormalization", feeds={"x": image},
                   constants=scales)  # fmt: skip
        held = {"m": draw.floats(channels), "v": np.abs(draw.floats(channels)) + np.float32(1)}
        yield Case(name=f"batchnorm {shape}", op="BatchNormalization", feeds={"x": image},
                   constants=scales | held)  # fmt: skip
    for rows, width in ((128, 4096), (197, 192), (3136, 96)):
        scales = {"s": draw.floats(width), "b": draw.floats(width)}
        yield Case(name=f"layernorm of {size_of(1, rows, width)}", op="LayerNormalization",
                   feeds={"x": draw.floats(1, rows, width)}, constants=scales)  # fmt: skip
    yield Case(name="lpnormalization 1024x512", op="LpNormalization",
               feeds={"x": draw.floats(1024, 512)}, attrs={"axis": 1, "p": 2})  # fmt: skip


def activations(draw: Draw) -> Iterator[Case]:
    for approximate in ("none", "tanh"):
        yield Case(
            name=f"gelu {approximate} 197x3072", op="Gelu", feeds={"x": draw.floats(197, 3072)},
            attrs={"approximate": approximate}, opset=OPSET_OF_NORMS,
        )  # fmt: skip
    image = draw.floats(1, 64, 80, 80)
    for op in ("Mish", "Elu", "LeakyRelu", "Softplus", "HardSigmoid", "Selu"):
        yield Case(name=f"{op.lower()} 64x80x80", op=op, feeds={"x": image})
    yield Case(name="prelu 64x80x80", op="PRelu", feeds={"x": image},
               constants={"s": draw.floats(64, 1, 1)})  # fmt: skip
    yield Case(name="clip 64x80x80", op="Clip", feeds={"x": image},
               constants={"l": np.float32(0), "h": np.float32(6)})  # fmt: skip
    yield Case(name="pow 512x768", op="Pow", feeds={"x": draw.floats(512, 768)},
               constants={"e": np.float32(2)})  # fmt: skip


PRODUCTS = (
    # left, right: two inputs
    ((1, 8, 1, 64), (1, 8, 64, 512)), ((1, 8, 1, 512), (1, 8, 512, 64)),
    ((64, 49, 32), (64, 32, 49)), ((64, 49, 49), (64, 49, 32)), ((256, 16, 16), (256, 16, 16)),
    ((32, 128, 128), (32, 128, 128)), ((1, 3, 3, 3), (1, 3, 3, 4096)),
    ((1000, 4, 4), (1000, 4, 4)), ((4096, 1, 512), (4096, 512, 1)),
)  # fmt: skip
DENSE = (
    (1, 512, 1000),
    (1, 128, 64),
    (1, 768, 3072),
    (8, 256, 256),
    (16, 4096, 1000),
    (3136, 96, 288),
    (4096, 256, 1),
    (4096, 256, 2),
    (1000, 512, 5),
)


def products_of_batches(draw: Draw) -> Iterator[Case]:
    for left, right in PRODUCTS:
        yield Case(
            name=f"matmul of batches {size_of(*left)} by {size_of(*right)}", op="MatMul",
            feeds={"x": draw.floats(*left), "z": draw.floats(*right)},
        )  # fmt: skip
    for rows, depth, width in DENSE:
        yield Case(
            name=f"gemm {size_of(rows, depth, width)}", op="Gemm",
            feeds={"x": draw.floats(rows, depth)},
            constants={"w": draw.floats(width, depth, scale=0.05), "b": draw.floats(width)},
            attrs={"transB": 1},
        )  # fmt: skip
    for equation, left, right in (
        ("bhid,bhdj->bhij", (1, 8, 128, 64), (1, 8, 64, 128)),
        ("bthd,bshd->bhts", (1, 128, 8, 64), (1, 128, 8, 64)),
        ("bhts,bshd->bthd", (1, 8, 128, 128), (1, 128, 8, 64)),
        ("bchw,kc->bkhw", (1, 64, 28, 28), (32, 64)), ("ij,ij->i", (4096, 512), (4096, 512)),
    ):  # fmt: skip
        yield Case(
            name=f"einsum {equation} {size_of(*left)}", op="Einsum",
            feeds={"x": draw.floats(*left), "z": draw.floats(*right)},
            attrs={"equation": equation},
        )  # fmt: skip
    for heads, length, depth in ((12, 128, 64), (8, 512, 64), (6, 197, 64)):
        shape = (1, heads, length, depth)
        yield Case(
            name=f"attention {size_of(heads, length, depth)}", op="Attention",
            feeds={n: draw.floats(*shape) for n in "qkv"}, opset=OPSET_OF_ATTENTION,
        )  # fmt: skip


def reductions_over_dimensions(draw: Draw) -> Iterator[Case]:
    volume = draw.floats(8, 64, 40, 40)
    for op, axes in (
        ("ReduceMean", (1, 2, 3)), ("ReduceSum", (0,)), ("ReduceMax", (2,)), ("ReduceMean", (3,)),
        ("ReduceL2", (1,)), ("ReduceMean", (0, 2, 3)), ("ReduceMin", (2, 3)),
        ("ReduceSum", (1, 3)), ("ReduceLogSumExp", (1,)), ("ReduceProd", (3,)),
    ):  # fmt: skip
        yield Case(name=f"{op.lower()} over {','.join(map(str, axes))} 8x64x40x40", op=op,
                   feeds={"x": volume}, constants={"a": ints(*axes)})  # fmt: skip
    for op, axis in (
        ("ArgMax", 3),
        ("ArgMin", 2),
        ("Softmax", 2),
        ("Softmax", 1),
        ("LogSoftmax", 3),
    ):
        yield Case(name=f"{op.lower()} along {axis} 8x64x40x40", op=op, feeds={"x": volume},
                   attrs={"axis": axis})  # fmt: skip
    scores = draw.floats(1, 12, 197, 197)
    yield Case(name="softmax of scores 12x197x197", op="Softmax", feeds={"x": scores})
    yield Case(name="softmax of a row 1x30000", op="Softmax", feeds={"x": draw.floats(1, 30000)})
    for axis in (1, 3):
        yield Case(name=f"cumsum along {axis} 8x64x40x40", op="CumSum", feeds={"x": volume},
                   constants={"a": np.array(axis, np.int64)})  # fmt: skip


TURNS = (
    ((1, 64, 8, 28, 28), (0, 2, 3, 4, 1)), ((1, 8, 28, 28, 64), (0, 4, 1, 2, 3)),
    ((1, 2, 64, 56, 56), (0, 2, 1, 3, 4)), ((8, 7, 8, 7, 96), (0, 2, 1, 3, 4)),
    ((1, 12, 128, 64), (0, 1, 3, 2)), ((3, 197, 12, 64), (2, 0, 1, 3)),
    ((197, 3, 12, 64), (1, 2, 0, 3)), ((64, 4, 56, 56), (1, 0, 2, 3)), ((100, 1, 512), (1, 2, 0)),
    ((1, 3, 85, 40, 40), (0, 1, 3, 4, 2)), ((1, 255, 20, 20), (0, 2, 3, 1)),
)  # fmt: skip


def turns(draw: Draw) -> Iterator[Case]:
    for shape, order in TURNS:
        yield Case(
            name=f"transpose {''.join(map(str, order))} {size_of(*shape)}", op="Transpose",
            feeds={"x": draw.floats(*shape)}, attrs={"perm": list(order)},
        )  # fmt: skip
    yield Case(name="transpose bytes 10 1024x1024", op="Transpose",
               feeds={"x": draw.places(256, 1024, 1024).astype(np.uint8)},
               attrs={"perm": [1, 0]})  # fmt: skip
    yield Case(
        name="transpose longs 0213 1x128x12x64", op="Transpose",
        feeds={"x": draw.places(256, 1, 128, 12, 64)}, attrs={"perm": [0, 2, 1, 3]},
    )  # fmt: skip


def gathers(draw: Draw) -> Iterator[Case]:
    table, image = draw.floats(4096, 256), draw.floats(1, 256, 40, 40)
    yield Case(name="gather along 1 4096x256 by 64", op="Gather", feeds={"x": table},
               constants={"i": draw.places(256, 64)}, attrs={"axis": 1})  # fmt: skip
    yield Case(
        name="gather elements 4096x256", op="GatherElements",
        feeds={"x": table, "i": draw.places(4096, 1024, 256)}, attrs={"axis": 0},
    )  # fmt: skip
    yield Case(name="gathernd 4096x256 by 2000", op="GatherND",
               feeds={"x": table, "i": draw.places(4096, 2000, 1)})  # fmt: skip
    places = draw.rng.permutation(4096)[:1000].astype(np.int64)[:, None]
    yield Case(name="scatternd 4096x256 by 1000", op="ScatterND",
               feeds={"x": table, "i": places, "u": draw.floats(1000, 256)})  # fmt: skip
    yield Case(name="scatter elements add 4096x256", op="ScatterElements",
               feeds={"x": table, "i": draw.places(4096, 1000, 256), "u": draw.floats(1000, 256)},
               attrs={"axis": 0, "reduction": "add"})  # fmt: skip
    for axis, count, shape in ((1, 5, (512, 1000)), (1, 300, (80, 1600)), (0, 10, (1000, 64))):
        yield Case(name=f"topk {count} along {axis} of {size_of(*shape)}", op="TopK",
                   feeds={"x": draw.floats(*shape)}, constants={"k": ints(count)},
                   attrs={"axis": axis}, outputs=2)  # fmt: skip
    yield Case(name="split 2 of 256x40x40", op="Split", feeds={"x": image},
               attrs={"axis": 1, "num_outputs": 2}, outputs=2)  # fmt: skip
    yield Case(name="slice rows and columns 256x40x40", op="Slice", feeds={"x": image},
               constants={"b": ints(4, 4), "e": ints(36, 36), "a": ints(2, 3)})  # fmt: skip
    yield Case(name="tile 2x3 64x128", op="Tile", feeds={"x": draw.floats(64, 128)},
               constants={"r": ints(2, 3)})  # fmt: skip
    yield Case(
        name="expand 64x1x256 to 64x128x256", op="Expand", feeds={"x": draw.floats(64, 1, 256)},
        constants={"s": ints(64, 128, 256)},
    )  # fmt: skip
    yield Case(name="concat last 64x128 and 64x64", op="Concat",
               feeds={"x": draw.floats(8, 64, 128), "z": draw.floats(8, 64, 64)},
               attrs={"axis": 2})  # fmt: skip
    yield Case(name="cast to int64 512x768", op="Cast", feeds={"x": draw.floats(512, 768)},
               attrs={"to": 7})  # fmt: skip
    yield Case(name="greater 512x768", op="Greater",
               feeds={"x": draw.floats(512, 768), "z": draw.floats(512, 768)})  # fmt: skip
    yield Case(
        name="onehot 4096 of 128", op="OneHot", feeds={"i": draw.places(128, 4096)},
        constants={"d": np.array(128, np.int64), "v": np.array([0, 1], np.float32)},
    )  # fmt: skip


def resizes_by_size(draw: Draw) -> Iterator[Case]:
    for mode, transformation, before, after in (
        ("linear", "half_pixel", (256, 20, 20), (37, 37)),
        ("linear", "align_corners", (64, 64, 64), (128, 128)),
        ("linear", "half_pixel", (3, 480, 640), (224, 224)),
        ("linear", "pytorch_half_pixel", (21, 33, 33), (257, 257)),
        ("cubic", "half_pixel", (64, 14, 14), (16, 16)),
        ("nearest", "asymmetric", (128, 40, 40), (64, 64)),
        ("linear", "align_corners", (512, 8, 8), (32, 32)),
    ):  # fmt: skip
        yield Case(
            name=f"resize {mode} {transformation} {size_of(*before)} to {size_of(*after)}",
            op="Resize", feeds={"x": draw.floats(1, *before)},
            constants={"s": ints(1, before[0], *after)}, order=("x", "", "", "s"),
            attrs={"mode": mode, "coordinate_transformation_mode": transformation},
        )  # fmt: skip


FAMILIES = (
    recurrent, lines_and_volumes, norms, activations, products_of_batches,
    reductions_over_dimensions, turns, gathers, resizes_by_size,
)  # fmt: skip

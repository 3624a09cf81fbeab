"""Single operators for `benchmarks/ops.py`: odd sizes, small batches, other ranks and axes.

What neither `single_ops.py` nor `further_ops.py` has: extents that no vector divides, batches of 2
to 8, one and three dimensions, reductions over dimensions in the middle, arithmetic of operands
that are spread along several.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.operators.further_ops import GATES, OPSET_OF_NORMS
from benchmarks.operators.single_ops_case import Case, Draw, ints, size_of

OPSET_OF_RMS_NORM = 23


def convolutions(draw: Draw) -> Iterator[Case]:
    for batch, channels, filters, spatial, taps, stride, groups in (
        (2, 3, 24, (97, 131), 3, 2, 1), (4, 10, 17, (33, 47), 3, 1, 1),
        (8, 6, 16, (14, 14), 5, 1, 1),
        (2, 33, 33, (45, 45), 3, 1, 33), (3, 40, 80, (31, 29), 1, 1, 1),
        (2, 20, 30, (65, 65), 7, 1, 1),
        (4, 12, 20, (501,), 5, 1, 1), (2, 64, 48, (333,), 9, 2, 1), (8, 1, 32, (400,), 3, 1, 1),
        (2, 4, 8, (11, 23, 23), 3, 1, 1), (1, 20, 12, (9, 31, 31), 3, 2, 1),
    ):  # fmt: skip
        rank = len(spatial)
        yield Case(
            name=f"odd conv {'x'.join([str(taps)] * rank)}/{stride} g{groups} "
            f"{channels}->{filters} {size_of(batch, *spatial)}",
            op="Conv", feeds={"x": draw.floats(batch, channels, *spatial)},
            constants={"w": draw.floats(filters, channels // groups, *[taps] * rank, scale=0.05)},
            attrs={"group": groups, "pads": [taps // 2] * 2 * rank, "strides": [stride] * rank},
        )  # fmt: skip
    for batch, channels, filters, spatial, taps, stride in (
        (2, 24, 12, (31, 33), 3, 2), (1, 48, 24, (250,), 4, 2), (2, 9, 5, (19, 21), 5, 3),
    ):  # fmt: skip
        yield Case(
            name=f"odd transposed conv {taps}/{stride} {channels}->{filters} "
            f"{size_of(batch, *spatial)}",
            op="ConvTranspose", feeds={"x": draw.floats(batch, channels, *spatial)},
            constants={"w": draw.floats(channels, filters, *[taps] * len(spatial), scale=0.05)},
            attrs={"strides": [stride] * len(spatial)},
        )  # fmt: skip


def reductions(draw: Draw) -> Iterator[Case]:
    for op, shape, axes in (
        ("ReduceMean", (5, 31, 77, 13), (1,)), ("ReduceSum", (3, 129, 65, 7), (1, 2)),
        ("ReduceMax", (7, 50, 91), (1,)), ("ReduceL1", (33, 17, 129), (0, 2)),
        ("ReduceSumSquare", (6, 200, 3, 40), (1, 3)), ("ReduceMean", (2, 3, 211, 211), (2, 3)),
        ("ReduceMin", (4097, 3), (0,)),
    ):  # fmt: skip
        yield Case(
            name=f"odd {op.lower()} over {','.join(map(str, axes))} {size_of(*shape)}", op=op,
            feeds={"x": draw.floats(*shape)}, constants={"a": ints(*axes)}, attrs={"keepdims": 0},
        )  # fmt: skip
    for op, shape, axis in (
        ("Softmax", (3, 37, 61, 5), 1), ("Softmax", (7, 129, 33), 1), ("Softmax", (2049, 10), 1),
        ("LogSoftmax", (5, 1001), 1), ("ArgMax", (4, 19, 77, 33), 1), ("ArgMin", (301, 401), 0),
        ("ArgMax", (5000, 10), 1), ("Hardmax", (129, 77), 1),
    ):  # fmt: skip
        yield Case(name=f"odd {op.lower()} along {axis} {size_of(*shape)}", op=op,
                   feeds={"x": draw.floats(*shape)}, attrs={"axis": axis})  # fmt: skip
    for count, axis, shape in ((3, 1, (77, 333)), (7, 0, (501, 9)), (20, 2, (4, 33, 257))):
        yield Case(name=f"odd topk {count} along {axis} of {size_of(*shape)}", op="TopK",
                   feeds={"x": draw.floats(*shape)}, constants={"k": ints(count)},
                   attrs={"axis": axis}, outputs=2)  # fmt: skip


def arithmetic(draw: Draw) -> Iterator[Case]:
    for op, left, right in (
        ("Add", (5, 1, 37, 41), (1, 29, 1, 41)), ("Mul", (3, 77, 1), (77, 65)),
        ("Sub", (2, 9, 1, 7, 33), (9, 11, 1, 33)), ("Div", (129, 1, 65), (33, 65)),
        ("Max", (255, 1), (1, 511)), ("Pow", (33, 65, 7), (33, 1, 7)),
        ("Add", (3, 50, 67), (3, 50, 1)),
    ):  # fmt: skip
        yield Case(
            name=f"odd {op.lower()} {size_of(*left)} and {size_of(*right)}", op=op,
            feeds={"x": np.abs(draw.floats(*left)) + 1, "z": np.abs(draw.floats(*right)) + 1},
        )  # fmt: skip
    image = draw.floats(2, 31, 45, 47)
    yield Case(name="odd prelu 2x31x45x47", op="PRelu", feeds={"x": image},
               constants={"s": draw.floats(31, 1, 1)})  # fmt: skip
    for op in ("HardSwish", "ThresholdedRelu", "Softsign", "Sin", "Round"):
        yield Case(name=f"odd {op.lower()} 2x31x45x47", op=op, feeds={"x": image})


def products(draw: Draw) -> Iterator[Case]:
    for equation, left, right in (
        ("abc,cd->abd", (3, 37, 53), (53, 29)), ("abc,abd->acd", (5, 77, 13), (5, 77, 17)),
        ("bij,bkj->bik", (9, 33, 21), (9, 35, 21)),
        ("nchw,nkhw->nck", (2, 19, 15, 15), (2, 7, 15, 15)),
        ("i,j->ij", (501,), (333,)), ("abcd,cde->abe", (3, 11, 9, 13), (9, 13, 21)),
    ):  # fmt: skip
        yield Case(
            name=f"odd einsum {equation} {size_of(*left)}", op="Einsum",
            feeds={"x": draw.floats(*left), "z": draw.floats(*right)},
            attrs={"equation": equation},
        )  # fmt: skip
    for left, right in (
        ((5, 77), (77, 1001)), ((131, 67), (67, 29)), ((3, 7, 33, 9), (3, 7, 9, 31)),
        ((1, 999), (999, 501)),
    ):  # fmt: skip
        yield Case(
            name=f"odd matmul {size_of(*left)} by {size_of(*right)}", op="MatMul",
            feeds={"x": draw.floats(*left), "z": draw.floats(*right)},
        )  # fmt: skip


def norms(draw: Draw) -> Iterator[Case]:
    for shape in ((77, 333), (5, 19, 100)):
        scales = {"s": draw.floats(shape[-1]), "b": draw.floats(shape[-1])}
        yield Case(name=f"odd layernorm {size_of(*shape)}", op="LayerNormalization",
                   feeds={"x": draw.floats(*shape)}, constants=scales)  # fmt: skip
        yield Case(
            name=f"odd rmsnorm {size_of(*shape)}", op="RMSNormalization",
            feeds={"x": draw.floats(*shape)}, constants={"s": scales["s"]},
            opset=OPSET_OF_RMS_NORM,
        )  # fmt: skip
    for shape, groups in (((3, 30, 19, 21), 5), ((2, 12, 333), 3)):
        scales = {"s": draw.floats(shape[1]), "b": draw.floats(shape[1])}
        yield Case(
            name=f"odd groupnorm {groups} {size_of(*shape)}", op="GroupNormalization",
            feeds={"x": draw.floats(*shape)}, constants=scales, attrs={"num_groups": groups},
            opset=OPSET_OF_NORMS,
        )  # fmt: skip
        yield Case(
            name=f"odd instancenorm {size_of(*shape)}", op="InstanceNormalization",
            feeds={"x": draw.floats(*shape)}, constants=scales,
        )  # fmt: skip


def moves(draw: Draw) -> Iterator[Case]:
    for shape, order in (
        ((3, 77, 5, 33), (0, 2, 1, 3)), ((333, 517), (1, 0)), ((2, 31, 45, 47), (0, 2, 3, 1)),
        ((7, 9, 11, 13, 15), (4, 2, 0, 3, 1)), ((5, 129, 3), (2, 0, 1)),
    ):  # fmt: skip
        yield Case(
            name=f"odd transpose {''.join(map(str, order))} {size_of(*shape)}", op="Transpose",
            feeds={"x": draw.floats(*shape)}, attrs={"perm": list(order)},
        )  # fmt: skip
    for shape, axis, count in (((501, 33), 0, 300), ((7, 99, 65), 1, 40), ((3, 5, 400), 2, 77)):
        yield Case(
            name=f"odd gather {count} along {axis} of {size_of(*shape)}", op="Gather",
            feeds={"x": draw.floats(*shape), "i": draw.places(shape[axis], count)},
            attrs={"axis": axis},
        )  # fmt: skip
    for mode, shape, scale in (
        ("linear", (2, 7, 33, 35), 3), ("nearest", (3, 5, 29, 31), 5),
        ("linear", (1, 9, 41, 43), 1.7),
        ("cubic", (1, 3, 57, 61), 3), ("nearest", (2, 6, 9, 11, 13), 2),
        ("linear", (4, 10, 201), 2),
    ):  # fmt: skip
        rank = len(shape) - 2
        yield Case(
            name=f"odd resize {mode} x{scale} {size_of(*shape)}", op="Resize",
            feeds={"x": draw.floats(*shape)},
            constants={"s": np.array([1, 1, *[scale] * rank], np.float32)},
            attrs={"mode": mode}, order=("x", "", "s"),
        )  # fmt: skip
    for op, shape, taps, stride in (
        ("MaxPool", (2, 13, 55, 57), 3, 2), ("AveragePool", (3, 20, 31, 33), 2, 2),
        ("MaxPool", (4, 17, 501), 5, 3), ("AveragePool", (1, 8, 13, 27, 27), 3, 2),
    ):  # fmt: skip
        rank = len(shape) - 2
        yield Case(
            name=f"odd {op.lower()} {taps}/{stride} {size_of(*shape)}", op=op,
            feeds={"x": draw.floats(*shape)},
            attrs={"kernel_shape": [taps] * rank, "strides": [stride] * rank},
        )  # fmt: skip
    for axis, shape in ((1, (5, 77, 33)), (0, (301, 55)), (2, (9, 11, 200))):
        yield Case(name=f"odd cumsum along {axis} {size_of(*shape)}", op="CumSum",
                   feeds={"x": draw.floats(*shape)},
                   constants={"a": np.array(axis, np.int64)})  # fmt: skip


def recurrent(draw: Draw) -> Iterator[Case]:
    for op, length, batch, width, hidden in (
        ("LSTM", 21, 3, 20, 33), ("GRU", 37, 2, 40, 50), ("RNN", 15, 5, 12, 30),
        ("LSTM", 10, 1, 64, 64),
    ):  # fmt: skip
        rows = GATES[op] * hidden
        yield Case(
            name=f"odd {op.lower()} {size_of(length, batch, width, hidden)}", op=op,
            feeds={"x": draw.floats(length, batch, width)},
            constants={
                "w": draw.floats(1, rows, width, scale=0.2),
                "r": draw.floats(1, rows, hidden, scale=0.2),
            },
            attrs={"hidden_size": hidden},
        )  # fmt: skip


FAMILIES = (convolutions, reductions, arithmetic, products, norms, moves, recurrent)

"""Random tasks of the ops that are no convolution, product or row: planes, bytes, resizes, scans,
sorts, moved data, and every op by itself."""

from __future__ import annotations

import math

from hypothesis import assume
from hypothesis import strategies as st

from autotune.types import Task, freeze_attrs
from tests.contracts.case import Case, in_other_orders, single_task, tensor
from tests.contracts.odd_values import GROUPS
from tests.unit.codegen.kernels import node, task, value

MOST_ELEMENTS = 100_000
MOST_PRODUCTS = 1_000_000
SINGLE_OPS = tuple(case for group in GROUPS.values() for case in group())
"""Every op by itself, with the types and attributes that its code depends on."""


def sizes(most: int) -> st.SearchStrategy[int]:
    """Few, many, and those that vectors divide."""
    whole = [e for e in (1, 2, 3, 8, 16, 31, 32, 33, 64, 100, 128, 256, 512) if e <= most]
    return st.sampled_from(whole) | st.integers(1, most)


@st.composite
def plane_convolutions(draw: st.DrawFn) -> Task:
    """Depthwise convolutions of what lies channels first, alone and with what follows; inputs with
    the zeros around them, and without."""
    kernel = draw(
        st.sampled_from([(3, 3), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (9, 9), (2, 2)])
    )
    strides = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3)]))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2), (1, 3)]))
    batch, channels = draw(st.integers(1, 2)), draw(sizes(64))
    height, width = draw(sizes(64)), draw(sizes(128))
    top, left, bottom, right = draw(
        st.just((kernel[0] // 2, kernel[1] // 2) * 2) | st.tuples(*[st.integers(0, 4)] * 4)
    )
    rows = (height + top + bottom - dilations[0] * (kernel[0] - 1) - 1) // strides[0] + 1
    columns = (width + left + right - dilations[1] * (kernel[1] - 1) - 1) // strides[1] + 1
    assume(rows > 0 and columns > 0)
    assume(batch * channels * height * width <= MOST_ELEMENTS)
    assume(batch * channels * rows * columns * kernel[0] * kernel[1] <= MOST_PRODUCTS)
    attrs = {"strides": strides, "pads": (top, left, bottom, right), "dilations": dilations}
    image, out = (batch, channels, height, width), (batch, channels, rows, columns)
    if draw(st.booleans()):
        types = (tensor(*image), tensor(channels, *kernel))
        case = Case(op="conv_planes", types=types, attrs=freeze_attrs(attrs), constants=(1,))
        return single_task(case, halo=draw(st.booleans()))
    return task(
        [
            node("conv_planes", "i0 c0", "t0", **attrs),
            node("add", "t0 c1", "t1"),
            node("relu", "t1", "o0"),
        ],
        *(value("i0", image), value("c0", (channels, *kernel)), value("c1", (channels, 1, 1))),
        *(value(name, out) for name in ("t0", "t1", "o0")),
    )


@st.composite
def byte_products(draw: st.DrawFn) -> Task:
    """Exact sums of products of bytes: of matrices, and of images by windows."""
    depth, outputs = draw(sizes(256)), draw(sizes(256))
    if draw(st.booleans()):
        rows = draw(sizes(128))
        assume(rows * depth * outputs <= MOST_PRODUCTS)
        across = draw(st.booleans())
        return task(
            [node("matmul", "i0 c0", "o0", transpose_b=across)],
            value("i0", (rows, depth), "uint8"),
            value("c0", (outputs, depth) if across else (depth, outputs), "int8"),
            value("o0", (rows, outputs), "int32"),
        )
    window, groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(sizes(16))
    assume(size >= window)
    points = (size - window + 1) ** 2
    assume(points * window**2 * depth * outputs * groups <= MOST_PRODUCTS)
    return task(
        [node("conv2d", "i0 c0", "o0", groups=groups)],
        value("i0", (1, size, size, groups * depth), "uint8"),
        value("c0", (window, window, depth, groups * outputs), "int8"),
        value("o0", (1, size - window + 1, size - window + 1, groups * outputs), "int32"),
    )


@st.composite
def resizes(draw: st.DrawFn) -> Task:
    """Of rows, images and columns; to more, to fewer, to other points."""
    shape = tuple(draw(sizes(48)) for _ in range(draw(st.integers(1, 4))))
    target = tuple(
        draw(st.sampled_from([e, e, 2 * e, e + 3, max(1, e // 2), 4 * e])) for e in shape
    )
    total = 1
    for extent in target:
        total *= extent
    assume(total <= MOST_ELEMENTS)
    attrs = {
        "out_shape": target,
        "mode": draw(st.sampled_from(["nearest", "linear"])),
        "coordinate": draw(st.sampled_from(["half_pixel", "align_corners", "asymmetric"])),
    }
    return single_task(Case(op="resize", types=(tensor(*shape),), attrs=freeze_attrs(attrs)))


@st.composite
def scans_and_sorts(draw: st.DrawFn) -> Task:
    """What runs along a dimension in order, and what puts it in order."""
    outer, extent, inner = draw(sizes(32)), draw(sizes(512)), draw(sizes(128))
    assume(outer * extent * inner <= MOST_ELEMENTS)
    kind = draw(st.sampled_from(["scan", "top_k", "block_max", "argmax", "log_softmax", "lrn"]))
    if kind == "scan":
        types = (tensor(outer, extent, inner),)
        attrs = {"combine": "sum", "exclusive": draw(st.integers(0, 1)),
                 "reverse": draw(st.integers(0, 1))}  # fmt: skip
    elif kind == "top_k":
        types = (tensor(outer, extent, dtype=draw(st.sampled_from(["int64", "int32"]))),)
        attrs = {"count": draw(st.integers(1, extent))}
    elif kind == "block_max":
        depth = draw(st.integers(1, 8))
        types = (tensor(outer, depth * extent),)
        attrs = {"depth": depth, "width": extent, "largest": draw(st.integers(0, 1))}
    else:
        types = (tensor(outer, extent, inner),)
        attrs = {"size": draw(st.integers(1, 7))} if kind == "lrn" else {
            "axis": draw(st.integers(0, 2))
        }  # fmt: skip
    return single_task(Case(op=kind, types=types, attrs=freeze_attrs(attrs)))


@st.composite
def moves(draw: st.DrawFn) -> Task:
    """Data that only change their place, of elements of one to eight bytes."""
    rank = draw(st.integers(2, 4))
    shape = tuple(draw(sizes(96)) for _ in range(rank))
    assume(math.prod(shape) <= MOST_ELEMENTS)
    dtype = draw(st.sampled_from(["float32", "float32", "uint8", "int16", "int64"]))
    kind = draw(st.sampled_from(["transpose", "pad", "border", "concat", "slice"]))
    types = (tensor(*shape, dtype=dtype),)
    if kind == "transpose":
        attrs = {"perm": tuple(draw(st.permutations(range(rank))))}
    elif kind == "concat":
        types, attrs = types * 2, {"axis": draw(st.integers(0, rank - 1))}
    elif kind == "slice":
        starts = tuple(draw(st.integers(0, e - 1)) for e in shape)
        steps = tuple(draw(st.integers(1, 3)) for _ in shape)
        attrs = {"starts": starts, "stops": shape, "steps": steps}
    else:
        few = tuple(draw(st.integers(0, min(2, e - 1))) for e in (*shape, *shape))
        mode = {"mode": draw(st.sampled_from(["reflect", "edge", "wrap"]))}
        attrs = {"pads": few, **(mode if kind == "border" else {"value": 1.0})}
    return single_task(Case(op=kind, types=types, attrs=freeze_attrs(attrs)))


@st.composite
def single_ops(draw: st.DrawFn) -> Task:
    """Any op, of values that lie as views leave them."""
    made = single_task(draw(st.sampled_from(SINGLE_OPS)))
    return in_other_orders(made, draw(st.integers(0, 99))) if draw(st.booleans()) else made


def further_task() -> st.SearchStrategy[Task]:
    """One of these kinds."""
    return (
        plane_convolutions() | plane_convolutions() | byte_products() | resizes()
        | scans_and_sorts() | moves() | single_ops() | single_ops()
    )  # fmt: skip

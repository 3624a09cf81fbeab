"""Nodes of random ONNX models: every family of operators, with attributes at their edges.

In: a model that grows and one of its values. Out: whether a node was added. An action may propose
what is not legal; who runs the node says so, and it is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.types import Array
from tests.properties.wild_models import WHOLE, Action, Builder

UNARY = (
    "Abs", "Neg", "Relu", "Tanh", "Sigmoid", "Erf", "Floor", "Ceil", "Round", "Sign", "Sqrt",
    "Exp", "Log", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh",
    "Asinh",
    "Acosh", "Atanh", "HardSwish", "HardSigmoid", "Softplus", "Softsign", "Elu", "Selu", "Celu",
    "LeakyRelu", "Gelu", "Mish", "Identity", "ThresholdedRelu", "Shrink", "Not", "BitwiseNot",
    "IsNaN", "IsInf", "Dropout", "Flatten", "Shape", "Size", "NonZero", "Det", "EyeLike",
    "MeanVarianceNormalization", "Hardmax", "Swish", "ConstantOfShape", "com.microsoft.QuickGelu",
    "com.microsoft.FastGelu", "com.microsoft.Gelu",
)  # fmt: skip
BINARY = (
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Mod", "PRelu", "Equal",
    "Less",
    "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr",
    "BitwiseXor", "BitShift",
)  # fmt: skip
REDUCTIONS = (
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd",
    "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
TYPES = ("float32", "float16", "bfloat16", "float64", "bool", *WHOLE)
CODES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}


def axis_of(m: Builder, x: Array, more: int = 0) -> int:
    rank = x.ndim + more
    return m.draw(-rank, rank - 1) if rank else 0


def axes_of(m: Builder, x: Array) -> list[int]:
    """Some axes, each counted from the front or the back."""
    chosen = m.rng.permutation(x.ndim)[: m.draw(0, x.ndim)]
    return [int(a) - x.ndim * m.draw(0, 1) for a in chosen]


def places(m: Builder, extent: int, shape: Any, dtype: Any = np.int64) -> Array:
    return np.asarray(m.rng.integers(-extent, extent, shape)).astype(dtype)


def listed(m: Builder, op: str, x: str, since: int, attrs: dict[str, Any], **lists: Any) -> bool:
    """With lists as attributes before an opset, and as inputs from it on."""
    given = {k: v for k, v in lists.items() if v is not None}
    if m.opset < since:
        return m.node(op, [x], {**attrs, **given})
    inputs = [x, *("" if v is None else m.constant(np.array(v, np.int64)) for v in lists.values())]
    while not inputs[-1]:
        inputs.pop()
    return m.node(op, inputs, attrs)


def unary(m: Builder, x: str, _: Array) -> bool:
    op, attrs = m.pick(UNARY), {}
    if op in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu", "HardSigmoid", "Swish"):
        attrs = {"alpha": m.pick((0.01, 0.3, 1.0, 1.7))} if m.chance(0.6) else {}
    elif op in ("Flatten", "Hardmax"):
        attrs = {"axis": axis_of(m, m.values[x][0])}
    elif op == "Gelu":
        attrs = {"approximate": m.pick(("none", "tanh"))}
    return m.node(op, [x], attrs)


def binary(m: Builder, x: str, a: Array) -> bool:
    """With a value that broadcasts, or is broadcast to, in any position."""
    shape = [m.pick((e, e, 1)) for e in a.shape[m.draw(0, a.ndim) :]]
    if m.chance(0.3):
        shape = [m.draw(1, 3) if e == 1 else e for e in (1,) * m.draw(0, 2) + tuple(shape)]
    other = m.operand(shape, a.dtype) if m.chance(0.9) else x
    op = m.pick(BINARY)
    if op == "Pow" and a.dtype.kind in "iu":
        return False  # of negative exponents, and beyond the type
    attrs = {
        "Mod": {"fmod": int(a.dtype.kind not in "iu" or m.chance(0.5))},
        "BitShift": {"direction": m.pick(("LEFT", "RIGHT"))},
    }.get(op, {})
    if op in ("Max", "Min", "Mean", "Sum") and m.chance(0.2):
        return m.node(op, m.pick(([x], [x, other, x], [other, x, other])), {})
    if op == "BitShift" or (op in ("Div", "Mod") and a.dtype.kind in "iu"):
        other = m.constant(m.rng.integers(1, 7, shape).astype(a.dtype))
    return m.node(op, [x, other] if m.chance(0.5) or op == "PRelu" else [other, x], attrs)


def where(m: Builder, x: str, a: Array) -> bool:
    parts = [[m.pick((e, 1)) for e in a.shape[m.draw(0, a.ndim) :]] for _ in range(2)]
    both = [x, m.operand(parts[0], a.dtype)]
    return m.node("Where", [m.operand(parts[1], np.bool_), *both[:: m.pick((1, -1))]], {})


def clip(m: Builder, x: str, a: Array) -> bool:
    if a.dtype.kind == "b":
        return False
    low, high = (0, 5) if a.dtype.kind == "u" else (-1, 2)
    if m.opset < 11:
        return m.node("Clip", [x], {"min": float(low), "max": float(high)})
    bounds = [m.constant(np.asarray(low, a.dtype)), m.constant(np.asarray(high, a.dtype))]
    return m.node("Clip", [x, *m.pick((bounds, bounds[:1], ["", bounds[1]]))], {})


def cast(m: Builder, x: str, a: Array) -> bool:
    """Negative floats as unsigned integers are whatever the processor makes of them."""
    if m.chance(0.3):
        return m.node("CastLike", [x, m.operand([1], m.pick(TYPES[:4]))], {})
    kind = m.pick(TYPES)
    return (a.dtype.kind not in "fV" or "uint" not in kind) and m.node(
        "Cast", [x], {"to": CODES[kind]}
    )


def transpose(m: Builder, x: str, a: Array) -> bool:
    attrs = {"perm": m.rng.permutation(a.ndim).tolist()} if m.chance(0.9) else {}
    return m.node("Transpose", [x], attrs)


def reshape(m: Builder, x: str, a: Array) -> bool:
    kind = m.pick(("reshape", "reshape", "squeeze", "unsqueeze"))
    if kind == "squeeze":
        ones = [i - a.ndim * m.draw(0, 1) for i, e in enumerate(a.shape) if e == 1]
        return listed(m, "Squeeze", x, 13, {}, axes=ones if m.chance(0.7) and ones else None)
    if kind == "unsqueeze":
        more = m.draw(1, 2)
        axes = m.rng.permutation(a.ndim + more)[:more] - (a.ndim + more) * m.draw(0, 1)
        return listed(m, "Unsqueeze", x, 13, {}, axes=axes.tolist())
    sizes = [d for d in range(1, a.size + 1) if a.size % d == 0] or [0]
    first = m.pick(sizes)
    shape = m.pick(
        ([first, -1], [-1], [1, first, -1], [*a.shape[:1], -1], [0] * a.ndim, list(a.shape[::-1]))
    )
    return m.node("Reshape", [x, m.constant(np.array(shape, np.int64))], {})


def slice_(m: Builder, x: str, a: Array) -> bool:
    """Any ends, in and beyond the extents, forward and backward."""
    axes = axes_of(m, a)
    ends = [
        m.pick((0, 1, 2, -1, -2, 5, 99, -99, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)))
        for _ in range(2 * len(axes))
    ]
    steps = [m.pick((1, 1, 2, 3, -1, -1, -2)) for _ in axes]
    for i, step in enumerate(steps):  # ONNX Runtime takes the largest end for one before the start
        ends[len(axes) + i] = min(ends[len(axes) + i], 99) if step < 0 else ends[len(axes) + i]
    if m.opset < 10:
        return m.node(
            "Slice", [x], {"axes": axes, "starts": ends[: len(axes)], "ends": ends[len(axes) :]}
        )
    lists = (ends[: len(axes)], ends[len(axes) :], axes, steps)
    kind = m.pick((np.int64, np.int64, np.int32))
    lists = tuple(
        np.clip(np.array(v, np.int64), np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)
        for v in lists
    )
    return m.node("Slice", [x, *(m.constant(v) for v in lists[: 4 if m.chance(0.8) else 3])], {})


def gather(m: Builder, x: str, a: Array) -> bool:
    axis = axis_of(m, a)
    extent = a.shape[axis] if a.ndim else 0
    if extent == 0:
        return False
    kind = m.pick((np.int64, np.int32))
    op = m.pick(("Gather", "Gather", "GatherElements", "GatherND"))
    if op == "GatherND":
        depth = m.draw(1, a.ndim)
        index = np.stack([places(m, max(e, 1), (3,)) for e in a.shape[:depth]], -1)
        return m.node(op, [x, m.constant(index)], {})
    shape = m.pick(((), (3,), (2, 2), (0,), (1,)))
    if op == "GatherElements":
        shape = tuple(
            m.draw(0 if m.chance(0.1) else 1, e) if i != axis % a.ndim else m.draw(1, 5)
            for i, e in enumerate(a.shape)
        )
    index = (
        m.pick((places(m, extent, shape, kind), np.arange(extent, dtype=kind)[::-1].copy()))
        if op == "Gather"
        else places(m, extent, shape, kind)
    )
    name = m.feed(index) if m.chance(0.3) else m.constant(index)
    return m.node(op, [x, name], {"axis": axis})


def scatter(m: Builder, x: str, a: Array) -> bool:
    axis = axis_of(m, a)
    extent = a.shape[axis] if a.ndim else 0
    if extent == 0:
        return False
    attrs = {"reduction": m.pick(("none", "add", "mul", "max", "min"))} if m.opset >= 18 else {}
    if m.chance(0.5):
        at = m.rng.permutation(extent)[: m.draw(1, extent)]
        shape = [
            len(at) if i == axis % a.ndim else m.draw(1, max(e, 1)) for i, e in enumerate(a.shape)
        ]
        index = np.broadcast_to(
            at.reshape([-1 if i == axis % a.ndim else 1 for i in range(a.ndim)]), shape
        ).copy()
        return m.node(
            "ScatterElements",
            [x, m.constant(index), m.operand(shape, a.dtype)],
            {"axis": axis, **attrs},
        )
    rows = m.rng.permutation(a.shape[0])[:3].reshape(-1, 1)
    return m.node(
        "ScatterND", [x, m.constant(rows), m.operand((len(rows), *a.shape[1:]), a.dtype)], attrs
    )


def concat(m: Builder, x: str, a: Array) -> bool:
    if not a.ndim:
        return False
    axis, parts = axis_of(m, a), [x]
    for _ in range(m.draw(0, 3)):
        shape = [m.pick((0, 1, 2, e)) if i == axis % a.ndim else e for i, e in enumerate(a.shape)]
        parts.append(m.pick((x, m.operand(shape, a.dtype))))
    return m.node("Concat", [parts[i] for i in m.rng.permutation(len(parts))], {"axis": axis})


def split(m: Builder, x: str, a: Array) -> bool:
    if not a.ndim:
        return False
    axis = axis_of(m, a)
    first = m.draw(0, a.shape[axis])
    sizes = [first, a.shape[axis] - first]
    if m.opset < 13:
        return m.node("Split", [x], {"axis": axis, "split": sizes}, 2)
    return m.node("Split", [x, m.constant(np.array(sizes, np.int64))], {"axis": axis}, 2)


def pad(m: Builder, x: str, a: Array) -> bool:
    mode = m.pick(("constant", "constant", "reflect", "edge", "wrap"))
    pads = [
        m.pick((0, 0, 1, 2, 5, -1)) if mode == "constant" else m.pick((0, 0, 1, 2))
        for _ in range(2 * a.ndim)
    ]
    if m.opset < 11:
        return m.node("Pad", [x], {"mode": mode, "pads": pads})
    inputs = [x, m.constant(np.array(pads, np.int64))]
    if mode == "constant" and m.chance(0.6):
        inputs.append(m.constant(m.random((), a.dtype)))
    return m.node("Pad", inputs, {"mode": mode})


def spread(m: Builder, x: str, a: Array) -> bool:
    if m.chance(0.5):
        return m.node(
            "Tile",
            [x, m.constant(np.array([m.pick((1, 1, 2, 3, 0)) for _ in a.shape], np.int64))],
            {},
        )
    shape = [m.draw(1, 3) if e == 1 else m.pick((e, 1)) for e in (1,) * m.draw(0, 1) + a.shape]
    return m.node("Expand", [x, m.constant(np.array(shape, np.int64))], {})


def reduce(m: Builder, x: str, a: Array) -> bool:
    if not a.size:
        return False  # a mean of nothing is 0 for one and no number for another
    op = m.pick((*REDUCTIONS, "ArgMax", "ArgMin"))
    if op in ("ArgMax", "ArgMin"):
        last = {"select_last_index": m.draw(0, 1)} if m.opset >= 12 else {}
        return m.node(op, [x], {"axis": axis_of(m, a), "keepdims": m.draw(0, 1), **last})
    if "Log" in op and a.dtype.kind in "iu":
        return False  # of numbers below 0
    attrs: dict[str, Any] = {"keepdims": m.draw(0, 1)}
    since = 13 if op == "ReduceSum" else 18
    if m.opset >= since and m.chance(0.2):
        attrs["noop_with_empty_axes"] = 1
    return listed(m, op, x, since, attrs, axes=axes_of(m, a) or None)


def normal(m: Builder, x: str, a: Array) -> bool:
    if a.ndim < 1:
        return False
    op = m.pick(
        (
            "Softmax",
            "LogSoftmax",
            "LayerNormalization",
            "LpNormalization",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "RMSNormalization",
            "LRN",
            "CumSum",
            "CumProd",
            "TopK",
            "Trilu",
        )
    )
    axis = axis_of(m, a)
    if op in ("Softmax", "LogSoftmax"):
        return m.node(op, [x], {"axis": axis} if m.chance(0.8) else {})
    if op in ("LayerNormalization", "RMSNormalization"):
        scale = m.operand(a.shape[axis:], a.dtype)
        bias = [m.operand(a.shape[axis:], a.dtype)] if op[0] == "L" and m.chance(0.5) else []
        return m.node(op, [x, scale, *bias], {"axis": axis, "epsilon": 0.1})
    if op == "LpNormalization":
        return m.node(op, [x], {"axis": axis, "p": m.draw(1, 2)})
    if op in ("CumSum", "CumProd"):
        return m.node(
            op,
            [x, m.constant(np.asarray(axis, m.pick((np.int64, np.int32))))],
            {"exclusive": m.draw(0, 1), "reverse": m.draw(0, 1)},
        )
    if op == "TopK":
        count = m.constant(np.array([m.draw(0, a.shape[axis])], np.int64))
        return m.node(
            op,
            [x, count],
            {"axis": axis, "largest": m.draw(0, 1)} if m.opset > 10 else {"axis": axis},
            2,
        )
    if op == "Trilu":
        return m.node(
            op,
            [x, *([m.constant(np.asarray(m.draw(-3, 3), np.int64))] if m.chance(0.6) else [])],
            {"upper": m.draw(0, 1)},
        )
    if op == "LRN":
        return m.node(
            op, [x], {"size": m.pick((1, 2, 3, 5)), "alpha": 0.1, "beta": m.pick((0.5, 0.75))}
        )
    channels = a.shape[1] if a.ndim > 1 else 0
    per = [m.operand([channels], a.dtype) for _ in range(2)]
    if op == "BatchNormalization":
        spread_ = m.constant((np.abs(m.random([channels], np.float32)) + 0.5).astype(a.dtype))
        return m.node(op, [x, *per, m.operand([channels], a.dtype), spread_], {})
    if op == "GroupNormalization":
        groups = m.pick([g for g in range(1, channels + 1) if channels % g == 0] or [1])
        return m.node(op, [x, *per], {"num_groups": groups, "epsilon": 0.1})
    return m.node(op, [x, *per], {"epsilon": 0.1})


GENERAL: tuple[Action, ...] = (
    unary,
    unary,
    unary,
    binary,
    binary,
    binary,
    where,
    clip,
    cast,
    transpose,
    transpose,
    reshape,
    reshape,
    slice_,
    slice_,
    gather,
    scatter,
    concat,
    split,
    pad,
    spread,
    reduce,
    reduce,
    normal,
    normal,
)

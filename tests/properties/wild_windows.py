"""Nodes of random ONNX models that slide windows, multiply, resize, quantize or repeat.

In: a model that grows and one of its values. Out: whether a node was added; see wild_nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from autotune.types import Array
from tests.properties.wild_models import Action, Builder
from tests.properties.wild_nodes import GENERAL, axis_of, places


def window(m: Builder, rank: int, wide: int = 3) -> dict[str, Any]:
    """Sizes of windows, steps and margins, on each side its own; paddings larger than a window."""
    attrs: dict[str, Any] = {
        "kernel_shape": [m.draw(1, m.pick((1, wide, wide))) for _ in range(rank)]
    }
    if m.chance(0.6):
        attrs["strides"] = [m.pick((1, 1, 2, 3)) for _ in range(rank)]
    if m.chance(0.4):
        attrs["dilations"] = [m.pick((1, 2, 3, 5)) for _ in range(rank)]
    if m.chance(0.2):
        attrs["auto_pad"] = m.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif m.chance(0.7):
        attrs["pads"] = [m.pick((0, 0, 1, 1, 2, 4)) for _ in range(2 * rank)]
    return attrs


def image(m: Builder, x: str, a: Array) -> tuple[str, Array] | None:
    """The value as an image, if need be by another shape of it."""
    if a.ndim in (3, 4, 5) and a.shape[1]:
        return x, a
    if not a.size or a.dtype.kind not in "fV":
        return None
    channels = m.pick([c for c in (1, 2, 3, 4, 6, 8, 16) if a.size % c == 0])
    rest = a.size // channels
    height = m.pick([h for h in (1, 2, 3, 5, 7, 9, 12) if rest % h == 0])
    shape = np.array([1, channels, height, rest // height], np.int64)
    if not m.node("Reshape", [x, m.constant(shape)], {}):
        return None
    name = m.nodes[-1].output[0]
    return name, m.values[name][0]


def conv(m: Builder, x: str, a: Array) -> bool:
    if (found := image(m, x, a)) is None:
        return False
    x, a = found
    channels, rank, attrs = a.shape[1], a.ndim - 2, window(m, a.ndim - 2, 5)
    attrs["group"] = m.pick(
        (1, channels, *(g for g in range(1, channels + 1) if channels % g == 0))
    )
    kernel, each = attrs["kernel_shape"], m.pick((1, 1, 2, 3, 8, 16, 17))
    if m.chance(0.3):
        attrs.pop("auto_pad", None)
        if m.chance(0.4):
            attrs["output_padding"] = [m.draw(0, 2) for _ in range(rank)]
        weights = m.operand((channels, each, *kernel), a.dtype)
        bias = [m.operand([each * attrs["group"]], a.dtype)] if m.chance(0.5) else []
        return m.node("ConvTranspose", [x, weights, *bias], attrs)
    outputs = attrs["group"] * each
    weights = m.operand((outputs, channels // attrs["group"], *kernel), a.dtype)
    bias = [m.operand([outputs], a.dtype)] if m.chance(0.5) else []
    return m.node("Conv", [x, weights, *bias], attrs)


def pool(m: Builder, x: str, a: Array) -> bool:
    if (found := image(m, x, a)) is None:
        return False
    x, a = found
    op = m.pick(
        (
            "MaxPool",
            "MaxPool",
            "AveragePool",
            "AveragePool",
            "LpPool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "GlobalLpPool",
        )
    )
    if op.startswith("Global"):
        return m.node(op, [x], {})
    attrs = window(m, a.ndim - 2)
    if max(attrs.get("pads", [0])) >= min(attrs["kernel_shape"]):
        attrs.pop("pads")  # of a window in the margin alone
    if m.chance(0.5) and m.opset >= 10 and (op != "LpPool" or m.opset >= 18):
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and m.chance(0.5):
        attrs["count_include_pad"] = 1
    if (op == "AveragePool" and m.opset < 19) or (op == "LpPool" and m.opset < 18) or m.opset < 10:
        attrs.pop("dilations", None)
    return m.node(op, [x], attrs, 2 if op == "MaxPool" and m.chance(0.2) else 1)


def product(m: Builder, x: str, a: Array) -> bool:
    if not a.ndim or a.dtype.kind not in "fV":
        return False
    wide = m.pick((0, 1, 1, 2, 3, 5, 8, 16, 17, 33, 64))
    if a.ndim == 2 and m.chance(0.5):
        flip_a, flip_b = m.draw(0, 1), m.draw(0, 1)
        depth, rows = a.shape[:: 1 if flip_a else -1]
        weights = m.operand((depth, wide)[:: 1 - 2 * flip_b], a.dtype)
        bias = m.operand(m.pick(((wide,), (), (1,), (rows, 1), (1, wide), (rows, wide))), a.dtype)
        attrs = {
            "transA": flip_a,
            "transB": flip_b,
            "alpha": m.pick((1.0, 0.5)),
            "beta": m.pick((1.0, 2.0)),
        }
        return m.node("Gemm", [x, weights, *([bias] if m.chance(0.7) else [])], attrs)
    if m.chance(0.2) and a.ndim > 1:
        letters = "abcde"[: a.ndim]
        other = [letters[i] for i in m.rng.permutation(a.ndim)[: m.draw(1, a.ndim)]] + [
            "z"
        ] * m.draw(0, 1)
        sizes = dict(zip(letters, a.shape, strict=True)) | {"z": 3}
        kept = [c for c in dict.fromkeys((*letters, *other)) if m.chance(0.6)]
        out = "".join(kept[i] for i in m.rng.permutation(len(kept)))
        inner = m.operand([sizes[c] for c in other], a.dtype)
        return m.node("Einsum", [x, inner], {"equation": f"{letters},{''.join(other)}->{out}"})
    outer = [
        m.pick((e, 1, 2 if e == 1 else e)) for e in a.shape[m.draw(0, max(a.ndim - 2, 0)) : -2]
    ]
    if m.chance(0.3) and a.ndim > 1:
        return m.node("MatMul", [m.operand((*outer, wide, a.shape[-2]), a.dtype), x], {})
    shape = (a.shape[-1],) if m.chance(0.1) else (*outer, a.shape[-1], wide)
    return m.node("MatMul", [x, m.operand(shape, a.dtype)], {})


def attention(m: Builder, x: str, a: Array) -> bool:
    """A softmax between two products, with a mask and shared heads, as exporters write it."""
    if a.ndim < 2 or a.dtype != np.float32 or 0 in a.shape:
        return False
    keys = m.pick((1, 3, 8, 16, 33))
    k = m.operand((*a.shape[:-2], a.shape[-1], keys), a.dtype)
    v = m.operand((*a.shape[:-2], keys, m.pick((1, 4, 8, 16))), a.dtype)
    if not m.node("MatMul", [x, k], {}):
        return False
    scores = m.nodes[-1].output[0]
    if m.chance(0.7) and m.node("Mul", [scores, m.constant(np.float32(0.125))], {}):
        scores = m.nodes[-1].output[0]
    if m.chance(0.6):
        mask = m.pick(
            (
                m.random((a.shape[-2], keys), np.float32),
                np.where(np.tri(a.shape[-2], keys) > 0, 0, -1e4).astype(np.float32),
            )
        )
        if m.node("Add", [scores, m.feed(mask) if m.chance(0.3) else m.constant(mask)], {}):
            scores = m.nodes[-1].output[0]
    return m.node("Softmax", [scores], {"axis": -1}) and m.node(
        "MatMul", [m.nodes[-1].output[0], v], {}
    )


def resize(m: Builder, x: str, a: Array) -> bool:
    if a.ndim < 2 or m.opset < 11 or a.dtype.kind == "b":
        return False
    attrs = {
        "mode": m.pick(("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": m.pick(
            (
                "half_pixel",
                "asymmetric",
                "align_corners",
                "pytorch_half_pixel",
                "half_pixel_symmetric",
            )
        ),
        "nearest_mode": m.pick(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    }
    if a.dtype.kind in "iu" and attrs["mode"] != "nearest":
        return False  # each rounds to integers in its own way
    if a.ndim != 4 and attrs["coordinate_transformation_mode"] == "half_pixel_symmetric":
        return False  # the one judge that runs it has other places where they fall on elements
    if m.opset >= 18 and m.chance(0.3):
        attrs["antialias"] = 1
    if attrs["mode"] == "cubic":
        attrs |= {"exclude_outside": m.draw(0, 1), "cubic_coeff_a": m.pick((-0.75, -0.5))}
    flat = m.draw(0, 2) if a.ndim > 2 else 0
    factors = [1.0 if i < flat else m.pick((1, 2, 3, 0.5, 1.5, 0.7, 2.3)) for i in range(a.ndim)]
    roi = "" if m.opset >= 13 else m.constant(np.zeros(0, np.float32))
    # By factors, corners are those of the size to one judge, of what it is rounded of to another.
    if m.chance(0.6) and attrs["coordinate_transformation_mode"] != "align_corners":
        return m.node("Resize", [x, roi, m.constant(np.array(factors, np.float32))], attrs)
    sizes = np.array([max(1, int(e * f)) for e, f in zip(a.shape, factors, strict=True)], np.int64)
    scales = "" if m.opset >= 13 else m.constant(np.zeros(0, np.float32))
    return m.node("Resize", [x, roi, scales, m.constant(sizes)], attrs)


def blocks(m: Builder, x: str, a: Array) -> bool:
    if a.ndim == 4 and m.chance(0.6):
        if m.chance(0.5):
            return m.node(
                "DepthToSpace", [x], {"blocksize": m.draw(1, 3), "mode": m.pick(("DCR", "CRD"))}
            )
        return m.node("SpaceToDepth", [x], {"blocksize": m.draw(1, 3)})
    if a.ndim == 4 and a.dtype == np.float32 and a.size:
        grid = m.rng.uniform(-1.3, 1.3, (a.shape[0], 3, m.draw(1, 4), 2)).astype(np.float32)
        attrs = {
            "mode": m.pick(
                ("bilinear", "nearest", "bicubic")
                if m.opset < 20
                else ("linear", "nearest", "cubic")
            ),
            "padding_mode": m.pick(("zeros", "border", "reflection")),
            "align_corners": m.draw(0, 1),
        }
        return m.node(
            "GridSample", [x, m.feed(grid) if m.chance(0.5) else m.constant(grid)], attrs
        )
    if a.dtype.kind in "iu" and a.ndim and m.chance(0.5):
        values = m.constant(np.array([0, 1], m.pick((np.float32, np.int64))))
        return m.node(
            "OneHot", [x, m.constant(np.array(7, np.int64)), values], {"axis": axis_of(m, a, 1)}
        )
    if a.ndim >= 2 and m.chance(0.5):
        lengths = m.rng.integers(0 if a.shape[0] == 0 else 1, a.shape[0] + 1, a.shape[1]).astype(
            np.int64
        )
        return m.node(
            "ReverseSequence", [x, m.constant(lengths)], {"time_axis": 0, "batch_axis": 1}
        )
    return a.ndim > 0 and m.node(
        "CenterCropPad", [x, m.constant(np.array([m.draw(1, 9) for _ in a.shape], np.int64))], {}
    )


def quantized(m: Builder, x: str, a: Array) -> bool:
    """To bytes, and mostly back: by tensor or by channel, with and without zero points."""
    kind = np.dtype(
        m.pick(("uint8", "int8", "int8", *(("int16", "uint16") if m.opset >= 21 else ())))
    )
    if a.dtype == np.int32 and m.chance(0.4):
        return m.node("DequantizeLinear", [x, m.constant(np.float32(0.02))], {})
    if a.dtype != np.float32 or m.opset < 10:
        return False
    per = m.opset >= 13 and a.ndim and m.chance(0.4)
    axis = axis_of(m, a) if per else 0
    shape = [a.shape[axis]] if per else []
    scale = np.asarray(m.rng.uniform(0.01, 0.1, shape)).astype(np.float32)
    info = np.iinfo(kind)
    zero = np.asarray(m.rng.integers(info.min // 2, info.max // 2 + 1, shape)).astype(kind)
    attrs = {"axis": axis} if per else {}
    params = [
        m.constant(scale),
        *([m.constant(zero)] if kind != np.uint8 or m.chance(0.8) else []),
    ]
    if not m.node("QuantizeLinear", [x, *params], attrs):
        return False
    return m.chance(0.2) or m.node("DequantizeLinear", [m.nodes[-1].output[0], *params], attrs)


def integers(m: Builder, x: str, a: Array) -> bool:
    """Products of bytes: MatMulInteger, QLinearMatMul, ConvInteger, dynamic ranges."""
    if a.dtype == np.float32 and m.opset >= 11:
        return m.node("DynamicQuantizeLinear", [x], {}, 3)
    if a.dtype.name not in ("uint8", "int8") or a.ndim < 2 or m.opset < 10:
        return False
    kind, zero = m.pick((np.int8, np.uint8)), m.constant(np.asarray(m.draw(0, 9), a.dtype))
    if a.ndim == 4 and a.dtype == np.uint8 and a.shape[1]:
        weights = m.constant(
            m.random((m.draw(1, 9), a.shape[1], m.draw(1, 3), m.draw(1, 3)), np.uint8)
        )
        return m.node(
            "ConvInteger",
            [x, weights, *([zero] if m.chance(0.5) else [])],
            {"pads": [m.draw(0, 1) for _ in range(4)]},
        )
    wide = m.pick((1, 2, 8, 16, 17))
    weights = m.constant(m.random((a.shape[-1], wide), kind))
    if m.chance(0.5):
        return m.node("MatMulInteger", [x, weights, *([zero] if m.chance(0.6) else [])], {})
    scales = [m.constant(np.float32(s)) for s in (0.02, 0.03, 0.1)]
    inner = m.constant(m.random([wide] if kind == np.int8 and m.chance(0.5) else [], kind))
    scale = m.constant(m.rng.uniform(0.01, 0.05, m.values[inner][0].shape).astype(np.float32))
    out = m.constant(np.asarray(3, a.dtype))
    return m.node("QLinearMatMul", [x, scales[0], zero, weights, scale, inner, scales[2], out], {})


def recurrent(m: Builder, x: str, a: Array) -> bool:
    if a.ndim != 3 or a.dtype != np.float32:
        return False
    op, ways = m.pick(("RNN", "GRU", "LSTM")), m.draw(1, 2)
    hidden, gates = m.draw(1, 5), {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    w = [
        m.constant(m.random((ways, gates * hidden, e), np.float32) * np.float32(0.3))
        for e in (a.shape[2], hidden)
    ]
    bias = [m.constant(m.random((ways, 2 * gates * hidden), np.float32))] if m.chance(0.5) else []
    attrs: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": "bidirectional" if ways == 2 else m.pick(("forward", "reverse")),
    }
    if op == "GRU":
        attrs["linear_before_reset"] = m.draw(0, 1)
    return m.node(op, [x, *w, *bias], attrs, m.draw(1, 2))


def branch(m: Builder, x: str, a: Array) -> bool:
    """One of two graphs that read values from outside, by a constant or an input."""
    chosen = m.operand((), np.bool_)
    made = [
        helper.make_graph(
            [helper.make_node(op, [x], [f"{op}_{x}"])],
            op,
            [],
            [
                helper.make_tensor_value_info(
                    f"{op}_{x}", helper.np_dtype_to_tensor_dtype(a.dtype), None
                )
            ],
        )
        for op in ("Neg", "Identity")
    ]
    if a.dtype.kind not in "if" or any(x in n.input for n in m.nodes if n.op_type == "If"):
        return False
    names = [next(m.names)]
    node = helper.make_node("If", [chosen], names, then_branch=made[0], else_branch=made[1])
    taken = -m.values[x] if bool(m.values[chosen][0]) else m.values[x]
    m.nodes.append(node)
    m.values[names[0]] = taken
    return True


def indexed(m: Builder, x: str, a: Array) -> bool:
    """A table read at places that the model computes."""
    if a.dtype.kind not in "iu" or not a.size or a.dtype.name not in ("int32", "int64"):
        return False
    table = m.operand(
        (max(int(np.abs(a.astype(np.int64)).max()) + 1, 1), m.pick((1, 3, 16))), np.float32
    )
    return m.node("Gather", [table, x], {"axis": 0}) and bool(places(m, 1, ()).size)


ACTIONS: tuple[Action, ...] = (
    *GENERAL,
    conv,
    conv,
    conv,
    pool,
    pool,
    product,
    product,
    product,
    attention,
    resize,
    blocks,
    quantized,
    quantized,
    integers,
    recurrent,
    branch,
    indexed,
)
"""Everything that a node may be drawn from."""

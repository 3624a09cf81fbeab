"""Shapes of operators over dimensions of which only names are known. In: an operator, its
operands' shapes and its attributes, numbers or `Dim`s. Out: its result's shape, None where the
shapes are not surely legal. What numbers give is what `Op.infer` gives (a test).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops import OPS
from autotune.rewrite.attributes import normal

Shape = tuple[Any, ...]
"""Numbers and Dims; or a word alone, which stands for a whole shape."""


def shape_of(op: str, shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    """The shape of a result. `attrs` may leave out what is assumed."""
    known = _SHAPES.get(op)
    if known is None:
        known = _KINDS.get(OPS.get(op).kind)
    try:
        return known(shapes, normal(op, attrs, shapes)) if known else None
    except (LookupError, TypeError, ValueError):
        return None


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """numpy's rule; symbols are taken to be larger than 1."""
    rank = max(map(len, shapes), default=0)
    out: list[Any] = []
    for at in range(-rank, 0):
        wide = {s[at] for s in shapes if len(s) >= -at and s[at] != 1}
        if len(wide) > 1:
            return None
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def _elementwise(shapes: Sequence[Shape], _: Mapping[str, Any]) -> Shape | None:
    return broadcast(shapes)


def _matmul(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    a, b = shapes
    k, n = b[-2:][::-1] if attrs["transpose_b"] else b[-2:]
    batch = broadcast([a[:-2], b[:-2]]) if len(a) + len(b) > 4 else ()
    return None if a[-1] != k or batch is None else (*batch, a[-2], n)


def _spatial(x: Shape, kernel: Shape, attrs: Mapping[str, Any]) -> list[Any]:
    """Rows and columns of the windows' places."""
    t, left, b, r = attrs["pads"]
    return [
        (size + pads - (k - 1) * dilation - 1) // stride + 1
        for size, pads, k, dilation, stride in zip(
            x[1:3], (t + b, left + r), kernel, attrs["dilations"], attrs["strides"], strict=True
        )
    ]


def _conv2d(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    x, k = shapes
    if len(x) != 4 or len(k) != 4 or k[2] * attrs["groups"] != x[3]:
        return None
    return (x[0], *_spatial(x, k[:2], attrs), k[3])


def _pool(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    (x,) = shapes
    return (x[0], *_spatial(x, attrs["kernel"], attrs), x[3]) if len(x) == 4 else None


def _transpose(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    (x,) = shapes
    fits = sorted(attrs["perm"]) == list(range(len(x)))
    return tuple(x[d] for d in attrs["perm"]) if fits else None


def _slice(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    (x,) = shapes
    ranges = zip(x, attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    return tuple((stop - start + step - 1) // step for _, start, stop, step in ranges)


def _concat(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    axis, first = attrs["axis"], shapes[0]
    apart = [(*s[:axis], *s[axis + 1 :]) for s in shapes]
    if not axis < len(first) or any(s != apart[0] for s in apart):
        return None
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def _pad(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    (x,) = shapes
    pads = attrs["pads"]
    sides = zip(x, pads[: len(x)], pads[len(x) :], strict=True)
    return tuple(e + before + after for e, before, after in sides)


def _reduce(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    (x,) = shapes
    axes = attrs["axes"]
    if any(a >= len(x) for a in axes):
        return None
    if attrs["keepdims"]:
        return tuple(1 if d in axes else e for d, e in enumerate(x))
    return tuple(e for d, e in enumerate(x) if d not in axes)


def _same(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    axis = attrs.get("axis", 0)
    return shapes[0] if not isinstance(axis, int) or axis < len(shapes[0]) else None


def _given(_: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    return tuple(attrs["out_shape"] if "out_shape" in attrs else attrs["shape"])


_Known = Callable[[Sequence[Shape], Mapping[str, Any]], Shape | None]
_KINDS: Mapping[str, _Known] = {"elementwise": _elementwise, "row": _same}
_SHAPES: Mapping[str, _Known] = {
    "matmul": _matmul, "conv2d": _conv2d, "max_pool2d": _pool, "avg_pool2d": _pool,
    "transpose": _transpose, "slice": _slice, "concat": _concat, "pad": _pad,
    "reshape": _given, "resize": _given, "expand": _given,
    **{f"reduce_{how}": _reduce for how in ("sum", "mean", "max", "min")},
}  # fmt: skip

"""Operators as enumeration needs them, beside their tensor expressions: how many operands each
takes, and which attributes are tried at operands of given shapes.

Shapes are of `Dim`s; `STAR` stands for the dimensions of `[*s]`, however many they are, and comes
first where it is there. Attributes are texts over symbols, as rewrites have them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.rewrite.dims import Dim, symbol
from autotune.rewrite.symbolic_shapes import Shape

STAR = symbol("star")
"""What stands for all dimensions of `*s`: one, while shapes are inferred."""
Ways = Callable[[Sequence[Shape], Mapping[str, str]], Iterator[dict[str, str]]]
"""(operands' shapes, where dimensions are cut) -> attributes."""


@dataclass(frozen=True, slots=True)
class TriedOperator:
    """`ways`: the attributes that are tried; shapes that do not fit are left out later."""

    op: str
    operands: int
    ways: Ways


def starred(shape: Shape) -> bool:
    """Whether a shape begins with dimensions of which the number is not known."""
    return bool(shape) and shape[0] == STAR


def place(shape: Shape, axis: int) -> str:
    """The text of a dimension's number."""
    if not starred(shape):
        return str(axis)
    return "len(s)" + (f" + {axis - 1}" if axis > 1 else "")


def listed(items: Sequence[object], star: str = "") -> str:
    """A tuple's text; `star`: what stands for the dimensions of `*s`."""
    texts = [f"*{star}" if item == STAR else str(item) for item in items]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _own(shape: Shape) -> range:
    """The dimensions that have names."""
    return range(1 if starred(shape) else 0, len(shape))


def _plain(_: Sequence[Shape], __: Mapping[str, str]) -> Iterator[dict[str, str]]:
    yield {}


def _matmul(_: Sequence[Shape], __: Mapping[str, str]) -> Iterator[dict[str, str]]:
    yield {}
    yield {"transpose_b": "True"}


def _transpose(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    (x,) = shapes
    if starred(x) and len(x) == 3:
        yield {"perm": "(*tuple(range(len(s))), len(s) + 1, len(s))"}
    if not starred(x) and len(x) == 2:
        yield {"perm": "(1, 0)"}
    if not starred(x) and len(x) == 3:
        yield {"perm": "(0, 2, 1)"}
    if not starred(x) and len(x) == 4:
        yield {"perm": "(0, 3, 1, 2)"}
        yield {"perm": "(0, 2, 3, 1)"}


def _concat(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for axis in _own(shapes[0]):
        yield {"axis": place(shapes[0], axis)}


def _reduce(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for axis in _own(shapes[0]):
        if shapes[0][axis] != 1:
            yield {"axes": f"({place(shapes[0], axis)},)", "keepdims": "True"}
            yield {"axes": f"({place(shapes[0], axis)},)", "keepdims": "False"}


def _reduce_places(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    (x,) = shapes
    if len(x) == 4 and not starred(x) and x[1] != 1:
        yield {"axes": "(1, 2)", "keepdims": "True"}


def _row(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    if shapes[0]:
        yield {"axis": place(shapes[0], len(shapes[0]) - 1)}


def _norm(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Norms of rows; scales and biases are of one row."""
    x, *others = shapes
    if len(x) > 1 and all(o == x[-1:] for o in others):
        yield {"axis": place(x, len(x) - 1)}


def _slice(shapes: Sequence[Shape], cuts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Both parts of a dimension that is joined of two, or that is cut somewhere."""
    (x,) = shapes
    zeros: list[Any] = [STAR if e == STAR else 0 for e in x]
    steps = listed([STAR if e == STAR else 1 for e in x], "tuple((1 + 0 * d for d in s))")
    for axis in _own(x):
        for at in _cuts(x[axis], cuts):
            for start, stop in ((0, at), (at, x[axis])):
                starts, stops = list(zeros), list(x)
                starts[axis], stops[axis] = start, stop
                yield {
                    "starts": listed(starts, "tuple((0 * d for d in s))"),
                    "stops": listed(stops, "s"), "steps": steps,
                }  # fmt: skip


def _cuts(dim: Any, cuts: Mapping[str, str]) -> Iterator[Any]:
    if str(dim) in cuts:
        yield symbol(cuts[str(dim)])
    if isinstance(dim, Dim) and len(dim.terms) == 2 and set(dim.terms.values()) == {1}:
        for product in dim.terms:
            yield Dim({product: 1})


def _flat(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    (x,) = shapes
    if starred(x):
        return
    if len(x) == 2:
        yield {"shape": f"(({x[0]}) * ({x[1]}),)"}
    if len(x) == 4:
        yield {"shape": f"({x[0]}, ({x[1]}) * ({x[2]}), {x[3]})"}


def _resized(how: str) -> Ways:
    """An image of p by q."""

    def ways(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
        (x,) = shapes
        if len(x) == 4 and not starred(x):
            yield {
                "coordinate": "at", "mode": repr(how), "nearest_mode": "near",
                "out_shape": f"({x[0]}, p, q, {x[3]})",
            }  # fmt: skip

    return ways


def _padded(shapes: Sequence[Shape], _: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Zeros around the last two dimensions, or around an image."""
    (x,) = shapes
    if not starred(x) and len(x) == 2:
        yield {"pads": "(t, l, u, v)"}
    if not starred(x) and len(x) == 4:
        yield {"pads": "(0, t, l, 0, 0, u, v, 0)"}


def fixed(text: str) -> TriedOperator:
    """An operator that is tried with the attributes that a text has for it."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    attrs = {str(k.arg): ast.unparse(k.value) for k in call.keywords}

    def ways(_: Sequence[Shape], __: Mapping[str, str]) -> Iterator[dict[str, str]]:
        yield dict(attrs)

    return TriedOperator(call.func.id, len(call.args), ways)


FUNCTIONS = (
    "relu", "abs", "neg", "sigmoid", "tanh", "gelu", "hard_swish", "silu", "leaky_relu", "exp",
    "sqrt", "erf",
)  # fmt: skip
_REDUCTIONS = ("sum", "mean", "max", "min")
OPERATORS: Mapping[str, TriedOperator] = {
    **{op: TriedOperator(op, 1, _plain) for op in FUNCTIONS},
    **{op: TriedOperator(op, 2, _plain) for op in ("add", "sub", "mul", "div", "max", "min")},
    **{f"reduce_{how}": TriedOperator(f"reduce_{how}", 1, _reduce) for how in _REDUCTIONS},
    **{f"places_{how}": TriedOperator(f"reduce_{how}", 1, _reduce_places) for how in _REDUCTIONS},
    "matmul": TriedOperator("matmul", 2, _matmul),
    "transpose": TriedOperator("transpose", 1, _transpose),
    "concat": TriedOperator("concat", 2, _concat),
    "slice": TriedOperator("slice", 1, _slice),
    "reshape": TriedOperator("reshape", 1, _flat),
    "nearest": TriedOperator("resize", 1, _resized("nearest")),
    "linear": TriedOperator("resize", 1, _resized("linear")),
    "pad": TriedOperator("pad", 1, _padded),
    **{op: TriedOperator(op, 1, _row) for op in ("softmax", "log_softmax")},
    "layer_norm": TriedOperator("layer_norm", 3, _norm),
    "rms_norm": TriedOperator("rms_norm", 2, _norm),
}  # fmt: skip
"""By the names that themes have for them."""

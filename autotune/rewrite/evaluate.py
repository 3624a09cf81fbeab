"""Terms of a rewrite on arrays of exact numbers: operators' own references, run on objects.

An elementwise function that is no polynomial is a function of which only its name and attributes
are known: what is equal then is equal for every such function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from autotune.errors import ModelError
from autotune.ops import OPS
from autotune.rewrite.apply import build
from autotune.rewrite.arithmetic import PRIME, Residue, Rounding, digest, residue, through
from autotune.rewrite.attributes import normal
from autotune.rewrite.rule import Application, Rewrite
from autotune.types import Array, Attr, TensorType, freeze_attrs

POLYNOMIAL = frozenset({"add", "sub", "mul", "div", "neg", "expand", "scalar"})
"""Elementwise operators that references compute of any numbers."""
ORDERED = frozenset(
    {"relu", "clip", "abs", "max", "min", "max_pool2d", "reduce_max", "reduce_min"}
)
"""Operators that whole numbers can be given to: piecewise linear."""


ROWS = frozenset({"softmax", "log_softmax", "layer_norm", "rms_norm"})
"""Operators over rows, of which nothing is known but that they do not mind a row's order."""


class Inference:
    """Types of values by name; operators add theirs."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.types = {n: TensorType(dtype="float32", shape=s) for n, s in shapes.items()}
        self.count = 0

    def emit(self, op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> str:
        """Apply an operator. Raises ModelError where it refuses the shapes."""
        self.count += 1
        name = f"%{self.count}"
        attrs = dict(freeze_attrs(attrs))
        try:
            self.types[name] = OPS.get(op).infer([self.types[i] for i in inputs], attrs)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise ModelError(f"{op} refuses {attrs}: {error}") from None
        if self.types[name].size == 0:
            raise ModelError(f"{op} gives nothing")
        return name


class Evaluation(Inference):
    """Values by name, as arrays too."""

    def __init__(self, arrays: Mapping[str, Array], *, ordered: bool = False) -> None:
        super().__init__({n: a.shape for n, a in arrays.items()})
        self.arrays = dict(arrays)
        self.kind = next((type(a.flat[0]) for a in arrays.values() if a.size), int)
        self.ordered = ordered

    def emit(self, op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> str:
        """Apply an operator. Raises ModelError where it refuses the shapes or has no exact
        meaning."""
        name = super().emit(op, inputs, attrs)
        attrs = dict(freeze_attrs(attrs))
        self.arrays[name] = self.result(op, [self.arrays[i] for i in inputs], attrs)
        if self.arrays[name].shape != self.types[name].shape:
            raise ModelError(f"{op}: its reference gives another shape than it infers")
        return name

    def result(self, op: str, arrays: list[Array], attrs: dict[str, Attr]) -> Array:
        """What an operator makes of arrays. Raises ModelError where it has no exact meaning."""
        plain = OPS.get(op).kind == "elementwise" and op != "expand"
        if arrays and plain and not any(a.ndim for a in arrays):
            # numpy makes numbers of arrays without dimensions.
            return self.result(op, [a.reshape(1) for a in arrays], attrs).reshape(())
        opaque = OPS.get(op).kind == "elementwise" and op not in POLYNOMIAL
        if opaque and not (self.ordered and op in ORDERED):
            shapes = [a.shape for a in arrays]
            text = f"{op}{sorted(normal(op, attrs, shapes).items())}"
            return _each(np.broadcast_arrays(*arrays), text)
        if op == "reduce_mean":  # whose reference truncates what are no floats
            total = self.result("reduce_sum", arrays, attrs)
            count = arrays[0].size // total.size
            exact = [Fraction(v) if isinstance(v, int) else v for v in total.reshape(-1)]
            return _objects([v / count for v in exact], total.shape)
        if op in ROWS:
            return self._row(op, arrays, attrs)
        try:
            if op == "max_pool2d" and self.ordered:  # whose borders have a type's least number
                if not all(isinstance(v, int) for a in arrays for v in a.flat):
                    raise TypeError("a largest of fractions")
                arrays = [a.astype(np.int64) for a in arrays]
            if op == "div":  # whose reference rounds what are no floats
                found = np.asarray(np.true_divide(*arrays), dtype=object)
            else:
                found = np.asarray(OPS.get(op).reference(arrays, attrs), dtype=object)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{op} has no meaning without an order of numbers: {error}") from None
        found = _alike(found, arrays, self.kind)
        if self.ordered or not _rounds(op, attrs):
            return found
        flat = [_rounded(v) for v in found.reshape(-1)]
        return _objects(flat, found.shape)

    def _row(self, op: str, arrays: list[Array], attrs: dict[str, Attr]) -> Array:
        """A row operator: of an element and the others of its row, in whatever order; then the
        scale and the bias, where it has some."""
        full = normal(op, attrs, [a.shape for a in arrays])
        x, axis = arrays[0], full.pop("axis", arrays[0].ndim - 1)
        assert isinstance(axis, int)
        last = axis + 1 if op in ("softmax", "log_softmax") else x.ndim
        ways = np.vectorize(
            lambda v: digest(f"{v.number if hasattr(v, 'number') else v}"), otypes=[object]
        )
        others = ways(x).sum(axis=tuple(range(axis, last)), keepdims=True)
        text = np.vectorize(lambda n: f"{op}{sorted(full.items())}{n % PRIME}", otypes=[object])
        joined = zip(
            x.reshape(-1), np.broadcast_to(text(others), x.shape).reshape(-1), strict=True
        )
        found = _objects([through(v, function) for v, function in joined], x.shape)
        for name, operand in zip(("mul", "add"), arrays[1:], strict=False):
            found = self.result(name, [found, operand], {})
        return found


def _alike(found: Array, arrays: Sequence[Array], kind: type) -> Array:
    """A result whose elements are numbers as those of its operands: zeros around, for one. `kind`:
    of what has no operands."""
    kind = next((type(a.flat[0]) for a in arrays if a.size), kind)
    if kind not in (Residue, Rounding):
        return found
    made = [v if isinstance(v, kind) else kind(residue(v)) for v in found.reshape(-1)]
    return _objects(made, found.shape)


def _rounds(op: str, attrs: Mapping[str, Attr]) -> bool:
    """Whether a result is a sum or a product, and no operand as it was."""
    if op == "resize":
        return attrs.get("mode") == "linear"
    moves = op in ("expand", "neg") or OPS.get(op).kind in ("view", "data")
    return op not in ORDERED and not moves


def _each(arrays: Sequence[Array], function: str) -> Array:
    first, *others = (a.reshape(-1) for a in arrays)
    found = []
    for i, x in enumerate(first):
        text = function if not others else f"{function}{[hash(o[i]) for o in others]}"
        found.append(through(x, text))
    return _objects(found, arrays[0].shape)


def _rounded(number: Any) -> Any:
    return number.rounded() if hasattr(number, "rounded") else number


def _objects(items: list[Any], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out.reshape(shape)


def drawn(shape: tuple[int, ...], make: Any, rng: np.random.Generator, span: int) -> Array:
    """An array of objects, each made of a random number from 0 to below `span`."""
    count = int(np.prod(shape, dtype=np.int64))
    return _objects([make(int(n)) for n in rng.integers(0, span, count)], shape)


def sides(
    rewrite: Rewrite,
    which: Sequence[Application | str],
    symbols: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    ordered: bool = False,
) -> list[Array]:
    """The arrays of some of a rewrite's sides. Raises ModelError where there are none."""
    run = Evaluation(arrays, ordered=ordered)
    found = build(rewrite, which, symbols, {n: n for n in arrays}, run.emit)
    return [run.arrays[name] for name in found]

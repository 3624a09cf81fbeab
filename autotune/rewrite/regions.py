"""A part of a term's result, computed from no more of its values than that part reads.

In: a term, the shapes of its values, where the part starts and stops. Out: a term for the part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import ModelError
from autotune.ops import OPS
from autotune.rewrite import expressions
from autotune.rewrite.attributes import normal
from autotune.rewrite.rule import Application
from autotune.types import TensorType, freeze_attrs

Shape = tuple[int, ...]
Region = tuple[tuple[int, int], ...]
"""From where to before where, along every dimension."""


def whole(shape: Shape) -> Region:
    """All of a value."""
    return tuple((0, extent) for extent in shape)


def applied(op: str, args: Sequence[Application | str], **attrs: Any) -> Application:
    """A term whose attributes are known."""
    return Application(op, tuple(args), tuple(sorted((n, repr(v)) for n, v in attrs.items())))


class Regions:
    """Parts of terms over values of these shapes; attributes may have these symbols."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        symbols: Mapping[str, Any],
        lets: Mapping[str, Application] | None = None,
    ) -> None:
        self.shapes, self.symbols, self.lets = shapes, symbols, lets or {}
        self._seen: dict[Application | str, Shape] = {}

    def shape(self, term: Application | str) -> Shape:
        """The shape of a term's result. Raises ModelError where an operator refuses."""
        if term not in self._seen:
            self._seen[term] = self._inferred(term)
        return self._seen[term]

    def attributes(self, term: Application) -> dict[str, Any]:
        """A term's attributes, those left out as well. Raises ModelError."""
        try:
            attrs = {n: expressions.value(text, self.symbols) for n, text in term.attrs}
        except expressions.NOTHING as error:
            raise ModelError(f"{term.op} has no attributes: {error}") from None
        return normal(term.op, dict(freeze_attrs(attrs)), [self.shape(a) for a in term.args])

    def part(self, term: Application | str, region: Region) -> Application | str:
        """The term for a region of another one's result."""
        if region == whole(self.shape(term)):
            return term
        if isinstance(term, str) and term in self.lets:
            return self.part(self.lets[term], region)
        if isinstance(term, Application):
            if OPS.get(term.op).kind == "elementwise" and term.op != "expand":
                return self._elementwise(term, region)
            way = {"conv2d": self._convolution, "transpose": self._turned,
                   "reshape": self._reshaped}.get(term.op)  # fmt: skip
            if way is not None:
                return way(term, region)
        return _cut(term, region)

    def _inferred(self, term: Application | str) -> Shape:
        if isinstance(term, str):
            return self.shape(self.lets[term]) if term in self.lets else self.shapes[term]
        operands = [TensorType(dtype="float32", shape=self.shape(a)) for a in term.args]
        return OPS.get(term.op).infer(operands, self.attributes(term)).shape

    def _elementwise(self, term: Application, region: Region) -> Application:
        """Operands that are repeated along a dimension stay whole there."""
        args = []
        for arg in term.args:
            shape = self.shape(arg)
            wanted = zip(shape, region[len(region) - len(shape) :], strict=True)
            args.append(self.part(arg, tuple((0, 1) if e == 1 else r for e, r in wanted)))
        return Application(term.op, tuple(args), term.attrs)

    def _convolution(self, term: Application, region: Region) -> Application:
        """Windows of a part of the image; zeros around only where they reach beyond it."""
        x, k = term.args
        (_, *extents, depth), window = self.shape(x), self.shape(k)
        attrs = self.attributes(term)
        if attrs["groups"] > 1 and region[3] != (0, window[3]):
            return _cut(term, region)
        k = self.part(k, (*whole(window)[:3], region[3]))
        needed, before, after = [], [], []
        for d in (0, 1):
            first, last = region[1 + d]
            start = first * attrs["strides"][d] - attrs["pads"][d]
            reach = (window[d] - 1) * attrs["dilations"][d]
            stop = (last - 1) * attrs["strides"][d] - attrs["pads"][d] + reach + 1
            inside = min(max(start, 0), extents[d]), min(max(stop, 0), extents[d])
            if inside[0] >= inside[1]:
                return _cut(term, region)  # zeros alone
            needed.append(inside)
            before.append(inside[0] - start)
            after.append(stop - inside[1])
        image = self.part(x, (region[0], *needed, (0, depth)))
        return applied("conv2d", (image, k), **attrs | {"pads": (*before, *after)})

    def _turned(self, term: Application, region: Region) -> Application:
        perm = self.attributes(term)["perm"]
        wanted = tuple(region[perm.index(d)] for d in range(len(perm)))
        return Application("transpose", (self.part(term.args[0], wanted),), term.attrs)

    def _reshaped(self, term: Application, region: Region) -> Application:
        """Dimensions that are merged are covered by what is between, and cut behind."""
        shape, out = self.shape(term.args[0]), self.shape(term)
        wanted: list[tuple[int, int]] = []
        covered: list[tuple[int, int]] = []
        for ins, outs in _groups(shape, out):
            within = region[outs.start : outs.stop]
            inner = math.prod(shape[ins.start + 1 : ins.stop])
            if len(outs) == 1:
                start, stop = within[0][0] // inner, -(-within[0][1] // inner)
                wanted += [(start, stop), *whole(shape[ins.start + 1 : ins.stop])]
                covered.append((start * inner, stop * inner))
            else:
                wanted += whole(shape[ins.start : ins.stop])
                covered += whole(out[outs.start : outs.stop])
        part = self.part(term.args[0], tuple(wanted))
        made = applied("reshape", (part,), shape=tuple(b - a for a, b in covered))
        inside = zip(region, covered, strict=True)
        rest = tuple((a - start, b - start) for (a, b), (start, _) in inside)
        sizes = tuple(b - a for a, b in covered)
        return made if rest == whole(sizes) else _cut(made, rest)


def _cut(term: Application | str, region: Region) -> Application:
    return applied(
        "slice", (term,), starts=tuple(a for a, _ in region), stops=tuple(b for _, b in region),
        steps=(1,) * len(region),
    )  # fmt: skip


def _groups(shape: Shape, out: Shape) -> list[tuple[range, range]]:
    """Neighbouring dimensions before and after a reshape that have as many elements."""
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(shape) and j < len(out):
        first, second = i, j
        one, other = shape[i], out[j]
        i, j = i + 1, j + 1
        while one != other:
            if one < other:
                one, i = one * shape[i], i + 1
            else:
                other, j = other * out[j], j + 1
        groups.append((range(first, i), range(second, j)))
    if i < len(shape) or j < len(out):  # extents of 1 at the end
        first, second = (groups[-1][0].start, groups[-1][1].start) if groups else (0, 0)
        groups[-1:] = [(range(first, len(shape)), range(second, len(out)))]
    return groups

"""A matrix product by halves: its loops as they are found in a program, and the sums at both ends.

In: a program with a naive matrix product of constant weights. Out: what Strassen's algorithm needs
to know of it, and the nests that combine quarters of the data and of the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.rewrite import Body, find_loop, map_loads, map_stmt_indices, stores_of
from autotune.program.strassen import DATA, PRODUCTS, RESULT, terms
from autotune.schedule.algorithms.convolution_loops import buffers_of
from autotune.schedule.loops.nest import perfect_chain

Cell = Callable[[int, ir.Index], tuple[ir.Index, ...]]
"""Where a scratch holds something of a product's number, at a place of the last dimension."""
Around = Sequence[tuple[str, int]]
"""Loops around a nest, outermost first: variable and extent."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of channels of a half."""

    start: ir.Index
    extent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveProduct:
    """A naive matrix product and its epilogue, as found in a program. `halved`: number of the
    output loop that is halved, -1 for all as one. `weight_dims`: those of the reduction and the
    channels."""

    loops: tuple[ir.For, ...]
    halved: int
    depth: ir.For
    data: ir.Load
    weights: str
    weight_rank: int
    weight_dims: tuple[int, int]
    epilogue: Body
    buffer: ir.Buffer

    @property
    def channels(self) -> ir.For:
        return self.loops[-1]


def find_product(program: ir.Program, buffer: str, rows: str) -> NaiveProduct:
    """Recognize the loops; ScheduleError where they are no plain product of even extents."""
    refuse = ScheduleError(f"{buffer} is not a plain product with constant weights")
    update = next((s for s in stores_of(program.body, buffer) if s.combine == "sum"), None)
    product = update.value if update else None
    if update is None or not (isinstance(product, ir.Apply) and product.fn == "mul"):
        raise refuse
    x, w = product.args
    names = [str(i.terms[0][0]) if i.terms else "" for i in update.indices]
    if not (isinstance(x, ir.Load) and isinstance(w, ir.Load)) or len(names) < 2 or "" in names:
        raise refuse
    chain = perfect_chain(find_loop(program, names[0]), len(names))
    if tuple(ir.index(c.var) for c in chain) != update.indices or len(chain[-1].body) < 2:
        raise refuse
    init, reduction, *epilogue = chain[-1].body
    if not (
        isinstance(reduction, ir.For)
        and isinstance(init, ir.Store)
        and init.value == ir.Const(0.0)
    ):
        raise refuse
    nest = [reduction]
    while isinstance(nest[-1].body[0], ir.For):
        nest.append(nest[-1].body[0])
    *single, depth = nest
    env = {loop.var: ir.Index() for loop in single}
    data, weights = (
        ir.Load(v.buffer, tuple(i.substitute(env) for i in v.indices)) for v in (x, w)
    )
    dims = _weight_dims(weights, depth.var, chain[-1].var)
    same = any(chain[-1].var in i.vars() for i in data.indices)
    if any(loop.extent > 1 for loop in single) or same or dims is None:
        raise refuse
    if any(not isinstance(s, ir.Store) or s.combine for s in epilogue):
        raise refuse
    halved = next((n for n, c in enumerate(chain[:-1]) if c.var == rows), -1)
    if halved < 0 and rows:
        raise ScheduleError(f"{rows} is no loop over points of {buffer}")
    for loop in (*chain[halved : halved + 1], depth, chain[-1]):
        if loop.extent % 2:
            raise ScheduleError(f"loop {loop.var} of {loop.extent} iterations has no halves")
    return NaiveProduct(
        loops=tuple(chain),
        halved=halved,
        depth=depth,
        data=data,
        weights=w.buffer,
        weight_rank=len(weights.indices),
        weight_dims=dims,
        epilogue=tuple(epilogue),
        buffer=buffers_of(program)[buffer],
    )


def _weight_dims(weights: ir.Load, depth: str, channels: str) -> tuple[int, int] | None:
    """Dimensions along the reduction and the channels; None where others vary too."""
    along = [
        [d for d, i in enumerate(weights.indices) if i == ir.index(v)] for v in (depth, channels)
    ]
    others = [i for i in weights.indices if i not in (ir.index(depth), ir.index(channels))]
    if any(len(dims) != 1 for dims in along) or any(i.terms for i in others):
        return None
    return along[0][0], along[1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """Sizes of the halves, and the sums. A point of a half is given by `coords`, its index along
    each of `extents`."""

    product: NaiveProduct
    lanes: int
    """Elements that are combined at a time."""

    @property
    def whole(self) -> int:
        """Points of both halves."""
        return math.prod(c.extent for c in self.product.loops[:-1])

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the loops over the points of a half."""
        p = self.product
        if p.halved < 0:
            return (-(-self.whole // 2),)
        return tuple(
            c.extent // 2 if n == p.halved else c.extent for n, c in enumerate(p.loops[:-1])
        )

    @property
    def points(self) -> int:
        return math.prod(self.extents)

    @property
    def depth(self) -> int:
        return self.product.depth.extent // 2

    @property
    def channels(self) -> int:
        return self.product.channels.extent // 2

    @property
    def v_name(self) -> str:
        return f"{self.product.buffer.name}.v"

    @property
    def m_name(self) -> str:
        return f"{self.product.buffer.name}.m"

    def number(self, coords: tuple[ir.Index, ...]) -> ir.Index:
        """The number of a point of a half, counted from 0."""
        out = ir.Index()
        for at, extent in zip(coords, self.extents, strict=True):
            out = out * extent + at
        return out

    def coords(self, number: ir.Index) -> tuple[ir.Index, ...]:
        """The point of a half of that number."""
        out: list[ir.Index] = []
        for extent in reversed(self.extents[1:]):
            out.append(number % extent)
            number = number // extent
        return (number, *reversed(out))

    def combine_data(self, coords: tuple[ir.Index, ...], cell: Cell, around: Around) -> ir.Stmt:
        """V: seven sums of quarters of the data at a point."""
        at = self._last("sin", self.depth)

        def quarter(p: int, q: int) -> ir.Value:
            where = (*self._place(coords, p), ir.Index())
            env = {c.var: i for c, i in zip(self.product.loops, where, strict=True)}
            env |= {self.product.depth.var: at + q * self.depth}
            data = self.product.data
            load = ir.Load(data.buffer, tuple(i.substitute(env) for i in data.indices))
            inside = self._inside(coords, p)
            return ir.Select(inside, load, ir.Const(0.0)) if inside else load

        body = tuple(
            ir.Store(
                self.v_name,
                cell(i, at),
                signed_sum([(quarter(p, q), sign) for p, q, sign in terms(DATA, i)]),
            )
            for i in range(PRODUCTS)
        )
        return self._nest("sin", self.depth, body, around)

    def combine_result(
        self, coords: tuple[ir.Index, ...], cell: Cell, around: Around, part: Part | None = None
    ) -> ir.Stmt:
        """y = f(sums of the products) at a point, four quarters at a time; of all channels of a
        half, or of a part of them."""
        part = part or Part(ir.Index(), self.channels)
        at, lane = self._last("sout", part.extent), ir.index("sout_l")
        local = self._sums(part.extent)
        body: list[ir.Stmt] = []
        for p in range(2):
            for r in range(2):
                parts: list[tuple[ir.Value, int]] = [
                    (ir.Load(self.m_name, cell(i, at)), RESULT[i][p][r])
                    for i in range(PRODUCTS)
                    if RESULT[i][p][r]
                ]
                sums = ir.Load(local.name, (ir.index(p), ir.index(r), lane))
                total = signed_sum(sorted(parts, key=lambda t: -t[1]))
                body.append(ir.Store(local.name, sums.indices, total))
                place = (*self._place(coords, p), part.start + at + r * self.channels)
                kept = self._epilogue(place, sums)
                inside = self._inside(coords, p)
                body += (ir.If(inside, kept),) if inside else kept
        return self._nest("sout", part.extent, tuple(body), around, local)

    def _place(self, coords: tuple[ir.Index, ...], half: int) -> tuple[ir.Index, ...]:
        """Its place in the whole: the halves alternate, so that threads which share the points of
        the halves share those of the whole alike."""
        halved = self.product.halved
        if halved >= 0:
            return tuple(i * 2 + half if n == halved else i for n, i in enumerate(coords))
        place: list[ir.Index] = []
        number = coords[0] * 2 + half
        for loop in reversed(self.product.loops[1:-1]):
            place.append(number % loop.extent)
            number = number // loop.extent
        return (number, *reversed(place))

    def _inside(self, coords: tuple[ir.Index, ...], half: int) -> tuple[ir.Bound, ...]:
        """Where a half has a point less, that the point exists."""
        if half == 0 or self.whole == 2 * self.points:
            return ()
        return (ir.Bound(coords[0] * 2 + 1, 0, self.whole),)

    def _nest(
        self, prefix: str, extent: int, body: Body, around: Around, local: ir.Buffer | None = None
    ) -> ir.Stmt:
        """Loops over points and vectors along the last dimension."""
        lanes = min(self.lanes, extent)
        if extent % lanes:
            body = (ir.If((ir.Bound(self._last(prefix, extent), 0, extent),), body),)
        body = (ir.For(f"{prefix}_l", lanes, "vector", body),)
        if local:
            body = (ir.Alloc(local, body),)
        body = (ir.For(f"{prefix}_c", -(-extent // lanes), "serial", body),)
        for var, count in reversed(around):
            body = (ir.For(var, count, "serial", body),)
        return body[0]

    def _last(self, prefix: str, extent: int) -> ir.Index:
        return ir.index(f"{prefix}_c") * min(self.lanes, extent) + f"{prefix}_l"

    def _sums(self, extent: int) -> ir.Buffer:
        name, kind = f"{self.product.buffer.name}.y", self.product.buffer.dtype
        return ir.Buffer.dense(name, kind, (2, 2, min(self.lanes, extent)), "register")

    def _epilogue(self, place: tuple[ir.Index, ...], value: ir.Load) -> Body:
        name, epilogue = self.product.buffer.name, self.product.epilogue
        if not epilogue:
            return (ir.Store(name, place, value),)
        env = {loop.var: where for loop, where in zip(self.product.loops, place, strict=True)}
        body = map_stmt_indices(epilogue, lambda i: i.substitute(env))

        def load(found: ir.Load) -> ir.Value | None:
            return value if found.buffer == name else None

        return map_loads(body, load)


def signed_sum(parts: list[tuple[ir.Value, int]]) -> ir.Value:
    """The sum of values with signs; the first is positive."""
    out = parts[0][0]
    for value, sign in parts[1:]:
        out = ir.fn("add" if sign > 0 else "sub", out, value)
    return out

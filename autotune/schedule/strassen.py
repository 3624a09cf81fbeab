"""Step that computes a matrix product by Strassen's algorithm: seven products instead of eight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Apply,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Pack,
    Program,
    Select,
    Stmt,
    Store,
    Value,
    fn,
    index,
)
from autotune.program.rewrite import (
    Body,
    drop_alloc,
    find_loop,
    map_loads,
    map_stmt_indices,
    replace,
    stores_of,
)
from autotune.program.strassen import DATA, PRODUCTS, RESULT, terms
from autotune.schedule._convolution import buffers_of
from autotune.schedule._weights import free_weights, with_pack
from autotune.schedule.base import register
from autotune.schedule.loops import perfect_chain
from autotune.schedule.winograd import hoist_allocs


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Strassen:
    """Compute a matrix product, or a 1x1 convolution, over the halves of `rows`, the reduction and
    the channels.

    for m, n: { t = 0 ; for k: t += x*w ; y = f(t) }   ->
    alloc V, M: {
      for m, k: V[i, m, k] = sums of quarters of x
      for i, t, n: { M[i, t, n] = 0 ; for k: M += V*w }
      for m, n: y = f(sums of M), a quarter each }

    `rows` is an output loop of an even extent, other than the channels'; empty: all of these as
    one, where a half may be one point longer. The weights are combined before the call. `lanes`
    elements are combined at a time. Loops: stra_i, stra_t, and those of the channels and the
    reduction, are left for further steps; the others are annotated already. The three nests are at
    the root.
    """

    step: ClassVar[str] = "strassen"
    buffer: str
    rows: str
    lanes: int

    def apply(self, program: Program) -> Program:
        product = _find_product(program, self.buffer, self.rows)
        plan = _Plan(step=self, product=product)
        body: Body = (plan.combine_data(), plan.multiply(), plan.combine_result())
        for scratch in plan.scratch():
            body = (Alloc(scratch, body),)
        program = replace(program, product.loops[0], body)
        if product.epilogue:
            program = drop_alloc(program, self.buffer)
        return hoist_allocs(_combine_weights(program, product))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A naive matrix product and its epilogue, as found in a program. `halved`: number of the
    output loop that is halved, -1 for all as one. `weight_dims`: those of the reduction and the
    channels."""

    loops: tuple[For, ...]
    halved: int
    depth: For
    data: Load
    weights: str
    weight_rank: int
    weight_dims: tuple[int, int]
    epilogue: Body
    buffer: Buffer

    @property
    def channels(self) -> For:
        return self.loops[-1]


def _find_product(program: Program, buffer: str, rows: str) -> _Product:
    """Recognize the loops; ScheduleError where they are no plain product of even extents."""
    refuse = ScheduleError(f"{buffer} is not a plain product with constant weights")
    update = next((s for s in stores_of(program.body, buffer) if s.combine == "sum"), None)
    product = update.value if update else None
    if update is None or not (isinstance(product, Apply) and product.fn == "mul"):
        raise refuse
    x, w = product.args
    names = [str(i.terms[0][0]) if i.terms else "" for i in update.indices]
    if not (isinstance(x, Load) and isinstance(w, Load)) or len(names) < 2 or "" in names:
        raise refuse
    chain = perfect_chain(find_loop(program, names[0]), len(names))
    if tuple(index(c.var) for c in chain) != update.indices or len(chain[-1].body) < 2:
        raise refuse
    init, reduction, *epilogue = chain[-1].body
    if not (isinstance(reduction, For) and isinstance(init, Store) and init.value == Const(0.0)):
        raise refuse
    nest = [reduction]
    while isinstance(nest[-1].body[0], For):
        nest.append(nest[-1].body[0])
    *single, depth = nest
    env = {loop.var: Index() for loop in single}
    data, weights = (Load(v.buffer, tuple(i.substitute(env) for i in v.indices)) for v in (x, w))
    dims = _weight_dims(weights, depth.var, chain[-1].var)
    same = any(chain[-1].var in i.vars() for i in data.indices)
    if any(loop.extent > 1 for loop in single) or same or dims is None:
        raise refuse
    if any(not isinstance(s, Store) or s.combine for s in epilogue):
        raise refuse
    halved = next((n for n, c in enumerate(chain[:-1]) if c.var == rows), -1)
    if halved < 0 and rows:
        raise ScheduleError(f"{rows} is no loop over points of {buffer}")
    for loop in (*chain[halved : halved + 1], depth, chain[-1]):
        if loop.extent % 2:
            raise ScheduleError(f"loop {loop.var} of {loop.extent} iterations has no halves")
    return _Product(
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


def _weight_dims(weights: Load, depth: str, channels: str) -> tuple[int, int] | None:
    """Dimensions along the reduction and the channels; None where others vary too."""
    along = [
        [d for d, i in enumerate(weights.indices) if i == index(v)] for v in (depth, channels)
    ]
    others = [i for i in weights.indices if i not in (index(depth), index(channels))]
    if any(len(dims) != 1 for dims in along) or any(i.terms for i in others):
        return None
    return along[0][0], along[1][0]


def _combine_weights(program: Program, product: _Product) -> Program:
    rank = product.weight_rank + 1
    param = free_weights(program, product.weights, rank, "product")
    order = tuple(range(rank))
    pack = Pack(param.name, param.shape, splits=(), order=order, strassen=product.weight_dims)
    return with_pack(program, pack)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Sizes and the three nests."""

    step: Strassen
    product: _Product

    @property
    def whole(self) -> int:
        """Points of both halves."""
        return math.prod(c.extent for c in self.product.loops[:-1])

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the loops over the points of a half."""
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

    def scratch(self) -> tuple[Buffer, Buffer]:
        dtype = self.product.buffer.dtype
        return (
            Buffer.dense(self.m_name, dtype, (PRODUCTS, self.points, self.channels), "scratch"),
            Buffer.dense(self.v_name, dtype, (PRODUCTS, self.points, self.depth), "scratch"),
        )

    def _point(self, prefix: str) -> Index:
        """Number of a point of a half, from the loops over them."""
        out = Index()
        for n, extent in enumerate(self.extents):
            out = out * extent + f"{prefix}_p{n}"
        return out

    def _place(self, prefix: str, half: int) -> tuple[Index, ...]:
        """Its place in the whole: the halves alternate, so that threads which share the points of
        the halves share those of the whole alike."""
        halved = self.product.halved
        if halved >= 0:
            return tuple(
                index(f"{prefix}_p{n}") * 2 + half if n == halved else index(f"{prefix}_p{n}")
                for n in range(len(self.extents))
            )
        place: list[Index] = []
        number = self._point(prefix) * 2 + half
        for loop in reversed(self.product.loops[1:-1]):
            place.append(number % loop.extent)
            number = number // loop.extent
        return (number, *reversed(place))

    def _inside(self, prefix: str, half: int) -> tuple[Bound, ...]:
        """Where a half has a point less, that the point exists."""
        if half == 0 or self.whole == 2 * self.points:
            return ()
        return (Bound(self._point(prefix) * 2 + 1, 0, self.whole),)

    def _nest(self, prefix: str, extent: int, body: Body) -> Stmt:
        """Loops over points and vectors along the last dimension."""
        lanes = min(self.step.lanes, extent)
        if extent % lanes:
            body = (If((Bound(self._last(prefix, extent), 0, extent),), body),)
        body = (For(f"{prefix}_l", lanes, "vector", body),)
        if prefix == "sout":
            body = (Alloc(self._sums(), body),)
        body = (For(f"{prefix}_c", -(-extent // lanes), "serial", body),)
        for n, rows in reversed(list(enumerate(self.extents))):
            body = (For(f"{prefix}_p{n}", rows, "serial", body),)
        return body[0]

    def _last(self, prefix: str, extent: int) -> Index:
        return index(f"{prefix}_c") * min(self.step.lanes, extent) + f"{prefix}_l"

    def _sums(self) -> Buffer:
        lanes, kind = min(self.step.lanes, self.channels), self.product.buffer.dtype
        return Buffer.dense(f"{self.product.buffer.name}.y", kind, (2, 2, lanes), "register")

    def combine_data(self) -> Stmt:
        """V: seven sums of quarters of the data."""
        at = self._last("sin", self.depth)

        def quarter(p: int, q: int) -> Value:
            where = (*self._place("sin", p), Index())
            env = {c.var: i for c, i in zip(self.product.loops, where, strict=True)}
            env |= {self.product.depth.var: at + q * self.depth}
            data = self.product.data
            load = Load(data.buffer, tuple(i.substitute(env) for i in data.indices))
            inside = self._inside("sin", p)
            return Select(inside, load, Const(0.0)) if inside else load

        body = tuple(
            Store(
                self.v_name,
                (index(i), self._point("sin"), at),
                _sum([(quarter(p, q), sign) for p, q, sign in terms(DATA, i)]),
            )
            for i in range(PRODUCTS)
        )
        return self._nest("sin", self.depth, body)

    def multiply(self) -> Stmt:
        """M: seven matrix products."""
        oc, ic = self.product.channels, self.product.depth
        cell = (index("stra_i"), index("stra_t"), index(oc.var))
        weights = [Index()] * self.product.weight_rank
        for d, var in zip(self.product.weight_dims, (ic.var, oc.var), strict=True):
            weights[d] = index(var)
        product = fn(
            "mul",
            Load(self.v_name, (index("stra_i"), index("stra_t"), index(ic.var))),
            Load(self.product.weights, (index("stra_i"), *weights)),
        )
        update = For(ic.var, self.depth, "serial", (Store(self.m_name, cell, product, "sum"),))
        body: Body = (Store(self.m_name, cell, Const(0.0)), update)
        for var, extent in (
            (oc.var, self.channels), ("stra_t", self.points), ("stra_i", PRODUCTS),
        ):  # fmt: skip
            body = (For(var, extent, "serial", body),)
        return body[0]

    def combine_result(self) -> Stmt:
        """y = f(sums of the products), four quarters at a time."""
        at, lane = self._last("sout", self.channels), index("sout_l")
        sums = self._sums().name
        body: list[Stmt] = []
        for p in range(2):
            for r in range(2):
                parts = [
                    (Load(self.m_name, (index(i), self._point("sout"), at)), RESULT[i][p][r])
                    for i in range(PRODUCTS)
                    if RESULT[i][p][r]
                ]
                cell = (index(p), index(r), lane)
                body.append(Store(sums, cell, _sum(sorted(parts, key=lambda t: -t[1]))))
                place = (*self._place("sout", p), at + r * self.channels)
                kept = self._epilogue(place, Load(sums, cell))
                inside = self._inside("sout", p)
                body += (If(inside, kept),) if inside else kept
        return self._nest("sout", self.channels, tuple(body))

    def _epilogue(self, place: tuple[Index, ...], value: Load) -> Body:
        name, epilogue = self.product.buffer.name, self.product.epilogue
        if not epilogue:
            return (Store(name, place, value),)
        env = {loop.var: where for loop, where in zip(self.product.loops, place, strict=True)}
        body = map_stmt_indices(epilogue, lambda i: i.substitute(env))

        def load(found: Load) -> Value | None:
            return value if found.buffer == name else None

        return map_loads(body, load)


def _sum(parts: list[tuple[Value, int]]) -> Value:
    """Of values with signs; the first is positive."""
    out = parts[0][0]
    for value, sign in parts[1:]:
        out = fn("add" if sign > 0 else "sub", out, value)
    return out

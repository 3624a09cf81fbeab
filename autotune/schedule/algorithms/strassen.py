"""Steps that compute a matrix product by Strassen's algorithm (1969), seven products instead of
eight: strassen (weights combined before the call), strassen_runs (as they are used)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Bound,
    Buffer,
    Const,
    For,
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
from autotune.program.rewrite import Body, drop_alloc, replace
from autotune.program.strassen import PRODUCTS, WEIGHTS, terms
from autotune.schedule.algorithms.strassen_loops import (
    Halves,
    NaiveProduct,
    Part,
    find_product,
    signed_sum,
)
from autotune.schedule.algorithms.weights import free_weights, with_pack
from autotune.schedule.algorithms.winograd import hoist_allocs
from autotune.schedule.base import register


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
        product = find_product(program, self.buffer, self.rows)
        halves = Halves(product=product, lanes=self.lanes)
        body: Body = self._nests(halves)
        for scratch in _scratch(halves, halves.points, halves.channels):
            body = (Alloc(scratch, body),)
        program = _without_result(replace(program, product.loops[0], body), product)
        return hoist_allocs(_combine_weights(program, product))

    def _nests(self, halves: Halves) -> Body:
        ends = []
        for prefix in ("sin", "sout"):
            around = [(f"{prefix}_p{n}", extent) for n, extent in enumerate(halves.extents)]
            ends.append((tuple(index(v) for v, _ in around), around))
        (data, data_loops), (result, result_loops) = ends
        channels = halves.product.channels.var
        cell = (index("stra_i"), index("stra_t"), index(channels))
        product = _multiply(halves, cell, "stra_t", _combined(halves.product))
        for var, extent in (
            (channels, halves.channels), ("stra_t", halves.points), ("stra_i", PRODUCTS),
        ):  # fmt: skip
            product = (For(var, extent, "serial", product),)
        return (
            halves.combine_data(data, lambda i, c: (index(i), halves.number(data), c), data_loops),
            *product,
            halves.combine_result(
                result, lambda i, c: (index(i), halves.number(result), c), result_loops
            ),
        )


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StrassenRuns:
    """As strassen, run by run of the points and panel by panel of the channels: sums of weights
    are made as they are used, from a panel of each quarter, and a run's products of a panel are
    combined at once. So weights are read as they are, and what is between stays in a cache.

    for m, n: { t = 0 ; for k: t += x*w ; y = f(t) }   ->
    for stra_r: alloc V: {
      for m, k: V[i, m, k] = sums of quarters of x
      for stra_b: alloc M: {
        for i, t, n: { M[i, t, n] = 0 ; for k: M += V * (sum of quarters of w) }
        for m, n: y = f(sums of M), a quarter each } }

    `run` points of a half and `panel` of its channels, both divisors. The products are a loop,
    stra_i, whose sums differ: to be written out. Otherwise as there.
    """

    step: ClassVar[str] = "strassen_runs"
    buffer: str
    rows: str
    lanes: int
    run: int
    panel: int

    def apply(self, program: Program) -> Program:
        product = find_product(program, self.buffer, self.rows)
        halves = Halves(product=product, lanes=self.lanes)
        for size, whole, of in (
            (self.run, halves.points, "points"), (self.panel, halves.channels, "channels"),
        ):  # fmt: skip
            if size < 1 or whole % size:
                raise ScheduleError(f"{whole} {of} of a half are not runs of {size}")
        free_weights(program, product.weights, product.weight_rank, "product")
        program = replace(program, product.loops[0], (self._runs(halves),))
        return _without_result(program, product)

    def _runs(self, halves: Halves) -> Stmt:
        m, v = _scratch(halves, self.run, self.panel)
        start = index("stra_r") * self.run

        def at(loop: str) -> tuple[Index, ...]:
            return halves.coords(start + loop)

        data = halves.combine_data(
            at("sin_p"), lambda i, c: (index(i), index("sin_p"), c), [("sin_p", self.run)]
        )
        part = Part(index("stra_b") * self.panel, self.panel)
        result = halves.combine_result(
            at("sout_p"), lambda i, c: (index(i), index("sout_p"), c), [("sout_p", self.run)], part
        )
        channels = halves.product.channels.var
        cell = (index("stra_i"), index("stra_t"), index(channels))
        product = _multiply(halves, cell, "stra_t", self._quarters(halves, part))
        for var, extent in (
            (channels, self.panel), ("stra_t", self.run), ("stra_i", PRODUCTS),
        ):  # fmt: skip
            product = (For(var, extent, "serial", product),)
        panel = For(
            "stra_b", halves.channels // self.panel, "serial", (Alloc(m, (*product, result)),)
        )
        return For("stra_r", halves.points // self.run, "serial", (Alloc(v, (data, panel)),))

    def _quarters(self, halves: Halves, part: Part) -> Value:
        """The sum of weights that a product uses, chosen by its number."""
        product = halves.product
        depth, channel = index(product.depth.var), part.start + product.channels.var

        def quarter(q: int, r: int) -> Value:
            weights = [Index()] * product.weight_rank
            along = (depth + q * halves.depth, channel + r * halves.channels)
            for d, at in zip(product.weight_dims, along, strict=True):
                weights[d] = at
            return Load(product.weights, tuple(weights))

        sums = [
            signed_sum([(quarter(q, r), sign) for q, r, sign in terms(WEIGHTS, i)])
            for i in range(PRODUCTS)
        ]
        out = sums.pop()
        for number, value in reversed(list(enumerate(sums))):
            out = Select((Bound(index("stra_i"), number, number + 1),), value, out)
        return out


def _scratch(halves: Halves, points: int, channels: int) -> tuple[Buffer, Buffer]:
    """M and V, of so many points and channels."""
    dtype = halves.product.buffer.dtype
    return (
        Buffer.dense(halves.m_name, dtype, (PRODUCTS, points, channels), "scratch"),
        Buffer.dense(halves.v_name, dtype, (PRODUCTS, points, halves.depth), "scratch"),
    )


def _multiply(halves: Halves, cell: tuple[Index, ...], point: str, weights: Value) -> Body:
    """An element of M."""
    depth = halves.product.depth.var
    product = fn("mul", Load(halves.v_name, (cell[0], index(point), index(depth))), weights)
    update = Store(halves.m_name, cell, product, "sum")
    return (Store(halves.m_name, cell, Const(0.0)), For(depth, halves.depth, "serial", (update,)))


def _combined(product: NaiveProduct) -> Value:
    """The weights of a product, combined before the call."""
    weights = [Index()] * product.weight_rank
    for d, loop in zip(product.weight_dims, (product.depth, product.channels), strict=True):
        weights[d] = index(loop.var)
    return Load(product.weights, (index("stra_i"), *weights))


def _combine_weights(program: Program, product: NaiveProduct) -> Program:
    rank = product.weight_rank + 1
    param = free_weights(program, product.weights, rank, "product")
    order = tuple(range(rank))
    pack = Pack(param.name, param.shape, splits=(), order=order, strassen=product.weight_dims)
    return with_pack(program, pack)


def _without_result(program: Program, product: NaiveProduct) -> Program:
    """Where only an epilogue reads the product, it is nowhere as a whole."""
    return drop_alloc(program, product.buffer.name) if product.epilogue else program

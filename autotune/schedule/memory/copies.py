"""Steps that change where data lies: pack (weights, before a call), cache_read (in the call)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import interval, simplify
from autotune.program.packing import packed_shape
from autotune.schedule.algorithms.weights import with_pack
from autotune.schedule.base import register
from autotune.schedule.loops.nest import require_new
from autotune.sizes import ceil_div
from autotune.types import SHORT_FLOATS


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PackConstant:
    """Lay a constant param out in the order of use, before the call. See `ir.Pack`.

    w[k, o]   ->   w.packed[o // 32, k, o % 32]      with splits=((1, 32),), order=(1, 0, 2)
    """

    step: ClassVar[str] = "pack"
    buffer: str
    splits: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    dtype: str = ""
    """bfloat16 or float16 to round the weights to; empty: as they are."""

    def apply(self, program: ir.Program) -> ir.Program:
        param = next((p for p in program.params if p.name == self.buffer), None)
        if param is None or not param.constant:
            raise ScheduleError(f"{self.buffer} is not a constant param")
        if self.dtype not in ("", *SHORT_FLOATS):
            known = " or ".join(SHORT_FLOATS)
            raise ScheduleError(f"weights are rounded to {known} or not at all, not {self.dtype}")
        _check_packing(len(param.shape), self.splits, self.order)
        before = next((p for p in program.packs if p.buffer == self.buffer), None)
        if before and before.splits:
            raise ScheduleError(f"{self.buffer} is packed already")
        pack = ir.Pack(self.buffer, param.shape, self.splits, self.order, (), self.dtype)
        if before:
            pack = dataclasses.replace(before, splits=self.splits, order=self.order)
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        rewrite.map_stmt_indices(program.body, self._check_no_place)

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            indices = packed_index(value.indices, self.splits, self.order, ranges)
            packed = ir.Load(self.buffer, indices)
            return ir.fn("to_float32", packed) if self.dtype else packed

        return with_pack(
            dataclasses.replace(program, body=rewrite.map_loads(program.body, load)), pack
        )

    def _check_no_place(self, place: ir.Index) -> ir.Index:
        if self.buffer in place.tables():
            raise ScheduleError(f"{self.buffer} says where others are read; it stays as it is")
        return place


def packed_index(
    indices: tuple[ir.Index, ...],
    splits: tuple[tuple[int, int], ...],
    order: tuple[int, ...],
    ranges: dict[str, int],
) -> tuple[ir.Index, ...]:
    """The index of an element after splitting and permuting its dimensions."""
    dims = list(indices)
    for d, factor in splits:
        whole = dims[d]
        dims[d : d + 1] = [simplify(whole // factor, ranges), simplify(whole % factor, ranges)]
    return tuple(dims[d] for d in order)


def _check_packing(rank: int, splits: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> None:
    """Splits, and an order afterwards, that so many dimensions can have."""
    for d, factor in splits:
        if not 0 <= d < rank or factor < 1:
            raise ScheduleError(f"dimension {d} of {rank} cannot be split by {factor}")
        rank += 1
    if sorted(order) != list(range(rank)):
        raise ScheduleError(f"expected an order of {rank} dimensions, got {order}")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRead:
    """Copy the dimensions `dims` of a buffer, packed, into scratch at the start of a loop's body.

    for b: { .. x[b, k, n] .. }   ->
    for b: alloc x.cache: { for p0, p1, p2: x.cache[p0, p1, p2] = x[b, p1, p0*16+p2] ;
                            .. x.cache .. }

    `loop` empty: at the root, before everything. Loops are named <buffer>_p0, <buffer>_p1, ...
    """

    step: ClassVar[str] = "cache_read"
    buffer: str
    loop: str
    dims: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    dtype: str = ""
    """bfloat16 to round the copy to; empty: as it is."""

    def apply(self, program: ir.Program) -> ir.Program:
        source = rewrite.find_buffer(program, self.buffer)
        inside = rewrite.find_loop(program, self.loop).body if self.loop else program.body
        if sorted({*self.dims} & {*range(len(source.shape))}) != sorted(self.dims):
            raise ScheduleError(f"{self.dims} are not dimensions of {self.buffer}")
        if self.dtype not in ("", "bfloat16"):
            raise ScheduleError(f"copies are rounded to bfloat16 or not at all, not {self.dtype}")
        _check_packing(len(self.dims), self.splits, self.order)
        self._check_filled(program, source, inside)
        outer = self._outer_indices(program, inside)
        pack = ir.Pack(self.buffer, self._copied(source), self.splits, self.order)
        dtype = self.dtype or source.dtype
        local = ir.Buffer.dense(f"{self.buffer}.cache", dtype, packed_shape(pack), "scratch")
        copy = self._copy(program, source, outer, pack, local)
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            kept = tuple(value.indices[d] for d in self.dims)
            packed = ir.Load(local.name, packed_index(kept, self.splits, self.order, ranges))
            return ir.fn("to_float32", packed) if self.dtype else packed

        body: rewrite.Body = (ir.Alloc(local, (copy, *rewrite.map_loads(inside, load))),)
        if not self.loop:
            return dataclasses.replace(program, body=body)
        loop = rewrite.find_loop(program, self.loop)
        return rewrite.replace(program, loop, (rewrite.with_body(loop, body),))

    def _copied(self, source: ir.Buffer) -> tuple[int, ...]:
        """Extents of the copy before it is packed."""
        return tuple(source.shape[d] for d in self.dims)

    def _check_filled(self, program: ir.Program, source: ir.Buffer, inside: rewrite.Body) -> None:
        """What is copied is there when the copy is made, and is all that is read."""
        if rewrite.stores_of(inside, self.buffer) or (not self.loop and source.scope != "param"):
            raise ScheduleError(f"{self.buffer} is not computed yet at the start of {self.loop}")
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        for load in rewrite.loads_of(inside):
            if load.buffer != self.buffer:
                continue
            for d in self.dims:
                if source.halo[d] == (0, 0):
                    continue
                lo, hi = interval(load.indices[d], ranges)
                if lo < 0 or hi >= source.shape[d]:
                    raise ScheduleError(f"{self.buffer} is read in its halo, which is not copied")

    def _outer_indices(self, program: ir.Program, inside: rewrite.Body) -> tuple[ir.Index, ...]:
        """Indices of the dimensions not copied: the same everywhere, fixed outside the copy."""
        loads = [v for v in rewrite.loads_of(inside) if v.buffer == self.buffer]
        if not loads:
            raise ScheduleError(f"{self.buffer} is not read in loop {self.loop}")
        rest = [d for d in range(len(loads[0].indices)) if d not in self.dims]
        found = {tuple(v.indices[d] for d in rest) for v in loads}
        if len(found) != 1:
            raise ScheduleError(f"{self.buffer} is read at several places in loop {self.loop}")
        outer = found.pop()
        known = rewrite.ranges_at(program, self.loop) if self.loop else {}
        if any(not i.vars() <= known.keys() for i in outer):
            raise ScheduleError(f"{self.buffer} depends on loops inside {self.loop}")
        values, out = iter(outer), []
        for d in range(len(loads[0].indices)):
            out.append(ir.Index() if d in self.dims else next(values))
        return tuple(out)

    def _copy(
        self,
        program: ir.Program,
        source: ir.Buffer,
        outer: tuple[ir.Index, ...],
        pack: ir.Pack,
        local: ir.Buffer,
    ) -> ir.Stmt:
        names = [f"{self.buffer}_p{i}" for i in range(len(local.shape))]
        require_new(program, *names)
        logical = _unpacked_index(pack, names)
        extents = [source.shape[d] for d in self.dims]
        bounds = tuple(
            ir.Bound(i, 0, extent)
            for i, extent, padded in zip(logical, extents, _padded(pack), strict=True)
            if padded != extent
        )
        indices = list(outer)
        for d, i in zip(self.dims, logical, strict=True):
            indices[d] = i
        value: ir.Value = ir.Load(self.buffer, tuple(indices))
        if bounds:
            value = ir.Select(bounds, value, rewrite.zero(source.dtype))
        if self.dtype:
            value = ir.fn("to_bfloat16", value)
        stmt: ir.Stmt = ir.Store(local.name, tuple(ir.index(n) for n in names), value)
        for name, extent in reversed(list(zip(names, local.shape, strict=True))):
            stmt = ir.For(name, extent, "serial", (stmt,))
        return stmt


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReadRounded(CacheRead):
    """As cache_read, with zeros behind the last elements of dimensions: as many as make them
    multiples, for readers that go through whole blocks. `rounded`: (dimension, multiple)."""

    step: ClassVar[str] = "cache_read_rounded"
    rounded: tuple[tuple[int, int], ...]

    def _copied(self, source: ir.Buffer) -> tuple[int, ...]:
        multiples = dict(self.rounded)
        if min(multiples.values(), default=1) < 1:
            raise ScheduleError(f"multiples must be at least 1, got {self.rounded}")
        return tuple(
            ceil_div(source.shape[d], multiples.get(d, 1)) * multiples.get(d, 1) for d in self.dims
        )


def _unpacked_index(pack: ir.Pack, names: list[str]) -> tuple[ir.Index, ...]:
    """Logical index of the element at packed index `names`."""
    dims: list[ir.Index] = [ir.Index()] * len(names)
    for position, d in enumerate(pack.order):
        dims[d] = ir.index(names[position])
    for d, factor in reversed(pack.splits):
        dims[d : d + 2] = [dims[d] * factor + dims[d + 1]]
    return tuple(dims)


def _padded(pack: ir.Pack) -> tuple[int, ...]:
    """Extents that the splits cover, per original dimension."""
    dims = list(pack.shape)
    for d, factor in pack.splits:
        dims[d : d + 1] = [-(-dims[d] // factor), factor]
    for d, factor in reversed(pack.splits):
        dims[d : d + 2] = [dims[d] * factor]
    return tuple(dims)

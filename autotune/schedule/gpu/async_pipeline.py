"""Steps for GPUs whose copy engine fetches tiles and whose warps multiply by fours: cast_matrix,
flatten, warpgroup, async_pipeline.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import Ranges, recombine, simplify
from autotune.program.async_pipeline import GROUPED_ITEMS, check_fetch, check_group
from autotune.program.packing import packed_shape
from autotune.schedule.base import register
from autotune.schedule.gpu.pipeline import chosen_of, in_slot
from autotune.schedule.loops.nest import perfect_chain, require_new
from autotune.schedule.memory.cast import in_sums, with_first
from autotune.types import ITEM_BYTES, SHORT_FLOATS, Layout, dense_strides

_BYTE_COUNTS = 3
"""Matrices of bytes up to which a group adds to any number of them; then to even ones."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CastMatrix:
    """Copy a float32 param to short floats at the start, as a matrix of its last dimension's runs.

    for b: for i: for k: t += x[b, i, k] * w[k]   ->
    alloc x.rows: { for p: for q: x.rows[p, q] = to_bfloat16(x[p // 9, p % 9, q])
                    for b: for i: for k: t += to_float32(x.rows[9*b + i, k]) * w[k] }

    Only the sum into `tensor` changes. Loops of the copy are named <buffer>_n0 and <buffer>_n1.
    """

    step: ClassVar[str] = "cast_matrix"
    buffer: str
    tensor: str
    dtype: str = "bfloat16"

    def apply(self, program: ir.Program) -> ir.Program:
        source = next((p for p in program.params if p.name == self.buffer), None)
        if source is None or source.dtype != "float32" or source.constant or source.written:
            raise ScheduleError(f"{self.buffer} is not a float32 input")
        if self.dtype not in SHORT_FLOATS:
            raise ScheduleError(f"{self.dtype} is not one of {', '.join(SHORT_FLOATS)}")
        *outer, run = source.shape
        rows = math.prod(outer)
        local = ir.Buffer.dense(f"{self.buffer}.rows", self.dtype, (rows, run), "scratch")
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        found = [0]

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            found[0] += 1
            return ir.fn(
                "to_float32", ir.Load(local.name, _in_rows(value.indices, source, ranges))
            )

        body = in_sums(program.body, self.tensor, load)
        if not found[0]:
            raise ScheduleError(f"no sum into {self.tensor} reads {self.buffer}")
        first = self._copy(program, local, source)
        return dataclasses.replace(program, body=with_first(local, first, body))

    def _copy(self, program: ir.Program, local: ir.Buffer, source: ir.Buffer) -> ir.Stmt:
        names = [f"{self.buffer}_n{d}" for d in range(2)]
        require_new(program, *names)
        row, column = ir.index(names[0]), ir.index(names[1])
        at = []
        for extent, step in zip(source.shape, dense_strides(source.shape[:-1]), strict=False):
            at.append(row // step % extent)
        ranges = dict(zip(names, local.shape, strict=True))
        place = (*(simplify(i, ranges) for i in at), column)
        value = ir.fn(f"to_{self.dtype}", ir.Load(source.name, place))
        stmt: ir.Stmt = ir.Store(local.name, (row, column), value)
        for name, extent in reversed(ranges.items()):
            stmt = ir.For(name, extent, "serial", (stmt,))
        return stmt


def _in_rows(
    indices: tuple[ir.Index, ...], source: ir.Buffer, ranges: Ranges
) -> tuple[ir.Index, ...]:
    """An element's row and column in the matrix of a buffer's runs."""
    row = ir.Index()
    for at, step in zip(indices, dense_strides(source.shape[:-1]), strict=False):
        row = row + at * step
    return recombine(simplify(row, ranges)), indices[-1]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten:
    """Read a param as the matrix of its last dimension's runs, which lie equally far apart.

    for b in 2: for i in 9: for k: t += x[b, i, k]   ->
    for b in 2: for i in 9: for k: t += x[9*b + i, k]
    """

    step: ClassVar[str] = "flatten"
    buffer: str

    def apply(self, program: ir.Program) -> ir.Program:
        source = next((p for p in program.params if p.name == self.buffer), None)
        if source is None or source.constant or source.written:
            raise ScheduleError(f"{self.buffer} is not an input")
        apart = rows_apart(source.shape, source.layout)
        if not apart:
            raise ScheduleError(f"runs of {self.buffer} do not lie equally far apart")
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        rows = (math.prod(source.shape[:-1]), source.shape[-1])
        matrix = dataclasses.replace(source, shape=rows, strides=(apart, 1), halo=((0, 0), (0, 0)))

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            return ir.Load(self.buffer, _in_rows(value.indices, source, ranges))

        params = tuple(matrix if p is source else p for p in program.params)
        body = rewrite.map_loads(program.body, load)
        return dataclasses.replace(program, params=params, body=body)


def rows_apart(shape: tuple[int, ...], layout: Layout) -> int:
    """Elements from each run of the last dimension to the next; 0 where they differ, or where
    something lies around the tensor."""
    if any(before or after for before, after in layout.halo) or layout.strides[-1] != 1:
        return 0
    apart, count = 0, 1
    for extent, stride in reversed(list(zip(shape[:-1], layout.strides[:-1], strict=True))):
        apart = apart or (stride if extent > 1 else 0)
        if extent > 1 and stride != apart * count:
            return 0
        count *= extent
    return apart or shape[-1]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Warpgroup:
    """Products with matrices side by side by one instruction of four warps.

    for n in 8: mma t[n, 0, 0], a[16*w, 0], b[8*n, 0]   ->
    wgmma 8 t[0, 0, 0], a[16*w, 0], b[0, 0]

    The rows of `a` of each four warps follow each other; nothing else depends on which it is.
    """

    step: ClassVar[str] = "warpgroup"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        mma = loop.body[0]
        if len(loop.body) != 1 or not isinstance(mma, ir.Mma) or mma.across:
            raise ScheduleError(f"loop {self.loop} is not one of products of matrices alone")
        dtype = rewrite.find_buffer(program, mma.a.buffer).dtype
        if dtype not in GROUPED_ITEMS:
            raise ScheduleError(f"four warps multiply matrices of {' or '.join(GROUPED_ITEMS)}")
        if ITEM_BYTES[dtype] == 1 and loop.extent > _BYTE_COUNTS and loop.extent % 2:
            raise ScheduleError(f"four warps do not add to {loop.extent} matrices of bytes")
        self._check(mma)
        first = {self.loop: ir.Index()}
        total, a, b = (
            ir.Load(p.buffer, tuple(i.substitute(first) for i in p.indices))
            for p in (mma.total, mma.a, mma.b)
        )
        product = ir.WarpgroupMma(total, a, b, loop.extent)
        around = [s for s in rewrite.loop_path(program.body, self.loop) if isinstance(s, ir.For)]
        warp = next((s for s in around if s.kind == "warp"), None)
        if warp is None or warp.extent % 4:
            raise ScheduleError(f"loop {self.loop} is not in a loop over warps, four by four")
        wrong = check_group(product, warp)
        if wrong:
            raise ScheduleError(wrong)
        return rewrite.replace(program, loop, (product,))

    def _check(self, mma: ir.Mma) -> None:
        """Sums and columns follow each other, rows stay."""
        steps = {
            "sums": (mma.total.indices, -3, 1),
            "columns": (mma.b.indices, -2, ir.MATRIX[1]),
        }
        for what, (indices, dim, step) in steps.items():
            used = [i for i in indices if self.loop in i.vars()]
            if used != [indices[dim]] or used[0].coefficient(self.loop) != step:
                raise ScheduleError(f"{what} of loop {self.loop} do not lie {step} apart")
        if any(self.loop in i.vars() for i in mma.a.indices):
            raise ScheduleError(f"rows depend on loop {self.loop}")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncPipeline:
    """A warp-specialized pipeline: copies to shared memory by the copy engine, which a warp of
    their own starts iterations before they are used.

    for k in 9: alloc s[64, 64]: {
        for i: for j: s[i, j] = x[i, 64*k+j] ; barrier ; use s ; barrier }   ->
    alloc s[3, 64, 64]: for k in 9 stream: {
        fetch [64, 64] s[k % 3, 0, 0] from x[0, 64*k] ; use s[k % 3] }

    Copies are boxes of tensors, with zeros only beyond them; their rows are of 128 bytes. What
    uses them are products of `warpgroup`.
    """

    step: ClassVar[str] = "async_pipeline"
    loop: str
    stages: int

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        if not 2 <= self.stages <= loop.extent:
            raise ScheduleError(f"{self.stages} stages in {loop.extent} iterations")
        buffers, body = rewrite.unwrapped(loop.body, "shared")
        if not buffers or body[-1] != ir.Barrier() or body.index(ir.Barrier()) == len(body) - 1:
            raise ScheduleError(f"loop {self.loop} does not copy, wait, compute and wait again")
        first = body.index(ir.Barrier())
        compute, slot = body[first + 1 : -1], ir.index(self.loop) % self.stages
        names = {b.name for b in buffers}
        if any(isinstance(s, ir.Mma | ir.Store) for s in ir.walk(compute)):
            raise ScheduleError(f"loop {self.loop} holds more than products of four warps")
        staged = {b.name: _staged(b, self.stages) for b in buffers}
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        fetches = [_fetch(program, nest, staged, slot, ranges) for nest in body[:first]]
        nest: rewrite.Body = (
            ir.For(self.loop, loop.extent, "stream", (*fetches, *in_slot(compute, names, slot))),
        )
        for buffer in reversed(buffers):
            nest = (ir.Alloc(staged[buffer.name], nest),)
        return rewrite.replace(program, loop, nest)


def _staged(buffer: ir.Buffer, stages: int) -> ir.Buffer:
    """The buffer as many times, one behind the other."""
    if buffer.strides != dense_strides(buffer.shape):
        raise ScheduleError(f"rows of {buffer.name} are padded")
    return ir.Buffer.dense(buffer.name, buffer.dtype, (stages, *buffer.shape), "shared")


def _fetch(
    program: ir.Program,
    nest: ir.Stmt,
    staged: Mapping[str, ir.Buffer],
    slot: ir.Index,
    ranges: Ranges,
) -> ir.Fetch:
    """A copying nest as a fetch."""
    if not isinstance(nest, ir.For):
        raise ScheduleError("what comes before the barrier is not a copy")
    row, column = perfect_chain(nest, 2)
    store = column.body[0]
    own = (ir.index(row.var), ir.index(column.var))
    if not isinstance(store, ir.Store) or store.combine or store.indices != own:
        raise ScheduleError(f"loop {row.var} does not fill rows of shared memory")
    load, bounds = _loaded(store.value)
    source = _in_memory(program, load.buffer)
    places = tuple(recombine(simplify(i, ranges)) for i in load.indices)
    inside = {(at, 0, extent) for at, extent in zip(places, source.shape, strict=True)}
    if any((recombine(simplify(b.index, ranges)), b.lo, b.hi) not in inside for b in bounds):
        raise ScheduleError(f"{source.name} is copied with zeros in other places than beyond it")
    first = {row.var: ir.Index(), column.var: ir.Index()}
    start = tuple(at.substitute(first) for at in places)
    moved = [at - begin for at, begin in zip(places, start, strict=True)]
    others = [m for m in moved[:-1] if m != ir.Index()]
    if moved[-1] != own[1] or others not in ([], [own[0]]):
        raise ScheduleError(f"{source.name} is not copied in boxes")
    sizes = {ir.Index(): 1, own[0]: row.extent, own[1]: column.extent}
    local = staged[store.buffer]
    fetch = ir.Fetch(
        ir.Load(local.name, (slot, ir.Index(), ir.Index())), ir.Load(source.name, start),
        tuple(sizes[m] for m in moved),
    )  # fmt: skip
    wrong = check_fetch(fetch, local, source)
    if wrong:
        raise ScheduleError(wrong)
    return fetch


def _loaded(value: ir.Value) -> tuple[ir.Load, tuple[ir.Bound, ...]]:
    """What is copied, and where it is not replaced by zero."""
    chosen = chosen_of(value)
    bounds = chosen.bounds if chosen else ()
    load = chosen.then if chosen else value
    zero = chosen is None or (isinstance(chosen.other, ir.Const) and not chosen.other.value)
    if not isinstance(load, ir.Load) or not zero:
        raise ScheduleError(f"{value} is not what lies in a buffer, or zero")
    return load, bounds


def _in_memory(program: ir.Program, name: str) -> ir.Buffer:
    """A buffer as it lies in memory: packed."""
    source = rewrite.find_buffer(program, name)
    pack = next((p for p in program.packs if p.buffer == name), None)
    if pack is None:
        return source
    return ir.Buffer.dense(name, source.dtype, packed_shape(pack), source.scope)

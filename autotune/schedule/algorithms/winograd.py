"""Step winograd: a convolution by Winograd's minimal filtering (Lavin & Gray 2016), with fewer
multiplications."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Pack,
    Program,
    Stmt,
    Store,
    Value,
    fn,
    index,
)
from autotune.program.rewrite import Body, drop_alloc, map_loads, map_stmt_indices, replace
from autotune.program.winograd import Matrix, Phase, factored, phases, points_of, transforms
from autotune.schedule.algorithms.convolution_loops import (
    Convolution,
    buffers_of,
    find_convolution,
)
from autotune.schedule.algorithms.transforms import Transform, unrolled
from autotune.schedule.algorithms.weights import free_weights, with_pack
from autotune.schedule.base import register
from autotune.schedule.memory.prefetch import LINE_BYTES
from autotune.types import ITEM_BYTES


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Winograd:
    """Compute a convolution over output tiles of `tile_h` x `tile_w` points.

    for n, oh, ow, oc: { t = 0 ; for kh, kw, ic: t += x*w ; y = f(t) }   ->
    for n, tb, tcb: alloc V, M: {
      for tr, tc, ic: V[i, j, t, ic] = B^T x B
      for i, j, t, oc: { M[i, j, t, oc] = 0 ; for ic: M += V*w }
      for tr, tc, oc: y = f(A^T M A) }

    A block of `block_h` x `block_w` tiles stays in the cache between the three. The weights are
    transformed before the call. `lanes` channels are transformed at a time. Loops: wino_i, wino_j,
    wino_t, and those of oc and ic, are left for further steps; the others are annotated already.
    The data must hold zeros as far as the last tiles read: a halo. With a single block there is no
    loop around, and the three nests are at the root. A block is of `together` images, or 1: of
    all, without room between points; where an image has few tiles, several share the weights.
    """

    step: ClassVar[str] = "winograd"
    buffer: str
    tile_h: int
    tile_w: int
    block_h: int
    block_w: int
    lanes: int
    together: int = 0

    def apply(self, program: Program) -> Program:
        conv = find_convolution(program, self.buffer)
        plan = WinogradPlan.of(self, conv)
        _check_halo(program, conv, plan)
        body: Body = (plan.transform_data(), plan.multiply(), plan.transform_result())
        around = conv.extents[0] // plan.images
        single = around * plan.blocks == 1
        if single:
            env = {conv.loops[0].var: Index(), "wino_tb": Index(), "wino_cb": Index()}
            body = map_stmt_indices(body, lambda i: i.substitute(env))
        for scratch in plan.scratch():
            body = (Alloc(scratch, body),)
        if not single:
            body = (For("wino_cb", plan.columns // self.block_w, "serial", body),)
            body = (For("wino_tb", plan.rows // self.block_h, "serial", body),)
            body = (For(conv.loops[0].var, around, "serial", body),)
        program = replace(program, conv.loops[0], body)
        if conv.epilogue:
            program = drop_alloc(program, self.buffer)
        program = transform_weights(program, conv, plan)
        return hoist_allocs(program) if single else program


def hoist_allocs(program: Program) -> Program:
    """Root allocs around the whole body, so that the nests in them are top-level statements."""
    found: list[Buffer] = []

    def flat(body: Body) -> Body:
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Alloc):
                found.append(stmt.buffer)
                out += flat(stmt.body)
            else:
                out.append(stmt)
        return tuple(out)

    body = flat(program.body)
    for buffer in reversed(found):
        body = (Alloc(buffer, body),)
    return dataclasses.replace(program, body=body)


def _check_halo(program: Program, conv: Convolution, plan: WinogradPlan) -> None:
    buffer = buffers_of(program)[conv.data.buffer]
    for d, tiles, m, a, pad in (
        (1, plan.rows, plan.step.tile_h, plan.height, conv.pads[0]),
        (2, plan.columns, plan.step.tile_w, plan.width, conv.pads[1]),
    ):
        before, after = buffer.halo[d]
        last = (tiles - 1) * m * conv.strides[d - 1] + a - 1 - pad
        if pad > before or last >= buffer.shape[d] + after:
            wanted = f"{pad} before and {last + 1 - buffer.shape[d]} after"
            raise ScheduleError(
                f"{buffer.name} needs a halo of {wanted} in dimension {d}, "
                f"it has {before} and {after}"
            )


def transform_weights(program: Program, conv: Convolution, plan: WinogradPlan) -> Program:
    param = free_weights(program, conv.weights, 4, "convolution")
    kh, kw = (loop.extent for loop in conv.reduce[:2])
    pack = Pack(
        param.name,
        param.shape,
        splits=(),
        order=(0, 1, 2, 3),
        transforms=(
            (0, plan.step.tile_h, kh, conv.strides[0]),
            (1, plan.step.tile_w, kw, conv.strides[1]),
        ),
    )
    return with_pack(program, pack)


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradPlan:
    """Sizes and the three nests."""

    step: Winograd
    conv: Convolution
    height: int
    width: int
    rows: int
    columns: int

    @staticmethod
    def of(step: Winograd, conv: Convolution) -> WinogradPlan:
        kh, kw = (loop.extent for loop in conv.reduce[:2])
        rows = -(-conv.extents[1] // step.tile_h)
        columns = -(-conv.extents[2] // step.tile_w)
        if rows % step.block_h or columns % step.block_w:
            block = f"{step.block_h} x {step.block_w}"
            raise ScheduleError(f"block {block} does not divide the {rows} x {columns} tiles")
        if step.together > 1 and conv.extents[0] % step.together:
            raise ScheduleError(f"{step.together} images do not divide the {conv.extents[0]}")
        return WinogradPlan(
            step=step,
            conv=conv,
            height=points_of(step.tile_h, kh, conv.strides[0]),
            width=points_of(step.tile_w, kw, conv.strides[1]),
            rows=rows,
            columns=columns,
        )

    @property
    def blocks(self) -> int:
        return self.rows // self.step.block_h * (self.columns // self.step.block_w)

    @property
    def images(self) -> int:
        """Images of a block."""
        return self.conv.extents[0] if self.step.together == 1 else max(self.step.together, 1)

    @property
    def tiles(self) -> int:
        return self.images * self.step.block_h * self.step.block_w

    @property
    def v_name(self) -> str:
        return f"{self.conv.buffer.name}.v"

    @property
    def m_name(self) -> str:
        return f"{self.conv.buffer.name}.m"

    def scratch(self) -> tuple[Buffer, Buffer]:
        return (
            self._scratch(self.m_name, self.conv.extents[3]),
            self._scratch(self.v_name, self.conv.channels),
        )

    def _scratch(self, name: str, channels: int) -> Buffer:
        """Channels of tiles, point by point: an odd number of cache lines apart, so that those of
        one tile do not evict each other."""
        dtype, point = self.conv.buffer.dtype, self.tiles * channels
        line = LINE_BYTES // ITEM_BYTES[dtype]
        if self.step.together != 1 and point % (2 * line) == 0:
            point += line
        shape = (self.height, self.width, self.tiles, channels)
        strides = (self.width * point, point, channels, 1)
        return Buffer(name, dtype, shape, "scratch", strides, ((0, 0),) * 4)

    def _registers(self, name: str, *shape: int) -> Buffer:
        return Buffer.dense(
            f"{self.conv.buffer.name}.{name}", self.conv.buffer.dtype, shape, "register"
        )

    def _tiles_nest(self, prefix: str, channels: int, body: Body, allocs: list[Buffer]) -> Stmt:
        """Loops over the tiles of a block and vectors of channels, lanes innermost."""
        lanes = min(self.step.lanes, channels)
        blocks = -(-channels // lanes)
        if channels % lanes:
            at = index(f"{prefix}_c") * lanes + f"{prefix}_l"
            body = (If((Bound(at, 0, channels),), body),)
        body = (For(f"{prefix}_l", lanes, "vector", body),)
        for buffer in allocs:
            body = (Alloc(buffer, body),)
        for name, extent in (("c", blocks), ("tc", self.step.block_w), ("tr", self.step.block_h)):
            body = (For(f"{prefix}_{name}", extent, "serial", body),)
        if self.images == 1:
            return body[0]
        image = self.conv.loops[0].var
        env = {image: index(image) * self.images + f"{prefix}_n"}
        body = map_stmt_indices(body, lambda i: i.substitute(env))
        return For(f"{prefix}_n", self.images, "serial", body)

    def _tile(self, prefix: str) -> Index:
        """Number of a tile in its block."""
        row = index(f"{prefix}_tr")
        if self.images > 1:
            row = index(f"{prefix}_n") * self.step.block_h + row
        return row * self.step.block_w + f"{prefix}_tc"

    def _origin(self, prefix: str) -> tuple[Index, Index]:
        """Output row and column of a tile's first point."""
        row = index("wino_tb") * self.step.block_h + f"{prefix}_tr"
        column = index("wino_cb") * self.step.block_w + f"{prefix}_tc"
        return row * self.step.tile_h, column * self.step.tile_w

    def transform_data(self) -> Stmt:
        """V = B^T x B, rows first. Where a stride makes rows and columns of several phases, each
        pair of these by itself: fewer half-way values are alive."""
        lanes = min(self.step.lanes, self.conv.channels)
        half = self._registers("d", self.height, self.width, lanes)
        full = self._registers("b", self.height, self.width, lanes)
        body, allocs = list[Stmt](), {half.name: half, full.name: full}
        for pair in itertools.product(*map(enumerate, self.phases())):
            (m, r), (n, c) = pair
            tag = f"{m}{n}" if m or n else ""
            i, j, p, q, s, a = (f"vin_{name}{tag}" for name in "ijpqsa")
            row = self._transform(f"v{m}", r.matrix, (a, p), index("vin_l"), lanes)
            column = self._transform(f"w{n}", c.matrix, (j, s), index("vin_l"), lanes)
            at = index(q) * c.step + c.column
            data = self._data(index(p) * r.step + r.column, at)
            first = row.body(half.name, (index(a) + r.row, at, index("vin_l")), data)
            cell = (index(i) + r.row, index(j) + c.row)
            whole = (*cell, index("vin_l"))
            between = Load(half.name, (cell[0], index(s) * c.step + c.column, index("vin_l")))
            place = (*cell, self._tile("vin"), index("vin_c") * lanes + "vin_l")
            keep = Store(self.v_name, place, Load(full.name, whole))
            second = column.body(full.name, whole, between, (keep,))
            body += [
                unrolled(((q, len(c.matrix[0])),), first), unrolled(((i, len(r.matrix)),), second)
            ]  # fmt: skip
            allocs |= {part.name: part for part in (*row.allocs, *column.allocs)}
        return self._tiles_nest("vin", self.conv.channels, tuple(body), list(allocs.values()))

    def _data(self, row: Index, column: Index) -> Load:
        """An element of a tile's data."""
        lanes = min(self.step.lanes, self.conv.channels)
        tile_row, tile_column = (
            at * stride - pad
            for at, stride, pad in zip(
                self._origin("vin"), self.conv.strides, self.conv.pads, strict=True
            )
        )
        image, channel = index(self.conv.loops[0].var), index("vin_c") * lanes + "vin_l"
        place = (image, tile_row + row, tile_column + column, channel)
        return Load(self.conv.data.buffer, place)

    def _transform(
        self, name: str, matrix: Matrix, loops: tuple[str, str], lane: Index, lanes: int
    ) -> Transform:
        part = self._registers(f"{name}.part", len(factored(matrix)[1]), lanes)
        return Transform(matrix=matrix, loops=loops, part=part, lane=lane)

    def multiply(self) -> Stmt:
        """M = V U: a matrix product per point of the tile."""
        oc, ic = self.conv.loops[3], self.conv.reduce[2]
        point = (index("wino_i"), index("wino_j"), index("wino_t"))
        cell = (*point, index(oc.var))
        weights = (index("wino_i"), index("wino_j"), index(ic.var), index(oc.var))
        data = Load(self.v_name, (*point, self.conv.channel(ic.var)))
        product = fn("mul", data, Load(self.conv.weights, weights))
        update = For(ic.var, ic.extent, "serial", (Store(self.m_name, cell, product, "sum"),))
        body: Body = (Store(self.m_name, cell, Const(0.0)), update)
        for var, extent in (
            (oc.var, oc.extent), ("wino_t", self.tiles), ("wino_j", self.width),
            ("wino_i", self.height),
        ):  # fmt: skip
            body = (For(var, extent, "serial", body),)
        return body[0]

    def transform_result(self) -> Stmt:
        """y = f(A^T M A), rows first, without points outside the output."""
        (by_row, _, _), (by_column, _, _) = self.matrices()
        oc = self.conv.loops[3]
        lanes = min(self.step.lanes, oc.extent)
        half = self._registers("s", self.step.tile_h, self.width, lanes)
        full = self._registers("y", self.step.tile_h, self.step.tile_w, lanes)
        channel, lane = index("vout_c") * lanes + "vout_l", index("vout_l")
        product = Load(
            self.m_name, (index("vout_p"), index("vout_q"), self._tile("vout"), channel)
        )
        rows = self._transform("y", by_row, ("vout_a", "vout_p"), lane, lanes)
        columns = self._transform("z", by_column, ("vout_x", "vout_s"), lane, lanes)
        first = rows.body(half.name, (index("vout_a"), index("vout_q"), lane), product)
        cell = (index("vout_y"), index("vout_x"), lane)
        half_way = Load(half.name, (index("vout_y"), index("vout_s"), lane))
        epilogue = self._epilogue(full.name, cell, channel)
        second = columns.body(full.name, cell, half_way, epilogue)
        body = (
            unrolled((("vout_q", self.width),), first),
            unrolled((("vout_y", self.step.tile_h),), second),
        )
        allocs = [half, full, *rows.allocs, *columns.allocs]
        return self._tiles_nest("vout", oc.extent, body, allocs)

    def _epilogue(self, name: str, cell: tuple[Index, ...], channel: Index) -> Body:
        row, column = self._origin("vout")
        row, column = row + "vout_y", column + "vout_x"
        n, oh, ow, oc = self.conv.loops
        point = (index(n.var), row, column, channel)
        epilogue = self.conv.epilogue
        if not epilogue:
            body: Body = (Store(self.conv.buffer.name, point, Load(name, cell)),)
        else:
            env = {oh.var: row, ow.var: column, oc.var: channel}
            body = map_stmt_indices(epilogue, lambda i: i.substitute(env))

            def load(value: Load) -> Value | None:
                return Load(name, cell) if value.buffer == self.conv.buffer.name else None

            body = map_loads(body, load)
        bounds = self._bounds(row, column)
        return (If(bounds, body),) if bounds else body

    def _bounds(self, row: Index, column: Index) -> tuple[Bound, ...]:
        """What keeps points of the last tiles inside the output."""
        places = zip(
            (row, column),
            self.conv.extents[1:3],
            (self.step.tile_h, self.step.tile_w),
            strict=True,
        )
        return tuple(Bound(at, 0, extent) for at, extent, side in places if extent % side)

    def phases(self) -> tuple[tuple[Phase, ...], tuple[Phase, ...]]:
        """Parts of B^T, by rows and by columns."""
        kh, kw = (loop.extent for loop in self.conv.reduce[:2])
        by_row, by_column = self.conv.strides
        return phases(self.step.tile_h, kh, by_row), phases(self.step.tile_w, kw, by_column)

    def matrices(self) -> tuple[tuple[Matrix, Matrix, Matrix], tuple[Matrix, Matrix, Matrix]]:
        kh, kw = (loop.extent for loop in self.conv.reduce[:2])
        by_row, by_column = self.conv.strides
        return (
            transforms(self.step.tile_h, kh, by_row),
            transforms(self.step.tile_w, kw, by_column),
        )

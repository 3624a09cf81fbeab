"""Winograd's algorithm over all tiles of all images at once, however many there are.

In: a convolution whose images a run sizes. Out: the same by tiles of points, whose products take
them as rows of one matrix, a group at a time, so that weights are read once for all images.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, Bound, Buffer, For, If, Index, Program, Stmt, clamp, index
from autotune.program.rewrite import Body, drop_alloc, map_stmt_indices, replace
from autotune.schedule.algorithms.convolution_loops import buffers_of, find_convolution
from autotune.schedule.algorithms.winograd import (
    Winograd,
    WinogradPlan,
    hoist_allocs,
    transform_weights,
)
from autotune.schedule.base import register
from autotune.schedule.memory.prefetch import LINE_BYTES
from autotune.sizes import ceil_div, surely_at_most
from autotune.types import ITEM_BYTES


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradGroups:
    """Compute a convolution over output tiles of `tile_h` x `tile_w` points, in whole groups.

    for n, oh, ow, oc: { t = 0 ; for kh, kw, ic: t += x*w ; y = f(t) }   ->
    alloc V, M: {
      for n, tr, tc, ic: V[i, j, t, ic] = B^T x B
      for i, j, t, oc: { M[i, j, t, oc] = 0 ; for ic: M += V*w }
      for n, tr, tc, oc: y = f(A^T M A) }

    t is (n * rows + tr) * columns + tc, up to the next multiple of `group`: rows of M behind the
    last tile are of no use. The last tiles begin early enough to end where the output does, which
    is at least one tile long and wide. Otherwise as the step `winograd`.
    """

    step: ClassVar[str] = "winograd_groups"
    buffer: str
    tile_h: int
    tile_w: int
    group: int
    lanes: int

    def apply(self, program: Program) -> Program:
        if min(self.tile_h, self.tile_w, self.group, self.lanes) < 1:
            raise ScheduleError("tiles, groups and lanes must be at least 1")
        conv = find_convolution(program, self.buffer)
        single = Winograd(
            buffer=self.buffer, tile_h=self.tile_h, tile_w=self.tile_w, block_h=1, block_w=1,
            lanes=self.lanes,
        )  # fmt: skip
        one = WinogradPlan.of(single, dataclasses.replace(conv, loops=_one_tile(conv.loops, self)))
        plan = _AllTiles(
            step=single,
            conv=conv,
            height=one.height,
            width=one.width,
            rows=ceil_div(conv.extents[1], self.tile_h),
            columns=ceil_div(conv.extents[2], self.tile_w),
            group=self.group,
        )
        plan.check(program)
        body: Body = (plan.transform_data(), plan.multiply(), plan.transform_result())
        for scratch in plan.scratch():
            body = (Alloc(scratch, body),)
        program = replace(program, conv.loops[0], body)
        if conv.epilogue:
            program = drop_alloc(program, self.buffer)
        return hoist_allocs(transform_weights(program, conv, plan))


def _one_tile(loops: tuple[For, ...], step: WinogradGroups) -> tuple[For, ...]:
    """Loops of an image that is one tile."""
    n, oh, ow, oc = loops
    rows, columns = (
        dataclasses.replace(loop, extent=side)
        for loop, side in ((oh, step.tile_h), (ow, step.tile_w))
    )
    return n, rows, columns, oc


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllTiles(WinogradPlan):
    """The three nests, over all tiles."""

    group: int

    def check(self, program: Program) -> None:
        """Raise ScheduleError where a tile is larger than an image, or reads behind the data."""
        (by_row, by_column), data = self.matrices(), buffers_of(program)[self.conv.data.buffer]
        sides = (self.step.tile_h, self.step.tile_w)
        read = (len(by_row[2][0]), len(by_column[2][0]))
        for d, (side, inputs) in enumerate(zip(sides, read, strict=True), 1):
            extent, pad = self.conv.extents[d], self.conv.pads[d - 1]
            stride = self.conv.strides[d - 1]
            before, after = data.halo[d]
            if not surely_at_most(side, extent):
                raise ScheduleError(f"a tile of {side} points may be longer than {extent}")
            end = (extent - side) * stride + inputs - pad
            if pad > before or not surely_at_most(end, data.shape[d] + after):
                raise ScheduleError(f"{data.name} needs a halo as far as {end} in dimension {d}")

    @property
    def tiles(self) -> int:
        count = self.conv.extents[0] * self.rows * self.columns
        return ceil_div(count, self.group) * self.group

    def _scratch(self, name: str, channels: int) -> Buffer:
        dtype, point = self.conv.buffer.dtype, self.tiles * channels
        line = LINE_BYTES // ITEM_BYTES[dtype]
        if self.group * channels % (2 * line) == 0:
            point += line
        shape = (self.height, self.width, self.tiles, channels)
        strides = (self.width * point, point, channels, 1)
        return Buffer(name, dtype, shape, "scratch", strides, ((0, 0),) * 4)

    def _tiles_nest(self, prefix: str, channels: int, body: Body, allocs: list[Buffer]) -> Stmt:
        lanes = min(self.step.lanes, channels)
        if channels % lanes:
            at = index(f"{prefix}_c") * lanes + f"{prefix}_l"
            body = (If((Bound(at, 0, channels),), body),)
        body = (For(f"{prefix}_l", lanes, "vector", body),)
        for buffer in allocs:
            body = (Alloc(buffer, body),)
        extents = (
            ("c", ceil_div(channels, lanes)), ("tc", self.columns), ("tr", self.rows),
            ("n", self.conv.extents[0]),
        )  # fmt: skip
        for name, extent in extents:
            body = (For(f"{prefix}_{name}", extent, "serial", body),)
        env = {self.conv.loops[0].var: index(f"{prefix}_n")}
        return map_stmt_indices(body, lambda i: i.substitute(env))[0]

    def _tile(self, prefix: str) -> Index:
        row = index(f"{prefix}_n") * self.rows + f"{prefix}_tr"
        return row * self.columns + f"{prefix}_tc"

    def _origin(self, prefix: str) -> tuple[Index, Index]:
        row, column = (
            clamp(index(f"{prefix}_{name}") * side, 0, extent - side)
            for name, side, extent in (
                ("tr", self.step.tile_h, self.conv.extents[1]),
                ("tc", self.step.tile_w, self.conv.extents[2]),
            )
        )
        return row, column

    def _bounds(self, row: Index, column: Index) -> tuple[Bound, ...]:  # noqa: ARG002
        return ()

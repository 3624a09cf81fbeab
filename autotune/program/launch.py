"""GPU programs as kernel launches. In: a program. Out: per top-level statement its grid, block and
shared memory; a VerifyError where loops are bound or barriers placed as no GPU can run them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.errors import VerifyError
from autotune.program import ir
from autotune.program.async_pipeline import (
    BARRIER_BYTES,
    PipelineLoop,
    check_group,
    parts_of,
    pipeline_of,
)
from autotune.program.rewrite import unwrapped
from autotune.types import ITEM_BYTES

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One top-level statement: `body` is what each block runs. Extents are (x, y, z)."""

    grid: Extents
    block: Extents
    blocks: tuple[ir.For, ...]
    """The block loops, outermost first."""
    body: tuple[ir.Stmt, ...]
    shared: tuple[ir.Buffer, ...]
    pipeline: PipelineLoop | None = None

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, every buffer at a multiple of 16 bytes."""
        barriers = BARRIER_BYTES * self.pipeline.copies if self.pipeline else 0
        return sum(-(-storage_bytes(b) // 16) * 16 for b in self.shared) + barriers


def storage_bytes(buffer: ir.Buffer) -> int:
    """Bytes of a buffer from its first element to its last."""
    return storage_size(buffer) * ITEM_BYTES[buffer.dtype]


def storage_size(buffer: ir.Buffer) -> int:
    """Elements from a buffer's first to its last; whole blocks of those that a swizzle moves."""
    last = sum(s * (e - 1) for s, e in zip(buffer.strides, buffer.shape, strict=True))
    block = 1 << sum(buffer.swizzle[:2])
    return -(-(last + 1) // block) * block


def scratch_of(program: ir.Program) -> tuple[ir.Buffer, ...]:
    """The buffers in global memory that live during a whole call, outermost first."""
    return tuple(unwrapped(program.body)[0])


def launches(program: ir.Program) -> tuple[KernelLaunch, ...]:
    """One launch per top-level statement, in order. VerifyError where a statement is no kernel."""
    return tuple(_launch(stmt) for stmt in unwrapped(program.body)[1])


def _launch(stmt: ir.Stmt) -> KernelLaunch:
    blocks: list[ir.For] = []
    body: tuple[ir.Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(body[0], ir.For) and body[0].kind in ir.BLOCK_KINDS:
        blocks.append(body[0])
        body = body[0].body
    block = [1, 1, 1]
    for inner in ir.walk(body):
        if isinstance(inner, ir.For) and inner.kind in ir.THREAD_KINDS:
            axis = ir.THREAD_KINDS.index(inner.kind)
            block[axis] = max(block[axis], inner.extent)
        elif isinstance(inner, ir.For) and inner.kind == "warp":
            block[0] = max(block[0], ir.WARP * inner.extent)
    if any(isinstance(s, ir.For) and s.kind == "warp" for s in ir.walk(body)) and (
        block[0] % ir.WARP or block[1:] != [1, 1]
    ):
        raise VerifyError(f"a block of {block} threads cannot be cut into warps")
    for inner in ir.walk(body):
        if isinstance(inner, ir.Shuffle) and (block[0] % inner.width or inner.width > ir.WARP):
            raise VerifyError(f"no {inner.width} threads side by side in all of a block {block}")
    pipeline = pipeline_of(body)
    if pipeline is not None:
        block[0] = ir.WARP * (pipeline.warps + 1)
    threaded = math.prod(block) > 1 or any(
        isinstance(s, ir.For) and s.kind in ir.THREAD_KINDS for s in ir.walk(body)
    )
    _check(body, _Place(bound=bool(blocks), threaded=threaded, loops=()))
    grid = [1, 1, 1]
    for loop in blocks:
        axis = ir.BLOCK_KINDS.index(loop.kind)
        if grid[axis] != 1:
            raise VerifyError(f"two loops are bound to {loop.kind}: {loop.var} is the second")
        grid[axis] = loop.extent
    shared = tuple(
        s.buffer for s in ir.walk(body) if isinstance(s, ir.Alloc) and s.buffer.scope == "shared"
    )
    return KernelLaunch(
        grid=(grid[0], grid[1], grid[2]), block=(block[0], block[1], block[2]),
        blocks=tuple(blocks), body=body, shared=shared, pipeline=pipeline,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement of a kernel stands."""

    bound: bool
    threaded: bool
    loops: tuple[ir.For, ...]

    @property
    def in_threads(self) -> bool:
        """Whether threads are told apart here."""
        return any(loop.kind in ir.THREAD_KINDS or loop.kind == "warp" for loop in self.loops)

    @property
    def in_warp(self) -> bool:
        """Whether all threads of a warp do the same here."""
        return any(loop.kind == "warp" for loop in self.loops) and not self.in_matrix

    @property
    def in_matrix(self) -> bool:
        """Whether the place goes over all elements of a warp's matrix."""
        kinds = {loop.kind for loop in self.loops}
        return kinds.issuperset(ir.MATRIX_KINDS)


def _check(body: tuple[ir.Stmt, ...], place: _Place) -> None:
    for stmt in body:
        if isinstance(stmt, ir.For):
            _check_loop(stmt, place)
            inner = _Place(place.bound, place.threaded, (*place.loops, stmt))
            _check(stmt.body, inner)
        elif isinstance(stmt, ir.Alloc):
            _check_alloc(stmt.buffer, place)
            _check(stmt.body, place)
        elif isinstance(stmt, ir.If):
            _check(stmt.body, place)
        elif isinstance(stmt, ir.Barrier | ir.AsyncCommit | ir.AsyncWait | ir.Shuffle):
            if not place.bound or place.in_threads:
                raise VerifyError(
                    "barriers, commits, waits, shuffles stand in a block, outside its thread loops"
                )
        elif isinstance(stmt, ir.Mma):
            if not place.in_warp:
                raise VerifyError("mma stands in a warp loop")
        elif isinstance(stmt, ir.WarpgroupMma):
            _check_group(stmt, place)
        elif isinstance(stmt, ir.Fetch):
            loop = place.loops[-1] if place.loops else None
            if loop is None or loop.kind != "stream" or stmt not in parts_of(loop)[0]:
                raise VerifyError("a fetch stands at the head of a stream")
        elif isinstance(stmt, ir.AsyncCopy):
            if not place.in_threads or place.in_warp or place.in_matrix:
                raise VerifyError("an asynchronous copy stands in a thread loop")
        elif isinstance(stmt, ir.Store):
            if place.threaded and not place.in_threads:
                raise VerifyError(f"{stmt.buffer} is written by a block outside its thread loops")
            if place.in_warp:
                raise VerifyError(f"{stmt.buffer} is written by all threads of a warp")


def _check_group(stmt: ir.WarpgroupMma, place: _Place) -> None:
    kinds = [loop.kind for loop in place.loops]
    if not place.in_warp or "stream" not in kinds:
        raise VerifyError("wgmma stands in a warp loop of a stream")
    wrong = check_group(stmt, place.loops[kinds.index("warp")])
    if wrong:
        raise VerifyError(wrong)


def _check_loop(loop: ir.For, place: _Place) -> None:
    if loop.kind in ir.BLOCK_KINDS:
        raise VerifyError(f"block loop {loop.var} is not one of a launch's outermost loops")
    if loop.kind == "parallel" and place.bound:
        raise VerifyError(f"parallel loop {loop.var} is inside a block")
    if loop.kind in ir.THREAD_KINDS:
        if not place.bound:
            raise VerifyError(f"thread loop {loop.var} is outside a block loop")
        if any(outer.kind in (loop.kind, "vector", "dot") for outer in place.loops):
            raise VerifyError(f"thread loop {loop.var} is inside a vector or {loop.kind} loop")
    if loop.kind == "warp" and (not place.bound or place.in_threads):
        raise VerifyError(f"warp loop {loop.var} is not in a block, outside its thread loops")
    if loop.kind == "stream" and (not place.bound or place.in_threads):
        raise VerifyError(f"stream {loop.var} is not in a block, outside its thread loops")
    if loop.kind in ir.MATRIX_KINDS:
        size = ir.MATRIX[ir.MATRIX_KINDS.index(loop.kind)]
        if not any(outer.kind == "warp" for outer in place.loops) or loop.extent != size:
            raise VerifyError(f"{loop.kind} loop {loop.var} is one of {size} in a warp loop")


def _check_alloc(buffer: ir.Buffer, place: _Place) -> None:
    if buffer.scope == "shared" and (not place.bound or place.in_threads):
        raise VerifyError(f"shared {buffer.name} is not allocated by a block for all its threads")
    if buffer.scope == "fragment":
        _check_fragment(buffer, place)
    if buffer.scope == "scratch" and place.bound:
        raise VerifyError(f"scratch {buffer.name} is allocated inside a block; use shared memory")


def _check_fragment(buffer: ir.Buffer, place: _Place) -> None:
    if not place.bound or place.in_threads:
        raise VerifyError(f"fragment {buffer.name} is not allocated by a block for all its warps")
    sizes = zip(buffer.shape[-2:], ir.MATRIX, strict=False)
    if len(buffer.shape) < 2 or any(extent % size for extent, size in sizes):
        raise VerifyError(f"fragment {buffer.name} is not made of matrices of {ir.MATRIX}")

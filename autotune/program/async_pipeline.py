"""Warp-specialized asynchronous pipelines: `stream` loops, whose fetches run ahead of the rest.

In: such a loop. Out: its parts, and a VerifyError where no GPU can run it.

The fetches are made by a warp of their own, after the warps of the rest. Both count
iterations: the fetch of iteration i goes to copy i % copies of the shared memory once the rest of
iteration i - copies is done, and the rest of iteration i runs once its fetches have arrived.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from autotune.errors import VerifyError
from autotune.program import ir
from autotune.program.analysis import simplify
from autotune.types import ITEM_BYTES, SHORT_FLOATS

FETCH_BYTES = 128
"""Bytes of a row of shared memory that is fetched."""
FETCH_LIMIT = 256
"""Elements of a box along one dimension, at most."""
FETCH_DIMS = range(2, 6)
"""Dimensions of a tensor that boxes are fetched of."""
COUNTS = range(1, 33)
"""Matrices side by side that a group of warps adds to at a time; of bytes, beyond three, even
numbers of them."""
GROUPED_ITEMS = (*SHORT_FLOATS, "int8", "uint8")
"""Element types that groups of warps multiply."""
BARRIER_BYTES = 16
"""Bytes of shared memory for each copy's barriers: that it is full, and that it is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLoop:
    """A stream loop and what is known of it."""

    fetches: tuple[ir.Fetch, ...]
    rest: tuple[ir.Stmt, ...]
    copies: int
    """Stages of shared memory; fetches run so many iterations ahead, less one."""
    warps: int
    """Warps that run the rest; the fetches are made by one more."""
    fetch_bytes: int
    """Bytes that the fetches of one iteration bring."""


def parts_of(loop: ir.For) -> tuple[tuple[ir.Fetch, ...], tuple[ir.Stmt, ...]]:
    """The fetches at the head of a stream loop, and the rest."""
    head = itertools.takewhile(lambda s: isinstance(s, ir.Fetch), loop.body)
    fetches = tuple(s for s in head if isinstance(s, ir.Fetch))
    return fetches, loop.body[len(fetches) :]


def pipeline_of(body: tuple[ir.Stmt, ...]) -> PipelineLoop | None:
    """The stream of a block, None where it has none. VerifyError where it cannot run."""
    loops = [s for s in ir.walk(body) if isinstance(s, ir.For)]
    streams = [loop for loop in loops if loop.kind == "stream"]
    if not streams:
        return None
    if len(streams) > 1:
        raise VerifyError(f"{streams[1].var} is a second stream of one block")
    fetches, rest = parts_of(streams[0])
    warps = {loop.extent for loop in loops if loop.kind == "warp"}
    if len(warps) != 1 or min(warps) % ir.WARPGROUP:
        raise VerifyError(f"stream {streams[0].var} needs the same groups of warps all along")
    for stmt in ir.walk(body):
        together = isinstance(
            stmt, ir.Barrier | ir.AsyncCopy | ir.AsyncCommit | ir.AsyncWait | ir.Mma
        )
        if together or (isinstance(stmt, ir.For) and stmt.kind in ir.THREAD_KINDS):
            raise VerifyError(f"the block of stream {streams[0].var} works by warps alone")
    allocs = [s.buffer for s in ir.walk(body) if isinstance(s, ir.Alloc)]
    shared = {b.name: b for b in allocs if b.scope == "shared"}
    if not fetches or {f.to.buffer for f in fetches} != shared.keys():
        raise VerifyError(f"stream {streams[0].var} does not fetch all of the block's memory")
    copies = {b.shape[0] for b in shared.values()}
    slots = {f.to.indices[0] for f in fetches}
    if len(copies) != 1 or min(copies) < 2 or slots != {ir.index(streams[0].var) % min(copies)}:
        raise VerifyError(f"stream {streams[0].var} does not go round its shared memory's copies")
    return PipelineLoop(
        fetches=fetches, rest=rest, copies=min(copies), warps=min(warps),
        fetch_bytes=sum(FETCH_BYTES * math.prod(f.box[:-1]) for f in fetches),
    )  # fmt: skip


def check_fetch(stmt: ir.Fetch, to: ir.Buffer, source: ir.Buffer) -> str:
    """What is wrong with a fetch; empty if nothing is."""
    item = ITEM_BYTES[source.dtype]
    if to.scope != "shared" or source.scope not in ("param", "scratch"):
        return "a fetch goes from global to shared memory"
    if to.dtype != source.dtype:
        return "a fetch does not change the type of elements"
    if len(to.shape) != 3 or to.shape[1] % 8 or to.shape[2] * item != FETCH_BYTES:
        return f"{to.name} is not made of rows of {FETCH_BYTES} bytes, eight by eight"
    if source.unaligned:
        return f"{source.name} may begin anywhere"
    if len(source.shape) not in FETCH_DIMS or len(stmt.box) != len(source.shape):
        return f"a box has as many dimensions as its tensor, {min(FETCH_DIMS)} to 5"
    if source.strides[-1] != 1 or any(s * item % 16 for s in source.strides[:-1]):
        return f"rows of {source.name} do not start at multiples of 16 bytes"
    rows = math.prod(stmt.box[:-1])
    if max(stmt.box) > FETCH_LIMIT or stmt.box[-1] != to.shape[2] or rows % 8:
        return f"no box of {list(stmt.box)} fills rows of {to.name}"
    return "" if stmt.to.indices[2] == ir.Index() else "a box begins at the start of a row"


def check_group(stmt: ir.WarpgroupMma, warp: ir.For) -> str:
    """What is wrong with a product of four warps; empty if nothing is."""
    if stmt.count not in COUNTS:
        return f"four warps add to {min(COUNTS)} to {max(COUNTS)} matrices, not to {stmt.count}"
    row = in_group(stmt.a.indices[-2], warp)
    others = (*stmt.a.indices[:-2], stmt.a.indices[-1], *stmt.b.indices, *stmt.total.indices)
    if row.coefficient(LANE_WARP) != ir.MATRIX[0] or LANE_WARP in _rest(row).vars():
        return f"the rows of the four warps are not {ir.MATRIX[0]} apart"
    if any(LANE_WARP in in_group(i, warp).vars() for i in others):
        return "the four warps do not multiply with the same columns"
    return ""


GROUP_NUMBER, LANE_WARP = "warp.group", "warp.own"
"""Loop variables that a warp's number is made of: its group's and its own in the group."""


def in_group(value: ir.Index, warp: ir.For) -> ir.Index:
    """An index by the numbers of the group and of the warp in it."""
    ranges = {GROUP_NUMBER: warp.extent // ir.WARPGROUP, LANE_WARP: ir.WARPGROUP}
    split = value.substitute({warp.var: ir.index(GROUP_NUMBER) * ir.WARPGROUP + LANE_WARP})
    others = dict.fromkeys(split.vars() - ranges.keys(), FETCH_LIMIT**3)
    return simplify(split, {**others, **ranges})


def _rest(row: ir.Index) -> ir.Index:
    return row - ir.index(LANE_WARP) * row.coefficient(LANE_WARP)


def depth_of(dtype: str) -> int:
    """Terms that one product of a group adds."""
    return ir.MATRIX_BYTES // ITEM_BYTES[dtype]

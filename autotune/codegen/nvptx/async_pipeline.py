"""Streams on Hopper: the copy engine, barriers in shared memory and products of four warps.

The block's last warp makes the fetches, the others run the rest; both go round the copies of
shared memory. A copy has two barriers: `full`, which the fetched bytes complete, and `free`, at
which every warp arrives when its products of that copy are done. Products of an iteration are
waited for in the next one, so that tensor cores always have some to do.

Rows of 128 bytes lie in shared memory as the copy engine swizzles them: 16 bytes at place c of row
r are at place c ^ (r % 8). Descriptors of operands say so, and are the only way to them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from autotune.codegen.base import TensorMap
from autotune.codegen.llvm.index import Var
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.codegen.nvptx.asm import Asm
from autotune.codegen.nvptx.fragment import FragmentWriter
from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.async_pipeline import (
    BARRIER_BYTES,
    FETCH_BYTES,
    GROUP_NUMBER,
    LANE_WARP,
    PipelineLoop,
    in_group,
)
from autotune.types import ITEM_BYTES

_SWIZZLED = 1 << 62
"""The bits of a descriptor that mean rows of 128 bytes, swizzled."""
_ROWS = 8
"""Whose rows a swizzle goes through."""
_STEP = 16
"""Bytes that descriptors count in."""
_ADDRESS_MASK = 0x3FFFF
"""Bits of a shared address that a matrix descriptor holds (PTX ISA, wgmma)."""
_FREE_BYTES = BARRIER_BYTES // 2
"""From a copy's full barrier to its free one."""


class PipelineWriter(FragmentWriter, ABC):
    """Writes blocks with a pipeline."""

    def __init__(self, text: FunctionText, pipeline: PipelineLoop | None) -> None:
        super().__init__(text)
        self.asm = Asm(text)
        self.pipeline = pipeline
        self.starts: dict[str, int] = {}
        """Byte offsets of shared buffers; "" is where they end."""
        self.maps: list[tuple[str, TensorMap]] = []
        """(buffer, description) of every tensor that is fetched."""
        self._warps: ir.For | None = None

    @abstractmethod
    def _barrier(self) -> None:
        """All threads of the block wait for each other."""

    def pipelined(self, pipeline: PipelineLoop, body: tuple[ir.Stmt, ...]) -> None:
        """A block's statements, by its two kinds of warps."""
        first = self.pure(0, f"icmp eq i64 {self.thread()}, 0")
        with self.text.when(first):
            for copy in range(pipeline.copies):
                place = self._barrier_at(str(copy))
                self.asm.init(place, 1)
                self.asm.init(self._free(place), pipeline.warps)
            self.asm.fence_init()
        self._barrier()
        limit = ir.WARP * pipeline.warps
        with self.text.when(self.pure(0, f"icmp ult i64 {self.thread()}, {limit}")):
            self.body(body)
        with self.text.when(self.pure(0, f"icmp eq i64 {self.thread()}, {limit}")):
            for number in range(len({(f.source.buffer, f.box) for f in pipeline.fetches})):
                self.asm.prepare(_map_name(number))
            self._fetching(body)

    # ------------------------------------------------------------------------------------- fetches

    def _fetching(self, body: tuple[ir.Stmt, ...]) -> None:
        """What the fetching thread does of statements: the fetches."""
        for stmt in body:
            if not isinstance(stmt, ir.For | ir.Alloc | ir.If) or not _has_stream(stmt):
                continue
            if isinstance(stmt, ir.Alloc):
                self._fetching(stmt.body)
            elif isinstance(stmt, ir.For) and stmt.kind == "stream":
                self._fetch_ahead(stmt)
            else:
                raise BuildError("a stream stands in a loop or under a condition")

    def _fetch_ahead(self, loop: ir.For) -> None:
        assert self.pipeline is not None
        with self.text.loop("0", str(loop.extent)) as name:
            self.env[loop.var] = Var(name, self.text.scope.depth)
            full, parity = self._turn(name)
            self.asm.wait(self._free(full), self.text.emit(f"xor i32 {parity}, 1"))
            self.asm.expect(full, self.pipeline.fetch_bytes)
            for stmt in self.pipeline.fetches:
                self._fetch(stmt, full)

    def _fetch(self, stmt: ir.Fetch, barrier: str) -> None:
        to, source = self.buffers[stmt.to.buffer], self.buffers[stmt.source.buffer]
        offset, _ = self.scalar(self.linear(self.flat(to, stmt.to.indices)))
        place = self._shared_place(to, self.text.emit(f"mul i64 {offset}, {ITEM_BYTES[to.dtype]}"))
        first = []
        for value in reversed(stmt.source.indices):
            at, _ = self.scalar(self.linear(value))
            first.append(self.text.emit(f"trunc i64 {at} to i32"))
        known = (source.name, tensor_map(source, stmt.box))
        if known not in self.maps:
            self.maps.append(known)
        self.asm.fetch(place, _map_name(self.maps.index(known)), first, barrier)

    # -------------------------------------------------------------------------------- the products

    def consume(self, loop: ir.For) -> None:
        """The rest of every iteration, when its fetches have arrived."""
        assert self.pipeline is not None
        lane = self.pure(0, f"and i64 {self.thread()}, {ir.WARP - 1}")
        leads = self.pure(0, f"icmp eq i64 {lane}, 0")
        self._change_sums(self.asm.kept)
        with self.text.loop("0", str(loop.extent)) as name:
            self.env[loop.var] = Var(name, self.text.scope.depth)
            full, parity = self._turn(name)
            self.asm.wait(full, parity)
            self.stage += 1
            self.asm.fence()
            self.body(self.pipeline.rest)
            self.asm.commit()
            self.asm.wait_group(1)
            later = self.text.emit(f"icmp ne i64 {name}, 0")
            with self.text.when(self.text.emit(f"and i1 {later}, {leads}")):
                done, _ = self._turn(self.text.emit(f"sub i64 {name}, 1"))
                self.asm.arrive(self._free(done))
        self._change_sums(self.asm.settled)  # they may be read now

    def _change_sums(self, change: Callable[[Sequence[str], str], list[str]]) -> None:
        assert self.pipeline is not None
        names = {
            s.total.buffer for s in ir.walk(self.pipeline.rest) if isinstance(s, ir.WarpgroupMma)
        }
        for name in sorted(names):
            places, kind = [], type_text(self.buffers[name].dtype, 1)
            for i in range(math.prod(self.buffers[name].shape)):  # what a thread has of it
                text = f"getelementptr {kind}, ptr {self.pointers[name]}, i64 {i}"
                places.append(self.text.emit(text))
            sums = [self.text.emit(f"load {kind}, ptr {place}") for place in places]
            for place, one in zip(places, change(sums, kind), strict=True):
                self.text.line(f"store {kind} {one}, ptr {place}")

    def group_mma(self, stmt: ir.WarpgroupMma) -> None:
        total, dtype = self.buffers[stmt.total.buffer], self.buffers[stmt.a.buffer].dtype
        *outer, place, m, n = stmt.total.indices
        cells, kind = [], type_text(total.dtype, 1)
        for c in range(stmt.count):
            for i in range(2):
                cell = self.cell(total, (*outer, place + c, m + 8 * i, n))[0]
                cells += [cell, self.text.emit(f"getelementptr {kind}, ptr {cell}, i64 1")]
        sums = [self.text.emit(f"load {kind}, ptr {c}") for c in cells]
        a, b = self._descriptor(stmt.a), self._descriptor(stmt.b)
        new = self.asm.multiply(sums, kind, a, b, dtype)
        for cell, one in zip(cells, new, strict=True):
            self.text.line(f"store {kind} {one}, ptr {cell}")

    def _descriptor(self, place: ir.Load) -> str:
        """The descriptor of a matrix that begins there."""
        assert self._warps is not None
        buffer = self.buffers[place.buffer]
        whole = [in_group(i, self._warps) for i in place.indices]
        indices = tuple(i.substitute({LANE_WARP: ir.Index()}) for i in whole)
        row = self.linear(indices[-2])
        if row.const % _ROWS or any(c % _ROWS for _, c in row.terms):
            raise BuildError(f"{buffer.name} is read from rows between multiples of {_ROWS}")
        offset = self.linear(self.flat(buffer, indices))
        item = ITEM_BYTES[buffer.dtype]
        moving, _ = self.scalar(type(offset)(offset.terms, 0))
        scaled = self.text.once(("bytes", moving), f"mul i64 {moving}, {item}")
        start = self._shared_place(buffer, scaled)
        text = f"and i32 {start}, {_ADDRESS_MASK}"
        text = f"lshr i32 {self.text.once(text, text)}, {_STEP.bit_length() - 1}"
        text = f"zext i32 {self.text.once(text, text)} to i64"
        fixed = _SWIZZLED | _ROWS * FETCH_BYTES // _STEP << 32 | 1 << 16
        text = f"or i64 {self.text.once(text, text)}, {fixed}"
        text = f"add i64 {self.text.once(text, text)}, {offset.const * item // _STEP}"
        return self.text.once(text, text)

    def warp_loop(self, loop: ir.For) -> None:
        """A loop over the warps that are not the fetching one: all that are here."""
        self._warps = loop
        warp = self.warp()
        self.env[loop.var] = warp
        self.env[GROUP_NUMBER] = Var(self.pure(0, f"udiv i64 {warp.name}, {ir.WARPGROUP}"), 0)
        self.ranges[GROUP_NUMBER] = loop.extent // ir.WARPGROUP
        with self.text.region():
            self.body(loop.body)

    # ------------------------------------------------------------------------------------ barriers

    def _turn(self, iteration: str) -> tuple[str, str]:
        """(the full barrier, parity of its phase) of an iteration."""
        assert self.pipeline is not None
        short = self.text.emit(f"trunc i64 {iteration} to i32")
        copy = self.text.emit(f"urem i32 {short}, {self.pipeline.copies}")
        turn = self.text.emit(f"udiv i32 {short}, {self.pipeline.copies}")
        return self._barrier_at(copy), self.text.emit(f"and i32 {turn}, 1")

    def _barrier_at(self, copy: str) -> str:
        moved = self.text.emit(f"mul i32 {copy}, {BARRIER_BYTES}")
        first = self.text.emit(f"add i32 {self._window()}, {self.starts['']}")
        return self.text.emit(f"add i32 {first}, {moved}")

    def _free(self, full: str) -> str:
        return self.text.emit(f"add i32 {full}, {_FREE_BYTES}")

    def _shared_place(self, buffer: ir.Buffer, offset: str) -> str:
        """Address in shared memory of a byte (i64) of a buffer."""
        short = self.text.once(("short", offset), f"trunc i64 {offset} to i32")
        text = f"add i32 {self._window()}, {self.starts[buffer.name]}"
        text = f"add i32 {self.text.once(text, text)}, {short}"
        return self.text.once(text, text)

    def _window(self) -> str:
        return self.pure(0, "ptrtoint ptr addrspace(3) @shared_memory to i32")


def tensor_map(buffer: ir.Buffer, box: tuple[int, ...]) -> TensorMap:
    """How the driver describes a buffer's elements, the halo left out."""
    item = ITEM_BYTES[buffer.dtype]
    return TensorMap(
        dtype=buffer.dtype, extents=tuple(reversed(buffer.shape)), box=tuple(reversed(box)),
        strides_bytes=tuple(s * item for s in reversed(buffer.strides[:-1])),
    )  # fmt: skip


def _map_name(number: int) -> str:
    return f"%map{number}"


def _has_stream(stmt: ir.Stmt) -> bool:
    return any(isinstance(s, ir.For) and s.kind == "stream" for s in ir.walk((stmt,)))

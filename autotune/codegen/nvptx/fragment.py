"""Tensor cores, exchange of registers and asynchronous copies as LLVM IR for NVPTX.

A warp's matrix of 16 x 8 is held by its threads as the PTX manual says: thread t has elements
(t // 4, 2 * (t % 4)) and the next one, and the same two 8 rows below. Operands come from shared
memory by `ldmatrix`, 16 bytes of a row per thread; which bytes a thread then holds depends on
their place alone, so one way serves every element type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import Linear, Var
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.codegen.nvptx.access import AccessWriter
from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.rewrite import substitute
from autotune.types import ITEM_BYTES

_CHUNK = 16
"""Bytes of a row that `ldmatrix` takes from one address."""
_MMA = {
    "bfloat16": "m16n8k16.row.col.bf16", "float16": "m16n8k16.row.col.f32.f32",
    "float32": "m16n8k8.row.col.tf32", "int8": "m16n8k32.row.col.s8",
    "uint8": "m16n8k32.row.col.u8.s8",
}  # fmt: skip
_COPIES = {4: "ca", 8: "ca", 16: "cg"}
"""Bytes of an asynchronous copy -> the cache it goes through."""


class FragmentWriter(AccessWriter, ABC):
    """Writes what a warp does together, and copies to shared memory."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.fragments: set[str] = set()
        self._parts: set[str] = set()
        """Loop variables that say which part of a matrix the thread has."""
        self.stage = 0
        """How often shared memory may have changed so far."""

    @abstractmethod
    def thread(self) -> str:
        """Number of the thread in its block, which has one dimension."""

    # --------------------------------------------------------------------------- a warp's matrices

    def warp(self) -> Var:
        return Var(self.pure(0, f"lshr i64 {self.thread()}, 5"), 0)

    def _lane(self, first: str, operand: int) -> str:
        """`first` (an operation) of the thread's number in its warp."""
        lane = self.pure(0, f"and i64 {self.thread()}, {ir.WARP - 1}")
        return self.pure(0, f"{first} i64 {lane}, {operand}")

    def fragment(self, buffer: ir.Buffer) -> None:
        """A matrix of the warp; the thread's part of it is an array."""
        *outer, rows, columns = buffer.shape
        part = ir.Buffer.dense(
            buffer.name, buffer.dtype, (*outer, rows // 8, columns // 4), "register"
        )
        self.registers(part)
        self.fragments.add(buffer.name)

    def cell(self, buffer: ir.Buffer, indices: tuple[ir.Index, ...]) -> tuple[str, int]:
        if buffer.name not in self.fragments:
            return super().cell(buffer, indices)
        *outer, m, n = indices
        row, column = self._own(buffer, m), self._own(buffer, n)
        if row.lane or column.lane not in (0, 1) or row.const % 8 or column.const % 8:
            raise BuildError(f"fragment {buffer.name} is used between its matrices")
        place = (*outer, ir.index(row.const // 8), ir.index(column.const // 4))
        offset = self.linear(self.flat(buffer, place))
        if offset.terms or offset.lane:
            raise BuildError(f"fragment {buffer.name} is indexed by a loop not unrolled")
        return self.address(buffer, offset), self.lanes if column.lane else 1

    def _own(self, buffer: ir.Buffer, value: ir.Index) -> Linear:
        """The constant part of an index; what tells threads apart is left out."""
        found = self.linear(
            ir.Index(tuple(t for t in value.terms if t[0] not in self._parts), value.const)
        )
        if found.terms:
            raise BuildError(f"fragment {buffer.name} is indexed by a loop not unrolled")
        return found

    def matrix_loop(self, loop: ir.For) -> tuple[ir.Stmt, ...]:
        """A loop over a matrix's rows or columns as loops over the thread's part of them."""
        outer, inner = f"{loop.var}.part", f"{loop.var}.own"
        rows = loop.kind == "fragment.m"
        part = self._lane("lshr", 2) if rows else self._lane("and", 3)
        self.env[outer], self._parts = Var(part, 0), self._parts | {outer}
        self.ranges[outer], self.ranges[inner] = (8, 2) if rows else (4, 2)
        place = (
            ir.index(outer) + ir.index(inner) * 8
            if rows
            else ir.index(outer) * 2 + ir.index(inner)
        )
        body = substitute(loop.body, {loop.var: place}, self.ranges)
        return (ir.For(inner, 2, "unroll" if rows else "vector", body),)

    def mma(self, stmt: ir.Mma) -> None:
        dtype = self.buffers[stmt.a.buffer].dtype
        a, b = self._words(stmt.a, rows=16), self._words(stmt.b, rows=8, across=stmt.across)
        total = self.buffers[stmt.total.buffer]
        item = scalar = type_text(total.dtype, 1)
        word = "<2 x half>" if dtype == "float16" else "i32"
        if word != "i32":
            casts = [[self.text.emit(f"bitcast i32 {v} to {word}") for v in p] for p in (a, b)]
            a, b = casts
        *outer, m, n = stmt.total.indices
        cells = [self.cell(total, (*outer, m + 8 * i, n))[0] for i in range(2)]
        places = []
        for cell in cells:
            places += [cell, self.text.emit(f"getelementptr {item}, ptr {cell}, i64 1")]
        old = [self.text.emit(f"load {item}, ptr {place}") for place in places]
        symbol, result = f"llvm.nvvm.mma.{_MMA[dtype]}", f"{{{', '.join([scalar] * 4)}}}"
        types = ", ".join([word] * 6 + [scalar] * 4)
        self.text.declare(symbol, f"declare {result} @{symbol}({types})")
        given = ", ".join([*(f"{word} {v}" for v in (*a, *b)), *(f"{scalar} {v}" for v in old)])
        new = self.text.emit(f"call {result} @{symbol}({given}) convergent")
        for number, place in enumerate(places):
            one = self.text.emit(f"extractvalue {result} {new}, {number}")
            self.text.line(f"store {item} {one}, ptr {place}")

    def _words(self, place: ir.Load, rows: int, across: bool = False) -> list[str]:
        """The thread's part of `rows` x 32 bytes, in words of 32 bits. `across`: of 16 rows of 16
        bytes, which the load turns."""
        buffer = self.buffers[place.buffer]
        item = ITEM_BYTES[buffer.dtype]
        if buffer.strides[-1] != 1 or buffer.strides[-2] * item % _CHUNK:
            raise BuildError(f"rows of {buffer.name} do not start at multiples of {_CHUNK} bytes")
        offset = self.linear(self.flat(buffer, place.indices))
        if self.alignment(buffer, offset, _CHUNK // item) < _CHUNK:
            raise BuildError(f"{buffer.name} is read at odd places by tensor cores")
        # Threads name the rows of the first 16 bytes, then those of the next 16; turned, all rows.
        row = self._lane("and", 2 * rows - 1 if across else rows - 1)
        both = self._lane("and", 2 * rows - 1)
        chunk = self.pure(0, f"lshr i64 {both}, {rows.bit_length() - 1}")
        along = () if across else ((Var(chunk, 0), ir.MATRIX_BYTES // 2 // item),)
        terms = ((Var(row, 0), buffer.strides[-2]), *along, *offset.terms)
        pointer = self._in_shared(self.address(buffer, offset._replace(terms=terms)))
        count = rows // 4
        turned = ".trans" if across else ""
        symbol = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{turned}.b16.p3"
        result = f"{{{', '.join(['i32'] * count)}}}"
        self.text.declare(symbol, f"declare {result} @{symbol}(ptr addrspace(3))")
        load = f"call {result} @{symbol}(ptr addrspace(3) {pointer})"
        words = self.text.once((self.stage, load), load)
        names = []
        for number in range(count):
            part = f"extractvalue {result} {words}, {number}"
            names.append(self.text.once((self.stage, part), part))
        return names

    def _in_shared(self, pointer: str) -> str:
        text = f"addrspacecast ptr {pointer} to ptr addrspace(3)"
        return self.text.once(text, text)

    # ---------------------------------------------------------------------- exchange of registers

    def shuffle(self, stmt: ir.Shuffle, threads: int) -> None:
        """Each round, a thread's value is combined with that of the thread half as far away."""
        if threads % ir.WARP:
            raise BuildError(f"a block of {threads} threads is not made of whole warps")
        buffer = self.buffers[stmt.place.buffer]
        place, _ = self.cell(buffer, stmt.place.indices)
        kind, distance = type_text(buffer.dtype, 1), stmt.width // 2
        value = Val(self.text.emit(f"load {kind}, ptr {place}"), buffer.dtype, 1)
        while distance:
            value = self._merge(stmt.combine, value, self._exchanged(value, distance))
            distance //= 2
        self.text.line(f"store {kind} {value.text}, ptr {place}")

    def _exchanged(self, value: Val, distance: int) -> Val:
        """The value of the thread whose number differs by one bit, in words of 32 bits."""
        kind, count = type_text(value.dtype, 1), ITEM_BYTES[value.dtype] // 4
        if not count:
            raise BuildError(f"no shuffle of {value.dtype}")
        symbol = "llvm.nvvm.shfl.sync.bfly.i32"
        self.text.declare(symbol, f"declare i32 @{symbol}(i32, i32, i32, i32)")
        words, out = f"<{count} x i32>", "poison"
        given = self.text.emit(f"bitcast {kind} {value.text} to {words}")
        for number in range(count):
            word = self.text.emit(f"extractelement {words} {given}, i64 {number}")
            call = f"call i32 @{symbol}(i32 -1, i32 {word}, i32 {distance}, i32 {ir.WARP - 1})"
            other = self.text.emit(call)
            out = self.text.emit(f"insertelement {words} {out}, i32 {other}, i64 {number}")
        return Val(self.text.emit(f"bitcast {words} {out} to {kind}"), value.dtype, 1)

    # ------------------------------------------------------------------------- asynchronous copies

    def copy(self, stmt: ir.AsyncCopy) -> None:
        """Asynchronous where there are 4, 8 or 16 bytes at a multiple of that; else at once."""
        to, source = self.buffers[stmt.to.buffer], self.buffers[stmt.source.buffer]
        first, start = (
            self.linear(self.flat(b, p.indices)) for b, p in ((to, stmt.to), (source, stmt.source))
        )
        self.within_chunk(to, first, stmt.count)
        target, origin = self.address(to, first), self.address(source, start)
        aligned = [
            self.alignment(to, first, stmt.count), self.alignment(source, start, stmt.count)
        ]  # fmt: skip
        size = stmt.count * ITEM_BYTES[to.dtype]
        if size in _COPIES and min(aligned) >= size and source.scope in ("param", "scratch"):
            self._copy_later(target, origin, size)
            return
        kind = type_text(to.dtype, stmt.count, memory=True)
        value = self.text.emit(f"load {kind}, ptr {origin}, align {aligned[1]}")
        self.text.line(f"store {kind} {value}, ptr {target}, align {aligned[0]}")

    def _copy_later(self, target: str, origin: str, size: int) -> None:
        pointers = "ptr addrspace(3)", "ptr addrspace(1)"
        target = self._in_shared(target)
        text = f"addrspacecast ptr {origin} to {pointers[1]}"
        origin = self.text.once(text, text)
        symbol = f"llvm.nvvm.cp.async.{_COPIES[size]}.shared.global.{size}"
        self.text.declare(symbol, f"declare void @{symbol}({', '.join(pointers)})")
        self.text.line(f"call void @{symbol}({pointers[0]} {target}, {pointers[1]} {origin})")

    def commit(self) -> None:
        symbol = "llvm.nvvm.cp.async.commit.group"
        self.text.declare(symbol, f"declare void @{symbol}()")
        self.text.line(f"call void @{symbol}()")

    def wait(self, pending: int) -> None:
        symbol = "llvm.nvvm.cp.async.wait.group"
        self.text.declare(symbol, f"declare void @{symbol}(i32)")
        self.text.line(f"call void @{symbol}(i32 {pending})")
        self.stage += 1

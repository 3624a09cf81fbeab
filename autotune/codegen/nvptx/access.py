"""Values, registers and memory accesses as NVPTX takes them. In: IR values. Out: LLVM values.

Global and shared memory are reached in vectors of up to 16 bytes, which must be aligned: the
memory of every tensor, halo included, starts at a multiple of 16 bytes, and what is known of
strides and indices tells the rest. A thread's register buffer is one array, so that vectors and
single elements of it can be mixed; LLVM takes it apart into registers.
"""

from __future__ import annotations

import math

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import Linear, Var
from autotune.codegen.llvm.statement import StatementWriter
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.codegen.nvptx.math import NvptxMath
from autotune.errors import BuildError
from autotune.program.alignment import ALIGN_BYTES, first_alignment
from autotune.program.analysis import interval, simplify
from autotune.program.ir import Buffer, FloorDiv, Index, Mod, index
from autotune.types import ITEM_BYTES


class AccessWriter(StatementWriter):
    """Writes values and stores of one thread."""

    math = NvptxMath

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self._simple: dict[object, Index] = {}

    def binary(self, fn: str, a: Val, b: Val) -> Val:
        if a.dtype == "float32" and fn in ("max", "min", "peak", "div"):
            writer = self.math(self.text, a.lanes, a.dtype)
            if fn == "div":
                return Val(writer.op("fdiv", a.text, b.text), a.dtype, a.lanes)
            return Val(writer.extreme(fn, a.text, b.text), a.dtype, a.lanes)
        return super().binary(fn, a, b)

    def linear(self, value: Index) -> Linear:
        """Divisions are taken apart with what unrolled loops are now, so that the places of their
        iterations differ by constants and need no registers of their own."""
        if all(isinstance(atom, str) for atom, _ in value.terms):
            return super().linear(value)
        known = {v: now for v in value.vars() if isinstance(now := self.env.get(v), int)}
        key = (value, tuple(known.items()))
        if key not in self._simple:
            numbers = {v: index(now) for v, now in known.items()}
            self._simple[key] = simplify(value.substitute(numbers), self.ranges)
        return super().linear(self._simple[key])

    def divided(self, depth: int, op: str, name: str, atom: FloorDiv | Mod) -> str:
        """Divisions of 64 bits are slow: by 32 bits where the index fits."""
        lo, hi = interval(atom.index, self.ranges)
        if max(-lo, hi) + 2 * atom.divisor >= 1 << 31:
            return super().divided(depth, op, name, atom)
        short = self.pure(depth, f"trunc i64 {name} to i32")
        result = self.pure(depth, f"{op} i32 {short}, {atom.divisor}")
        return self.pure(depth, f"zext i32 {result} to i64")

    # -------------------------------------------------------------------------- vectors in memory

    def address(self, buffer: Buffer, offset: Linear) -> str:
        if buffer.swizzle:
            if offset.lane and self.lanes > 1:
                self.within_chunk(buffer, offset, self.lanes)
            offset = self._swizzled(buffer, offset)
        return super().address(buffer, offset)

    def within_chunk(self, buffer: Buffer, offset: Linear, lanes: int) -> None:
        """BuildError where a swizzle may take neighbours apart."""
        size = lanes * ITEM_BYTES[buffer.dtype]
        if buffer.swizzle and (
            lanes > 1 << buffer.swizzle[1] or self.alignment(buffer, offset, lanes) < size
        ):
            raise BuildError(f"{lanes} elements of swizzled {buffer.name} at odd places")

    def _swizzled(self, buffer: Buffer, offset: Linear) -> Linear:
        """Where the element lies. Multiples of what the swizzle repeats itself after stay outside
        of it, so that the rest is known before the loops over them."""
        bits, base, shift = buffer.swizzle
        period = 1 << sum(buffer.swizzle)
        outside = tuple(t for t in offset.terms if t[1] % period == 0)
        inside = Linear(tuple(t for t in offset.terms if t[1] % period), offset.const % period)
        far = offset.const - inside.const
        if not inside.terms:
            return Linear(outside, far + buffer.place(inside.const), offset.lane)
        name, depth = self.scalar(inside)
        source = self.pure(depth, f"lshr i64 {name}, {shift}")
        change = self.pure(depth, f"and i64 {source}, {((1 << bits) - 1) << base}")
        moved = Var(self.pure(depth, f"xor i64 {name}, {change}"), depth)
        return Linear(((moved, 1), *outside), far, offset.lane)

    def alignment(self, buffer: Buffer, offset: Linear, lanes: int) -> int:
        """What the bytes of an access are known to be a multiple of; at most the access's size."""
        item = ITEM_BYTES[buffer.dtype]
        steps = [abs(c) * item for _, c in offset.terms] + [abs(offset.const) * item]
        return min(math.gcd(first_alignment(buffer), *steps), 1 << (lanes * item).bit_length() - 1)

    def _element(self, buffer: Buffer, offset: Linear) -> Val:
        """An element of shared memory, with all that is known of its place: LLVM makes one access
        of neighbours that are loaded one by one."""
        if buffer.scope != "shared" or buffer.swizzle:
            return super()._element(buffer, offset)
        kind = type_text(buffer.dtype, 1, memory=True)
        align = self.alignment(buffer, offset, ALIGN_BYTES // ITEM_BYTES[buffer.dtype])
        text = f"load {kind}, ptr {self.address(buffer, offset)}, align {align}"
        return self._from_memory(self._read(buffer, text), buffer.dtype, 1)

    def _vector(self, buffer: Buffer, offset: Linear) -> Val:
        if self.mask is not None:
            return super()._vector(buffer, offset)
        kind = type_text(buffer.dtype, self.lanes, memory=True)
        align = self.alignment(buffer, offset, self.lanes)
        text = f"load {kind}, ptr {self.address(buffer, offset)}, align {align}"
        return self._from_memory(self._read(buffer, text), buffer.dtype, self.lanes)

    def _write(self, buffer: Buffer, offset: Linear, value: Val) -> None:
        if self.mask is not None or not offset.lane or self.lanes == 1:
            super()._write(buffer, offset, value)
            return
        value = self._to_memory(self.splat(value, self.lanes))
        kind = type_text(buffer.dtype, self.lanes, memory=True)
        align = self.alignment(buffer, offset, self.lanes)
        self.text.line(
            f"store {kind} {value.text}, ptr {self.address(buffer, offset)}, align {align}"
        )

    # ----------------------------------------------------------------------------------- registers

    def registers(self, buffer: Buffer) -> None:
        """A buffer of the thread: in registers, or where its scope is scratch in local memory."""
        self.buffers[buffer.name] = buffer
        if buffer.scope == "register" and buffer.dtype == "bool":
            return  # bits have no place in an array: cells of their own
        before, after = buffer.layout.span(buffer.shape)
        item = type_text(buffer.dtype, 1, memory=True)
        array = self.text.alloca(f"[{before + after} x {item}]")
        if before:
            moved = self.text.name("cell")
            place = f"getelementptr {item}, ptr {array}, i64 {before}"
            self.text.allocas.append(f"  {moved} = {place}")
            array = moved
        self.pointers[buffer.name] = array

    def cell(self, buffer: Buffer, indices: tuple[Index, ...]) -> tuple[str, int]:
        """(pointer, lanes). An index that is not constant makes the buffer local memory."""
        if buffer.dtype == "bool":
            return super().cell(buffer, indices)
        offset = self.linear(self.flat(buffer, indices))
        if offset.lane not in (0, 1):
            raise BuildError(f"register buffer {buffer.name} is used by lanes far apart")
        lanes = self.lanes if offset.lane else 1
        whole = 1 << (lanes - 1).bit_length()
        if any(c % whole for _, c in offset.terms) or offset.const % whole:
            raise BuildError(f"register buffer {buffer.name} is used by vectors out of step")
        return self.address(buffer, offset), lanes

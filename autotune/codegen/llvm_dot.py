"""Pairs of bfloat16 products added to a float32 lane: AVX512-BF16's instruction, or its meaning.

In: the body of a `dot` loop. Out: LLVM values. One factor is the same for all lanes (two elements
side by side), the other has two elements side by side per lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm_element import Val
from autotune.codegen.llvm_index import Linear
from autotune.codegen.llvm_math import MathWriter
from autotune.codegen.llvm_text import FunctionText, type_text
from autotune.codegen.llvm_value import ValueWriter
from autotune.errors import BuildError
from autotune.program.ir import Apply, Buffer, For, Load, Value

_WIDTHS = {16: "512", 8: "256", 4: "128"}


class DotWriter(ValueWriter):
    """Writes products of pairs."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.dot: For | None = None

    @contextmanager
    def pairs(self, loop: For) -> Iterator[None]:
        """Code inside a dot loop: its variable is 0, its products are written as pairs."""
        if loop.extent != 2:
            raise BuildError(f"dot loop {loop.var} has {loop.extent} iterations, not 2")
        self.dot, self.env[loop.var] = loop, 0
        yield
        self.dot = None

    def pair_product(self, first: Value, second: Value, old: Val) -> Val:
        """old + the sum of the loop's two products."""
        found = [self._operand(v) for v in (first, second)]
        uniform = [f for f in found if f[1].lane == 0]
        varying = [f for f in found if f[1].lane == 2]
        if len(uniform) != 1 or len(varying) != 1 or old.dtype != "float32" or self.mask:
            raise BuildError("a dot loop needs one factor for all lanes and one of two per lane")
        a = self._bits(*uniform[0], lanes=1)
        b = self._bits(*varying[0], lanes=self.lanes)
        a = self.splat(Val(a, "int32", 1), self.lanes).text
        old = self.splat(old, self.lanes)
        if self.bfloat16 and self.lanes in _WIDTHS:
            return self._instruction(a, b, old)
        return self._emulated(a, b, old)

    def _operand(self, value: Value) -> tuple[Buffer, Linear]:
        """(buffer, offset) of a widened bfloat16 load that moves by one element with the loop."""
        assert self.dot is not None
        inner = value.args[0] if isinstance(value, Apply) and value.fn == "to_float32" else None
        if not isinstance(inner, Load) or self.buffers[inner.buffer].dtype != "bfloat16":
            raise BuildError(f"a dot loop needs bfloat16 loads, got {value}")
        buffer = self.buffers[inner.buffer]
        flat = self.flat(buffer, inner.indices)
        if flat.coefficient(self.dot.var) != 1 or self.irregular(inner.indices):
            raise BuildError(f"{buffer.name} has no pairs side by side along {self.dot.var}")
        return buffer, self.linear(flat)

    def _bits(self, buffer: Buffer, offset: Linear, lanes: int) -> str:
        """Pairs as 32-bit integers, the first element in the low half."""
        kind = type_text("int32", lanes)
        pointer = self.address(buffer, offset)
        return self.text.emit(f"load {kind}, ptr {pointer}, align 2")

    def _instruction(self, a: str, b: str, old: Val) -> Val:
        vector, pairs = type_text("float32", self.lanes), f"<{2 * self.lanes} x bfloat>"
        name = f"llvm.x86.avx512bf16.dpbf16ps.{_WIDTHS[self.lanes]}"
        self.text.declare(name, f"declare {vector} @{name}({vector}, {pairs}, {pairs})")
        kind = type_text("int32", self.lanes)
        halves = [self.text.emit(f"bitcast {kind} {v} to {pairs}") for v in (a, b)]
        given = f"({vector} {old.text}, {pairs} {halves[0]}, {pairs} {halves[1]})"
        return Val(self.text.emit(f"call {vector} @{name}{given}"), "float32", self.lanes)

    def _emulated(self, a: str, b: str, old: Val) -> Val:
        """Two multiply-adds on the halves widened to float32."""
        writer = MathWriter(self.text, self.lanes, "float32")
        total = old.text
        for op, operand in (("shl", "16"), ("and", "-65536")):
            parts = [self._half(v, op, operand) for v in (a, b)]
            total = writer.fma(parts[0], parts[1], total)
        return Val(total, "float32", self.lanes)

    def _half(self, value: str, op: str, operand: str) -> str:
        kind = type_text("int32", self.lanes)
        amount = operand if self.lanes == 1 else f"splat (i32 {operand})"
        bits = self.text.emit(f"{op} {kind} {value}, {amount}")
        return self.text.emit(f"bitcast {kind} {bits} to {type_text('float32', self.lanes)}")

"""Sums of neighbouring products in a lane: VNNI, AVX512-BF16, Arm's dot products, or the like.

In: the body of a `dot` loop: two products of bfloat16, added to a float32, or four of uint8 times
int8, added to an int32. Out: LLVM values. One factor is the same for all lanes (elements side by
side), the other has as many elements side by side per lane; either way 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import Linear
from autotune.codegen.llvm.math import MathWriter
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.codegen.llvm.value import ValueWriter
from autotune.errors import BuildError
from autotune.program.ir import Apply, Buffer, For, Load, Value
from autotune.types import ITEM_BYTES

_WIDTHS = {16: "512", 8: "256", 4: "128"}
_PAIRS = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}
"""x86: sums of two products of 16-bit integers, by lanes."""
_PAIR_FEATURES = {16: "+avx512bw", 8: "+avx2", 4: "+sse2"}
_Operand = tuple[Buffer, Linear]


class DotWriter(ValueWriter):
    """Writes sums of the products of a dot loop."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.dot: For | None = None
        self.features: frozenset[str] = frozenset()
        """What the target has, as LLVM writes it."""

    @contextmanager
    def neighbours(self, loop: For) -> Iterator[None]:
        """Code inside a dot loop: its variable is 0, its products are written together."""
        self.dot, self.env[loop.var] = loop, 0
        yield
        self.dot = None

    def dot_product(self, first: Value, second: Value, old: Val) -> Val:
        """old + the sum of the loop's products."""
        assert self.dot is not None
        count = self.dot.extent
        found = [self._operand(v) for v in (first, second)]
        uniform = [f for f in found if f[1].lane == 0]
        varying = [f for f in found if f[1].lane == count]
        if len(uniform) != 1 or len(varying) != 1:
            raise BuildError("a dot loop needs one factor for all lanes and neighbours per lane")
        a = self._bits(*uniform[0], lanes=1)
        b = self._bits(*varying[0], lanes=self.lanes)
        a = self.splat(Val(a, "int32", 1), self.lanes).text
        old = self.splat(old, self.lanes)
        kinds = (uniform[0][0].dtype, varying[0][0].dtype, old.dtype, count)
        if kinds == ("uint8", "int8", "int32", 4):
            return self._bytes(a, b, old)
        if kinds == ("bfloat16", "bfloat16", "float32", 2):
            return self._bfloat16(a, b, old)
        raise BuildError(
            f"no code for a dot loop of {count} products of {kinds[0]} and {kinds[1]}"
        )

    def _operand(self, value: Value) -> _Operand:
        """(buffer, offset) of a widened load that moves by one element with the loop."""
        assert self.dot is not None
        inner = value.args[0] if isinstance(value, Apply) and value.fn.startswith("to_") else None
        if not isinstance(inner, Load):
            raise BuildError(f"a dot loop needs widened loads, got {value}")
        buffer = self.buffers[inner.buffer]
        flat = self.flat(buffer, inner.indices)
        if flat.coefficient(self.dot.var) != 1 or self.irregular(inner.indices):
            raise BuildError(f"{buffer.name} has no neighbours along {self.dot.var}")
        return buffer, self.linear(flat)

    def _bits(self, buffer: Buffer, offset: Linear, lanes: int) -> str:
        """Neighbours as 32-bit integers, the first element lowest."""
        kind = type_text("int32", lanes)
        pointer, align = self.address(buffer, offset), ITEM_BYTES[buffer.dtype]
        if lanes == 1 or self.mask is None:
            return self.text.emit(f"load {kind}, ptr {pointer}, align {align}")
        # The last block of channels may be no whole vector: beyond it lies nothing of ours.
        name, mask = f"llvm.masked.load.v{lanes}i32.p0", type_text("bool", lanes)
        self.text.declare(name, f"declare {kind} @{name}(ptr, i32, {mask}, {kind})")
        given = f"ptr {pointer}, i32 {align}, {mask} {self.mask}, {kind} zeroinitializer"
        return self.text.emit(f"call {kind} @{name}({given})")

    # -------------------------------------------------------------------------- bytes: uint8, int8

    def _bytes(self, a: str, b: str, old: Val) -> Val:
        known, lanes = self.features, self.lanes
        vnni = "+avx512vnni" in known and (lanes == 16 or "+avx512vl" in known)
        if lanes in _WIDTHS and (vnni or ("+avxvnni" in known and lanes < 16)):
            return self._byte_instruction(f"x86.avx512.vpdpbusd.{_WIDTHS[lanes]}", a, b, old)
        if "+i8mm" in known and lanes == 4:
            return self._byte_instruction("aarch64.neon.usdot.v4i32.v16i8", a, b, old)
        if "+dotprod" in known and lanes == 4:
            return self._signed_bytes(a, b, old)
        if lanes in _PAIRS and _PAIR_FEATURES[lanes] in known:
            return self._byte_pairs(a, b, old)
        return self._single_bytes(a, b, old)

    def _byte_instruction(self, name: str, a: str, b: str, old: Val) -> Val:
        vector, items = type_text("int32", self.lanes), type_text("int8", 4 * self.lanes)
        self.text.declare(
            f"llvm.{name}", f"declare {vector} @llvm.{name}({vector}, {items}, {items})"
        )
        halves = [self.text.emit(f"bitcast {vector} {v} to {items}") for v in (a, b)]
        given = f"({vector} {old.text}, {items} {halves[0]}, {items} {halves[1]})"
        return Val(self.text.emit(f"call {vector} @llvm.{name}{given}"), "int32", self.lanes)

    def _signed_bytes(self, a: str, b: str, old: Val) -> Val:
        """Products of int8 alone: a b = (a - 128) b + 127 b + b."""
        kind, name = type_text("int32", self.lanes), "aarch64.neon.sdot.v4i32.v16i8"
        moved = self.text.emit(f"xor {kind} {a}, {self._every(_every_byte(0x80))}")
        total = self._byte_instruction(name, moved, b, old)
        for part in (127, 1):
            total = self._byte_instruction(name, self._every(_every_byte(part)), b, total)
        return total

    def _byte_pairs(self, a: str, b: str, old: Val) -> Val:
        """Even and odd bytes widened to 16 bits, two products at a time. (The instruction for
        bytes would saturate.)"""
        lanes = self.lanes
        vector, words = type_text("int32", lanes), f"<{2 * lanes} x i16>"
        eight, low = "splat (i16 8)", "splat (i16 255)"
        first, second = (self.text.emit(f"bitcast {vector} {v} to {words}") for v in (a, b))
        up = self.text.emit(f"shl {words} {second}, {eight}")
        even = self.text.emit(f"and {words} {first}, {low}"), f"ashr {words} {up}, {eight}"
        odd = self.text.emit(f"lshr {words} {first}, {eight}"), f"ashr {words} {second}, {eight}"
        name, total = f"llvm.x86.{_PAIRS[lanes]}", old.text
        self.text.declare(name, f"declare {vector} @{name}({words}, {words})")
        for left, shifted in (even, odd):
            right = self.text.emit(shifted)
            part = self.text.emit(f"call {vector} @{name}({words} {left}, {words} {right})")
            total = self.text.emit(f"add {vector} {total}, {part}")
        return Val(total, "int32", lanes)

    def _single_bytes(self, a: str, b: str, old: Val) -> Val:
        kind, total = type_text("int32", self.lanes), old.text
        for place in range(0, 32, 8):
            left = self.text.emit(f"lshr {kind} {a}, {self._every(place)}")
            left = self.text.emit(f"and {kind} {left}, {self._every(255)}")
            right = self.text.emit(f"shl {kind} {b}, {self._every(24 - place)}")
            right = self.text.emit(f"ashr {kind} {right}, {self._every(24)}")
            product = self.text.emit(f"mul {kind} {left}, {right}")
            total = self.text.emit(f"add {kind} {total}, {product}")
        return Val(total, "int32", self.lanes)

    def _every(self, value: int) -> str:
        """An i32 in every lane."""
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    # ----------------------------------------------------------------------------------- bfloat16

    def _bfloat16(self, a: str, b: str, old: Val) -> Val:
        if self.bfloat16 and self.lanes in _WIDTHS:
            name = f"x86.avx512bf16.dpbf16ps.{_WIDTHS[self.lanes]}"
            return self._pair_instruction(name, a, b, old)
        if "+bf16" in self.features and self.lanes == 4:
            return self._pair_instruction("aarch64.neon.bfdot.v4f32.v8bf16", a, b, old)
        return self._emulated_pair(a, b, old)

    def _pair_instruction(self, name: str, a: str, b: str, old: Val) -> Val:
        vector, pairs = type_text("float32", self.lanes), f"<{2 * self.lanes} x bfloat>"
        name = f"llvm.{name}"
        self.text.declare(name, f"declare {vector} @{name}({vector}, {pairs}, {pairs})")
        kind = type_text("int32", self.lanes)
        halves = [self.text.emit(f"bitcast {kind} {v} to {pairs}") for v in (a, b)]
        given = f"({vector} {old.text}, {pairs} {halves[0]}, {pairs} {halves[1]})"
        return Val(self.text.emit(f"call {vector} @{name}{given}"), "float32", self.lanes)

    def _emulated_pair(self, a: str, b: str, old: Val) -> Val:
        """Two multiply-adds on the halves widened to float32."""
        writer = MathWriter(self.text, self.lanes, "float32")
        total = old.text
        for op, operand in (("shl", 16), ("and", -65536)):
            parts = [self._half(v, op, operand) for v in (a, b)]
            total = writer.fma(parts[0], parts[1], total)
        return Val(total, "float32", self.lanes)

    def _half(self, value: str, op: str, operand: int) -> str:
        kind = type_text("int32", self.lanes)
        bits = self.text.emit(f"{op} {kind} {value}, {self._every(operand)}")
        return self.text.emit(f"bitcast {kind} {bits} to {type_text('float32', self.lanes)}")


def _every_byte(value: int) -> int:
    """The byte four times, as an i32."""
    return int.from_bytes(bytes([value] * 4), "little", signed=True)

"""C for small processors: as little code as computes the same. In: a target, statements. Out:
loops instead of copies of their bodies, functions instead of expressions that come again, and
products of bytes by the instructions for two of them at a time (Arm's SMLAD): whole tiles of sums
as `dot_tile.py` has them, else one by one through ACLE.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re

from autotune.codegen.c.compact_tiles import ASSEMBLER, ByteTileWriter
from autotune.codegen.c.compact_values import (
    below,
    byte_load,
    high_factors,
    is_minus_zero,
    leaves_of,
    operations_of,
    repeated_in,
    statements_of,
    upper_product,
    values_of,
)
from autotune.codegen.c.dialect import Dialect
from autotune.codegen.c.dot_call import BYTES, EXTENDED, FourBytes, dot_call
from autotune.codegen.c.dot_match import BYTE_PLACES
from autotune.codegen.c.index import CLinear
from autotune.codegen.expression import Val
from autotune.program import ir
from autotune.program.rewrite import accesses_of
from autotune.target import Target

UNROLLED_STATEMENTS = 12
"""What a loop may be unrolled to, chosen: nine taps of a window, four products of three sums."""
OUTLINED_CALLS = 8
"""Operations of an expression from which on it is a function, chosen: a call takes about as many
instructions as three or four of them."""

_HIGH_PRODUCT = f"""static inline i32 high_product(i32 a, i32 b) {{
{ASSEMBLER}
    u32 low, high;
    __asm__("smull %0, %1, %2, %3\\n"
            "lsrs %0, %0, #31\\n"
            "adc %0, %0, %1, lsl #1"
            : "=&r"(low), "=&r"(high) : "r"(a), "r"(b) : "cc");
    return (i32)low;
#else
    return (i32)(((i64)a * b + 1073741824) >> 31);
#endif
}}"""

_UPPER_PRODUCT = f"""static inline i32 upper_product(i32 a, i32 b, i32 c) {{
{ASSEMBLER}
    i32 out;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
#else
    return (i32)(((i64)a * b + 2147483648) >> 32) + c;
#endif
}}"""


class CompactWriter(ByteTileWriter):
    """Writes statements compactly where the target is compact, and else as they are."""

    def __init__(self, dialect: Dialect, program: ir.Program, target: Target) -> None:
        super().__init__(dialect, program, target)
        self._shared: dict[str, str] | None = None
        """What has been loaded of constants for the stores that are being written, by its text."""
        self._shared_depth = self._in_select = 0
        self._leaves: dict[ir.Value, Val] | None = None
        """Arguments of the function that is being written."""

    # -------------------------------------------------------------------------------------- loops

    def loop(self, loop: ir.For) -> None:
        if self.lanes > 1 or not self.target.is_compact:
            super().loop(loop)
        elif window := self._window_below(loop):
            self._around_window(loop, window)
        elif (loop.kind == "dot" and self._dot(loop)) or self._tile(loop):
            return
        elif loop.kind == "unroll" and loop.extent != 1 and self._rolls(loop):
            self._counted(loop.var, loop.extent, loop.body)
        elif self._shared is None and _only_stores(loop):
            with self.block(""):
                self._shared, self._shared_depth = {}, self.depth
                super().loop(_by_constants(loop, self.constants))
                self._shared = None
        else:
            super().loop(loop)

    def _rolls(self, loop: ir.For) -> bool:
        """Whether what was to be unrolled is better a loop, which nothing in its body forbids."""
        if statements_of((loop,)) <= UNROLLED_STATEMENTS:
            return False
        tables = any(isinstance(v, ir.Table) for v in values_of(loop.body))
        fixed = (
            at
            for name, indices in accesses_of(loop.body)
            if name not in self.buffers or self.buffers[name].scope == "register"
            for at in indices
        )
        return not tables and all(loop.var not in at.vars() for at in fixed)

    def written_out(self, lane: str, stmt: ir.Stmt) -> bool:
        """Where lanes are told apart, so that nothing has to be asked: one of pixels that get
        another channel."""
        value = stmt.value if isinstance(stmt, ir.Store) else None
        return (
            self.target.is_compact
            and isinstance(value, ir.Select)
            and any(lane in b.index.vars() for b in value.bounds)
        )

    def _dot(self, loop: ir.For) -> bool:
        """The sum of four products of bytes as a call; False where that is not what it is."""
        if not self._has_dsp or loop.extent != BYTES or len(loop.body) != 1:
            return False
        store = loop.body[0]
        if isinstance(store, ir.If) and not any(loop.var in b.index.vars() for b in store.bounds):
            inside = ir.For(loop.var, loop.extent, loop.kind, store.body)
            self.guard(ir.If(store.bounds, (inside,)))
            return True
        if not isinstance(store, ir.Store) or store.combine != "sum":
            return False
        factors = [byte_load(v) for v in getattr(store.value, "args", ())]
        if getattr(store.value, "fn", "") != "mul" or None in factors:
            return False
        sides = [self._four_bytes(loop.var, load) for load in factors if load is not None]
        first, second = sides
        if first is None or second is None or first.rows > 1 < second.rows:
            return False
        self.env[loop.var] = 0
        out = self.buffers[store.buffer]
        old = self.load(ir.Load(store.buffer, store.indices))
        text = dot_call(self.helpers, (first, second), old.text)
        self._assign(out, self.flat(out, store.indices), Val(text, out.dtype, 1))
        return True

    def _four_bytes(self, var: str, load: ir.Load) -> FourBytes | None:
        """Where the bytes of a `dot` lie; None where they are anything else."""
        buffer, places = self.buffers[load.buffer], []
        if buffer.dtype not in EXTENDED or buffer.scope == "register" or buffer.swizzle:
            return None
        for number in range(BYTES):
            self.env[var] = number
            places.append(self.flat(buffer, load.indices))
        first = places[0]
        rows = BYTE_PLACES.get(tuple(at.const - first.const for at in places))
        if rows is None or any(at.terms != first.terms for at in places):
            return None
        if any(factor % rows for _, factor in first.terms):
            return None
        row = first.const % rows
        place = self.place(buffer, CLinear(first.terms, first.const - row))
        return FourBytes(place=place, dtype=buffer.dtype, rows=rows, row=row)

    # ------------------------------------------------------------------------------------- values

    def load(self, value: ir.Load) -> Val:
        """An element; of a constant, a variable that has it already, as a store into bytes could
        change anything for a compiler."""
        now, buffer = super().load(value), self.buffers[value.buffer]
        if now.text in self._kept and buffer.name in self.constants:
            return Val(self._kept[now.text], now.dtype, 1)
        shared = self._shared
        if shared is None or buffer.name not in self.constants or self._in_select:
            return now
        if now.lanes > 1 or now.dtype == "bool" or self.depth != self._shared_depth:
            return now
        if now.text not in shared:
            name = shared[now.text] = f"k{len(shared)}"
            self.line(f"const {self.helpers.type(now.dtype)} {name} = {now.text};")
        return Val(shared[now.text], now.dtype, 1)

    def _select(self, value: ir.Select) -> Val:
        self._in_select += 1
        out = super()._select(value)
        self._in_select -= 1
        return out

    def value(self, value: ir.Value) -> Val:
        if self._leaves is not None and value in self._leaves:
            return self._leaves[value]
        if self._has_dsp and self.lanes == 1 and (factors := high_factors(value)):
            return self._product("high_product", _HIGH_PRODUCT, factors)
        if self._has_dsp and self.lanes == 1 and (parts := upper_product(value)):
            return self._product("upper_product", _UPPER_PRODUCT, parts)
        if not (
            self.target.is_compact
            and self._leaves is None
            and self.lanes == 1
            and isinstance(value, ir.Apply)
            and len(set(operations_of(value))) >= OUTLINED_CALLS
            and not any(is_minus_zero(v) for v in below(value))
        ):
            return super().value(value)
        return self._outlined(value)

    def _product(self, name: str, function: str, args: tuple[ir.Value, ...]) -> Val:
        """A product's rounded upper half by a function of few instructions."""
        given = [self.value(a) for a in args]
        self.helpers.type("int64")
        self.helpers.type("uint32")
        self.helpers.written(function, function)
        return Val(f"{name}({', '.join(now.text for now in given)})", "int32", 1)

    def _outlined(self, value: ir.Apply) -> Val:
        """A call of a function that computes the expression of what it loads."""
        leaves = {leaf: super(CompactWriter, self).value(leaf) for leaf in leaves_of(value)}
        kinds = [self.helpers.type(now.dtype) for now in leaves.values()]
        self._leaves = {
            leaf: Val(f"a{n}", now.dtype, 1) for n, (leaf, now) in enumerate(leaves.items())
        }
        lines: list[str] = []
        for part in repeated_in(value):
            now = self.value(part)
            name = f"v{len(lines)}"
            lines.append(f"    const {self.helpers.type(now.dtype)} {name} = {now.text};")
            self._leaves[part] = Val(name, now.dtype, 1)
        out = self.value(value)
        self._leaves = None
        given = ", ".join(f"{kind} a{n}" for n, kind in enumerate(kinds))
        result = self.helpers.type(out.dtype)
        body = "\n".join([*_read(lines, out.text), f"    return {out.text};", "}"])
        digest = hashlib.sha256(f"{result} {given} {body}".encode()).hexdigest()[:8]
        name = f"computed_{digest}"
        self.helpers.written(name, f"static inline {result} {name}({given}) {{\n{body}")
        return Val(f"{name}({', '.join(now.text for now in leaves.values())})", out.dtype, 1)


def _read(lines: list[str], result: str) -> list[str]:
    """Definitions `const TYPE NAME = VALUE;` that a result is made of."""
    kept: list[str] = []
    for line in reversed(lines):
        name = line.split(" = ", maxsplit=1)[0].rsplit(" ", maxsplit=1)[-1]
        if any(re.search(rf"\b{name}\b", text) for text in (*kept, result)):
            kept.insert(0, line)
    return kept


def _only_stores(loop: ir.For) -> bool:
    """Whether it is several stores that are written out, none of them a sum."""
    now: tuple[ir.Stmt, ...] = (loop,)
    count = 1
    while len(now) == 1 and isinstance(now[0], ir.For):
        if now[0].kind != "unroll" and now[0].extent != 1:
            return False
        count *= now[0].extent
        now = now[0].body
    return count > 1 and all(isinstance(s, ir.Store) and not s.combine for s in now)


def _by_constants(loop: ir.For, constants: set[str]) -> ir.For:
    """The same stores, those that read the same constants one after the other."""
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], ir.For):
        loops.append(inner)
    body = loops[-1].body
    stored = {s.buffer for s in body if isinstance(s, ir.Store)}
    read = accesses_of(body)
    if stored & {v.buffer for v in values_of(body) if isinstance(v, ir.Load)}:
        return loop
    moved = {v for name, indices in read if name in constants for i in indices for v in i.vars()}
    for now in sorted(loops, key=lambda x: x.var in moved):
        body = (dataclasses.replace(now, body=body),)
    (out,) = body
    assert isinstance(out, ir.For)
    return out

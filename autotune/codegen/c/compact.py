"""C for small processors: as little code as computes the same. In: a target, statements. Out:
loops instead of copies of their bodies, functions instead of expressions that come again, and
products of bytes by the instructions for two of them at a time (Arm's SMLAD): whole tiles of sums
as `dot_tile.py` has them, else one by one through ACLE.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from autotune.codegen.c.dialect import Dialect
from autotune.codegen.c.dot_match import tile_of
from autotune.codegen.c.statement import CStatementWriter
from autotune.codegen.expression import Val
from autotune.program import ir
from autotune.program.rewrite import accesses_of
from autotune.target import Target

UNROLLED_STATEMENTS = 12
"""What a loop may be unrolled to, chosen: nine taps of a window, four products of three sums."""
OUTLINED_CALLS = 8
"""Operations of an expression from which on it is a function, chosen: a call takes about as many
instructions as three or four of them."""
DSP = "+dsp"
"""LLVM's name for instructions on halves and quarters of words (Armv7E-M, Armv8-M)."""
_EXTENDED = {"uint8": "__uxtb16", "int8": "__sxtb16"}
"""ACLE's functions that widen bytes 0 and 2 of a word."""
_DOT_BYTES = 4
"""Products of a `dot` loop of bytes: a word of each operand."""
_ASSEMBLER = "#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && defined(__OPTIMIZE__)"
"""Where there is extended assembler, and no register is the frame's."""
_ACLE = """#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
#endif"""


_HIGH_PRODUCT = f"""static inline i32 high_product(i32 a, i32 b) {{
{_ASSEMBLER}
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


class CompactWriter(CStatementWriter):
    """Writes statements compactly where the target is compact, and else as they are."""

    def __init__(self, dialect: Dialect, program: ir.Program, target: Target) -> None:
        super().__init__(dialect, program)
        self.target = target
        self._has_dsp = DSP in target.features.split(",")
        self._constants = {p.name for p in program.params if p.constant}
        self._shared: dict[str, str] | None = None
        """What has been loaded of constants for the stores that are being written, by its text."""
        self._shared_depth = self._in_select = 0
        self._in_plain = False
        """Whether what is being written is beside assembler for the same."""
        self._leaves: dict[ir.Value, Val] | None = None
        """Arguments of the function that is being written."""

    # -------------------------------------------------------------------------------------- loops

    def loop(self, loop: ir.For) -> None:
        if self.lanes > 1 or not self.target.is_compact:
            super().loop(loop)
        elif (loop.kind == "dot" and self._dot(loop)) or self._tile(loop):
            return
        elif loop.kind == "unroll" and loop.extent > 1 and self._rolls(loop):
            self._counted(loop.var, loop.extent, loop.body)
        elif self._shared is None and _only_stores(loop):
            with self.block(""):
                self._shared, self._shared_depth = {}, self.depth
                super().loop(_by_constants(loop, self._constants))
                self._shared = None
        else:
            super().loop(loop)

    def _rolls(self, loop: ir.For) -> bool:
        """Whether what was to be unrolled is better a loop, which nothing in its body forbids."""
        if _statements((loop,)) <= UNROLLED_STATEMENTS:
            return False
        tables = any(isinstance(v, ir.Table) for v in _values(loop.body))
        fixed = (
            at
            for name, indices in accesses_of(loop.body)
            if name not in self.buffers or self.buffers[name].scope == "register"
            for at in indices
        )
        return not tables and all(loop.var not in at.vars() for at in fixed)

    def _tile(self, loop: ir.For) -> bool:
        """A tile of sums over one run of words as assembler; False where it is none."""
        if not self._has_dsp or self._in_plain or loop.kind != "serial":
            return False
        tile = tile_of(self, loop)
        lines = tile.lines() if tile else None
        if lines is None:
            return False
        self.helpers.type("uint32")
        self.lines.append(_ASSEMBLER)
        for line in lines:
            self.line(line)
        self.lines.append("#else")
        self._in_plain = True
        super().loop(loop)
        self._in_plain = False
        self.lines.append("#endif")
        return True

    def _dot(self, loop: ir.For) -> bool:
        """The sum of four products of bytes as a call; False where that is not what it is."""
        if not self._has_dsp or loop.extent != _DOT_BYTES or len(loop.body) != 1:
            return False
        store = loop.body[0]
        if isinstance(store, ir.If) and not any(loop.var in b.index.vars() for b in store.bounds):
            inside = ir.For(loop.var, loop.extent, loop.kind, store.body)
            self.guard(ir.If(store.bounds, (inside,)))
            return True
        if not isinstance(store, ir.Store) or store.combine != "sum":
            return False
        factors = [_byte_load(v) for v in getattr(store.value, "args", ())]
        if getattr(store.value, "fn", "") != "mul" or None in factors:
            return False
        places, kinds = [], []
        for load in factors:
            assert load is not None
            buffer = self.buffers[load.buffer]
            if buffer.dtype not in _EXTENDED or buffer.scope == "register" or buffer.swizzle:
                return False
            self.env[loop.var] = 0
            first = self.flat(buffer, load.indices)
            self.env[loop.var] = 1
            if self.flat(buffer, load.indices) != type(first)(first.terms, first.const + 1):
                return False
            places.append(self.place(buffer, first))
            kinds.append(buffer.dtype)
        self.env[loop.var] = 0
        out = self.buffers[store.buffer]
        old = self.load(ir.Load(store.buffer, store.indices))
        text = f"{self._dot_function(kinds)}({places[0]}, {places[1]}, {old.text})"
        self._assign(out, self.flat(out, store.indices), Val(text, out.dtype, 1))
        return True

    def _dot_function(self, kinds: list[str]) -> str:
        """The name of the function that adds four products of bytes of these types."""
        first, second = (self.helpers.type(kind) for kind in kinds)
        self.helpers.type("uint32")
        low, high = (_EXTENDED[kind] for kind in kinds)
        name = f"dot_{first}_{second}"
        plain = " + ".join(f"a[{n}] * b[{n}]" for n in range(_DOT_BYTES))
        self.helpers.written(_ACLE, _ACLE)
        self.helpers.written(
            name,
            f"""static inline i32 {name}(const {first} *a, const {second} *b, i32 sum) {{
#if defined(__ARM_FEATURE_DSP)
    u32 x, y;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    sum = __smlad((int16x2_t){low}(x), (int16x2_t){high}(y), sum);
    return __smlad((int16x2_t){low}(x >> 8), (int16x2_t){high}(y >> 8), sum);
#else
    return sum + {plain};
#endif
}}""",
        )
        return name

    # ------------------------------------------------------------------------------------- values

    def load(self, value: ir.Load) -> Val:
        """An element; of a constant, a variable that has it already, as a store into bytes could
        change anything for a compiler."""
        now, buffer = super().load(value), self.buffers[value.buffer]
        shared = self._shared
        if shared is None or buffer.name not in self._constants or self._in_select:
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
            return self._high_product(*(self.value(f) for f in factors))
        if not (
            self.target.is_compact
            and self._leaves is None
            and self.lanes == 1
            and isinstance(value, ir.Apply)
            and len(set(_operations(value))) >= OUTLINED_CALLS
            and not any(_is_minus_zero(v) for v in _below(value))
        ):
            return super().value(value)
        return self._outlined(value)

    def _high_product(self, first: Val, second: Val) -> Val:
        """A product by 2**31, halves up, in three instructions instead of five."""
        self.helpers.type("int64")
        self.helpers.type("uint32")
        self.helpers.written(_HIGH_PRODUCT, _HIGH_PRODUCT)
        return Val(f"high_product({first.text}, {second.text})", "int32", 1)

    def _outlined(self, value: ir.Apply) -> Val:
        """A call of a function that computes the expression of what it loads."""
        leaves = {leaf: super(CompactWriter, self).value(leaf) for leaf in _leaves(value)}
        kinds = [self.helpers.type(now.dtype) for now in leaves.values()]
        self._leaves = {
            leaf: Val(f"a{n}", now.dtype, 1) for n, (leaf, now) in enumerate(leaves.items())
        }
        lines: list[str] = []
        for part in _repeated(value):
            now = self.value(part)
            name = f"v{len(lines)}"
            lines.append(f"    const {self.helpers.type(now.dtype)} {name} = {now.text};")
            self._leaves[part] = Val(name, now.dtype, 1)
        out = self.value(value)
        self._leaves = None
        given = ", ".join(f"{kind} a{n}" for n, kind in enumerate(kinds))
        result = self.helpers.type(out.dtype)
        body = "\n".join([*lines, f"    return {out.text};", "}"])
        digest = hashlib.sha256(f"{result} {given} {body}".encode()).hexdigest()[:8]
        name = f"computed_{digest}"
        self.helpers.written(name, f"static inline {result} {name}({given}) {{\n{body}")
        return Val(f"{name}({', '.join(now.text for now in leaves.values())})", out.dtype, 1)


def _only_stores(loop: ir.For) -> bool:
    """Whether it is several stores that are written out, none of them a sum."""
    now: tuple[ir.Stmt, ...] = (loop,)
    count = 1
    while len(now) == 1 and isinstance(now[0], ir.For):
        if now[0].kind != "unroll" and now[0].extent > 1:
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
    if stored & {v.buffer for v in _values(body) if isinstance(v, ir.Load)}:
        return loop
    moved = {v for name, indices in read if name in constants for i in indices for v in i.vars()}
    for now in sorted(loops, key=lambda x: x.var in moved):
        body = (dataclasses.replace(now, body=body),)
    (out,) = body
    assert isinstance(out, ir.For)
    return out


def high_factors(value: ir.Value) -> tuple[ir.Value, ...] | None:
    """The factors of (a * b + 2**30) / 2**31 of int32."""
    if not isinstance(value, ir.Apply) or value.fn != "to_int32":
        return None
    at: ir.Value = value
    for fn, last in (("to_int32", None), ("shift_right", 31), ("add", 1 << 30)):
        if not isinstance(at, ir.Apply) or at.fn != fn:
            return None
        if last is not None and at.args[-1] != ir.Const(last, "int64"):
            return None
        at = at.args[0]
    if not isinstance(at, ir.Apply) or at.fn != "mul":
        return None
    wide = [a.args[0] for a in at.args if isinstance(a, ir.Apply) and a.fn == "to_int64"]
    return tuple(wide) if len(wide) == 2 else None


def _byte_load(value: ir.Value) -> ir.Load | None:
    """What is widened to 32 bits, where it is a load."""
    if isinstance(value, ir.Apply) and value.fn == "to_int32":
        (inner,) = value.args
        return inner if isinstance(inner, ir.Load) else None
    return None


def _statements(body: tuple[ir.Stmt, ...]) -> int:
    """Lines that the body becomes, with all loops that are marked so unrolled; a `dot` is one."""
    total = 0
    for stmt in body:
        if isinstance(stmt, ir.For):
            total += _statements(stmt.body) * (stmt.extent if stmt.kind == "unroll" else 1)
        elif isinstance(stmt, ir.If | ir.Alloc):
            total += _statements(stmt.body)
        else:
            total += 1
    return total


def _values(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Value]:
    """Every value below the statements."""
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Store):
            yield from _below(stmt.value)


def _below(value: ir.Value) -> Iterator[ir.Value]:
    yield value
    if isinstance(value, ir.Apply):
        for arg in value.args:
            yield from _below(arg)
    elif isinstance(value, ir.Select):
        yield from _below(value.then)
        yield from _below(value.other)


def _is_minus_zero(value: ir.Value) -> bool:
    """Whether it is a constant that is equal to another one, and not the same."""
    return isinstance(value, ir.Const) and value.value == 0 and str(value.value).startswith("-")


def _operations(value: ir.Value) -> Iterator[ir.Apply]:
    if isinstance(value, ir.Apply):
        yield value
        for arg in value.args:
            yield from _operations(arg)


def _leaves(value: ir.Apply) -> list[ir.Value]:
    """What an expression begins with, but for constants: each once."""
    found: dict[ir.Value, None] = {}
    for operation in _operations(value):
        for arg in operation.args:
            if not isinstance(arg, ir.Apply | ir.Const):
                found[arg] = None
    return list(found)


def _repeated(value: ir.Apply) -> list[ir.Apply]:
    """Operations that come more than once, inner ones first."""
    counts: dict[ir.Apply, int] = {}

    def visit(now: ir.Value) -> None:
        if isinstance(now, ir.Apply):
            counts[now] = counts.get(now, 0) + 1
            if counts[now] == 1:
                for arg in now.args:
                    visit(arg)

    visit(value)
    again = (v for v, count in counts.items() if count > 1)
    return sorted(again, key=lambda v: sum(1 for _ in _operations(v)))

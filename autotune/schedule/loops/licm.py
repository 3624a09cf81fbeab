"""Step hoist: loop-invariant code motion (Allen & Kennedy 2001; LLVM's LICM)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.schedule.base import register
from autotune.schedule.loops.jam import check_serial

_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "max", "min", "neg", "abs"))


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Hoist:
    """Loop-invariant code motion: values that are the same in every iteration of a loop are
    computed before it, into registers.

    for k: t += x[k] - max(x[0], x[1])   ->
    alloc k.kept0: { k.kept0 = max(x[0], x[1]) ; for k: t += x[k] - k.kept0 }
    """

    step: ClassVar[str] = "hoist"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        check_serial(loop)
        if any(
            isinstance(s, ir.For) and s.kind == "vector"
            for s in rewrite.loop_path(program.body, loop.var)
        ):
            raise ScheduleError(f"loop {self.loop} is inside a vector loop")
        inner = {s.var for s in ir.walk((loop,)) if isinstance(s, ir.For)}
        written = {s.buffer for s in rewrite.stores_of(loop.body)}

        def same(value: ir.Value) -> bool:
            loads = list(rewrite.value_loads(value))
            used = {v for load in loads for i in load.indices for v in i.vars()}
            plain = all(rewrite.find_buffer(program, v.buffer).dtype == "float32" for v in loads)
            free = used.isdisjoint(inner) and written.isdisjoint(v.buffer for v in loads)
            return bool(loads) and plain and free and _is_arithmetic(value)

        values = {v: None for s in _always(loop.body) for v in _largest(s.value, same)}
        if not values:
            raise ScheduleError(f"nothing is the same in every iteration of loop {self.loop}")
        kept = {v: f"{self.loop}.kept{n}" for n, v in enumerate(values)}

        def load(value: ir.Value) -> ir.Value | None:
            return (
                ir.Load(kept[value], ()) if isinstance(value, ir.Apply) and value in kept else None
            )

        moved = rewrite.map_values(loop.body, lambda value: rewrite.map_value(value, load))
        new: rewrite.Body = (rewrite.with_body(loop, moved),)
        for value, name in reversed(kept.items()):
            local = ir.Buffer.dense(name, "float32", (), "register")
            new = (ir.Alloc(local, (ir.Store(name, (), value), *new)),)
        return rewrite.replace(program, loop, new)


def _always(body: rewrite.Body) -> Iterator[ir.Store]:
    """Stores that no guard skips."""
    for stmt in body:
        if isinstance(stmt, ir.Store):
            yield stmt
        elif isinstance(stmt, ir.For | ir.Alloc):
            yield from _always(stmt.body)


def _is_arithmetic(value: ir.Value) -> bool:
    """Whether a value is float32 where what it loads is."""
    if isinstance(value, ir.Apply):
        return value.fn in _ARITHMETIC and all(_is_arithmetic(a) for a in value.args)
    return isinstance(value, ir.Load) or (isinstance(value, ir.Const) and value.dtype == "float32")


def _largest(value: ir.Value, wanted: Callable[[ir.Value], bool]) -> Iterator[ir.Apply]:
    """Parts of a value that are as wanted and computed, none inside another."""
    if isinstance(value, ir.Apply):
        if wanted(value):
            yield value
        else:
            for part in value.args:
                yield from _largest(part, wanted)

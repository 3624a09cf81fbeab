"""Step separate_window: a window's sums along one side first, which windows that overlap share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import simplify
from autotune.schedule.base import register
from autotune.schedule.loops.nest import chain_stmt, copied, require_new
from autotune.schedule.loops.rfactor import identity, sole_reduction

_SUFFIX = "_part"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateWindow:
    """Separable windows: a nest that reduces over two sides of a window first reduces along one at
    every place of the other, the loop, into a buffer of its own, then along the loop.

    for i in 8: for j in 6: { s[i, j] = 0 ; for a in 3: for b in 5: s[i, j] += x[i + a, 2*j + b] }
    ->   alloc s.part[8, 15]: {
      for i_part in 8: for b_part in 15: { s.part[i_part, b_part] = 0
        for a in 3: s.part[i_part, b_part] += x[i_part + a, b_part] }
      for i in 8: for j in 6: { s[i, j] = 0 ; for b in 5: s[i, j] += s.part[i, 2*j + b] } }
    """

    step: ClassVar[str] = "separate_window"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        path = rewrite.loop_path(program.body, self.loop)
        top = next(s for s in path if isinstance(s, ir.For))
        loop = path[-1]
        assert isinstance(loop, ir.For)
        inside, store = sole_reduction(loop)
        chain = [s for s in (*path[path.index(top) :], *inside) if isinstance(s, ir.For)]
        if len(chain) != len(path) - path.index(top) + len(inside):
            raise ScheduleError(f"loop {self.loop} is guarded, or inside a local buffer's life")
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        outer = [s for s in chain if s.var in used]
        sides = [s for s in chain if s.var not in used and s is not loop]
        start = self._start(top, store, outer)
        if self.loop in used or len(outer) + len(sides) + 1 != len(chain) or not sides:
            raise ScheduleError(f"loop {self.loop} is not one of several of a reduction")
        along, step = self._slides(store.value, loop, outer)
        require_new(program, *(s.var + _SUFFIX for s in outer))
        new = f"{store.buffer}{_SUFFIX.replace('_', '.')}"
        dtype = rewrite.find_buffer(program, store.buffer).dtype
        places = ir.For(along.var, step * (along.extent - 1) + loop.extent, along.kind, ())
        ranges = {s.var: s.extent for s in (*outer, *sides)} | {places.var: places.extent}
        moved = {self.loop: ir.index(along.var) * (1 - step)}

        def at_place(i: ir.Index) -> ir.Index:
            return simplify(i.substitute(moved), ranges) if self.loop in i.vars() else i

        value = rewrite.map_indices(store.value, at_place)
        part = [places if s is along else s for s in outer]
        own = tuple(ir.index(s.var) for s in outer)
        first = (
            ir.Store(new, own, identity(store.combine or "", dtype)),
            chain_stmt(sides, (ir.Store(new, own, value, store.combine),), ""),
        )
        place = ir.index(along.var) * step + ir.index(self.loop)
        read = ir.Load(new, tuple(place if s is along else ir.index(s.var) for s in outer))
        last = (
            start,
            ir.For(
                loop.var, loop.extent, loop.kind,
                (ir.Store(store.buffer, store.indices, read, store.combine),),
            ),
        )  # fmt: skip
        shape = tuple(s.extent for s in part)
        nests = (copied(part, first, _SUFFIX), chain_stmt(outer, last, ""))
        program = rewrite.replace(program, top, nests)
        local = ir.Alloc(ir.Buffer.dense(new, dtype, shape, "scratch"), program.body)
        return changed(program, body=(local,))

    def _start(self, top: ir.For, store: ir.Store, outer: list[ir.For]) -> ir.Store:
        """What the results begin with: the only other statement of the nest."""
        stores = rewrite.stores_of((top,))
        begins = [s for s in stores if s is not store]
        if len(begins) != 1 or begins[0].combine or begins[0].indices != store.indices:
            raise ScheduleError(f"the nest of {self.loop} does not set what it adds to, alone")
        if not outer or not isinstance(begins[0].value, ir.Const):
            raise ScheduleError(f"{store.buffer} does not begin with a constant")
        if any(v.buffer == store.buffer for v in rewrite.value_loads(store.value)):
            raise ScheduleError(f"the terms of {store.buffer} read it")
        return begins[0]

    def _slides(self, value: ir.Value, loop: ir.For, outer: list[ir.For]) -> tuple[ir.For, int]:
        """The loop over results along which windows move, and by how many places: terms depend on
        both loops through these places alone."""
        found: set[tuple[str, int]] = set()
        others: set[str] = set()

        def note(i: ir.Index) -> ir.Index:
            for part in _affine(i):
                ahead = part.coefficient(loop.var)
                steps = [
                    (s.var, part.coefficient(s.var)) for s in outer if part.coefficient(s.var)
                ]
                if not ahead:
                    others.update(v for v, _ in steps)
                elif ahead == 1 and len(steps) == 1 and steps[0][1] > 0:
                    found.add(steps[0])
                else:
                    raise ScheduleError(f"windows do not slide along loop {loop.var}")
            return i

        rewrite.map_indices(value, note)
        if len(found) != 1 or {v for v, _ in found} & others:
            raise ScheduleError(f"windows do not slide along loop {loop.var} alone")
        ((name, step),) = found
        return next(s for s in outer if s.var == name), step


def _affine(value: ir.Index) -> Iterator[ir.Index]:
    """The affine parts of an index: its own, and those of what it clamps or divides."""
    yield ir.Index(tuple(t for t in value.terms if isinstance(t[0], str)), value.const)
    for atom, _ in value.terms:
        if isinstance(atom, ir.LoadIndex):
            for inner in atom.indices:
                yield from _affine(inner)
        elif not isinstance(atom, str):
            yield from _affine(atom.index)

"""Step shared_window_terms: terms that overlapping windows of a stencil share, computed once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.schedule.base import register
from autotune.schedule.loops.nest import copied, require_new
from autotune.schedule.loops.rfactor import sole_reduction

_SUFFIX = "_terms"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWindowTerms:
    """Overlapping terms shared: what a loop of a reduction combines is computed in whole vectors
    before the loop `at` around it; windows that overlap along the lanes each read parts of two.

    for v in 2: alloc s[16]: { .. ; for k in 5: for l in 16:
        s[l] += select(0 <= 16*v + l + k - 2 < C, f(x[16*v + l + k - 2]), 0) ; .. }
    ->   alloc s.terms[64] register: {
      for k_terms in 4: for l_terms in 16:
        s.terms[16*k_terms + l_terms] = select(0 <= 16*k_terms + l_terms - 16 < C, f(x[..]), 0)
      for v in 2: alloc s[16]: { .. ; for k in 5: for l in 16: s[l] += s.terms[16*v + l + k + 14]
        ; .. } }
    """

    step: ClassVar[str] = "shared_window_terms"
    loop: str
    at: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop, top = rewrite.find_loop(program, self.loop), rewrite.find_loop(program, self.at)
        inside, store = sole_reduction(loop)
        self._check_read(program, store, top)
        path = [*rewrite.loop_path((top,), self.loop), *inside]
        chain = [s for s in path if isinstance(s, ir.For) and s is not loop]
        place = self._place(store.value)
        moved = [c for c in chain if c.var in place.vars()]
        kept = [c for c in chain if c not in moved]
        self._check_dense(place, moved)
        require_new(program, *(c.var + _SUFFIX for c in (loop, *kept, moved[-1])))
        # The place of the first term, at the lane where vectors begin.
        lanes = moved[-1].extent
        start = place.substitute(dict.fromkeys((self.loop, *(c.var for c in moved)), ir.Index()))
        start = start - place.const % lanes
        width = place.const % lanes + math.prod(c.extent for c in moved) + loop.extent - 1
        vectors = ir.For(self.loop, -(-width // lanes), loop.kind, ())
        shape = (*(c.extent for c in kept), vectors.extent * lanes)
        dtype = rewrite.find_buffer(program, store.buffer).dtype
        terms = ir.Buffer.dense(f"{store.buffer}.terms", dtype, shape, "register")
        own = ir.index(self.loop) * lanes + ir.index(moved[-1].var)
        value = rewrite.map_indices(store.value, lambda i: start + own if i == place else i)
        fill = ir.Store(terms.name, (*(ir.index(c.var) for c in kept), own), value)
        read = ir.Load(terms.name, (*(ir.index(c.var) for c in kept), place - start))
        new = ir.Store(store.buffer, store.indices, read, store.combine)
        program = rewrite.replace(program, store, (new,))
        kernel = rewrite.find_loop(program, self.at)
        first = copied((*kept, vectors, moved[-1]), (fill,), _SUFFIX)
        return rewrite.replace(program, kernel, (ir.Alloc(terms, (first, kernel)),))

    def _check_read(self, program: ir.Program, store: ir.Store, top: ir.For) -> None:
        """What is read is there ahead of the loop, and of the type that is combined."""
        dtype = rewrite.find_buffer(program, store.buffer).dtype
        loads = list(rewrite.value_loads(store.value))
        if any(rewrite.find_buffer(program, v.buffer).dtype != dtype for v in loads):
            raise ScheduleError(f"{store.buffer} is not of the same type as what it combines")
        if {v.buffer for v in loads} & {s.buffer for s in rewrite.stores_of((top,))}:
            raise ScheduleError(f"loop {self.at} writes what the terms of {self.loop} read")

    def _place(self, value: ir.Value) -> ir.Index:
        """The index through which alone a value depends on the loop."""
        found: set[ir.Index] = set()

        def note(i: ir.Index) -> ir.Index:
            if self.loop in i.vars():
                found.add(i)
            return i

        rewrite.map_indices(value, note)
        if len(found) != 1:
            raise ScheduleError(f"the terms of loop {self.loop} do not slide along one index")
        (place,) = found
        # Terms at the ends of whole vectors are computed and not used.
        if not isinstance(value, ir.Select) or all(b.index != place for b in value.bounds):
            raise ScheduleError(f"the terms of loop {self.loop} are not guarded at the ends")
        return place

    def _check_dense(self, place: ir.Index, moved: list[ir.For]) -> None:
        """The loop and those along which its terms move step by one element each."""
        if not moved:
            raise ScheduleError(f"the terms of loop {self.loop} do not move inside {self.at}")
        steps = [math.prod(c.extent for c in moved[n + 1 :]) for n in range(len(moved))]
        found = [place.coefficient(c.var) for c in moved]
        odd = [a for a, _ in place.terms if not isinstance(a, str)]
        if odd or found != steps or place.coefficient(self.loop) != 1:
            raise ScheduleError(f"loop {self.loop} does not slide element by element")

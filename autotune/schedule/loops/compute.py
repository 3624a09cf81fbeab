"""Steps that move computations: inline, compute_at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import Ranges, interval
from autotune.schedule.base import register
from autotune.schedule.loops.nest import perfect_chain
from autotune.sizes import is_size


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """Put an elementwise local into its readers.

    for i: t[i] = x[i]*2 ; for j: y[j] = t[j]+1   ->   for j: y[j] = x[j]*2+1
    """

    step: ClassVar[str] = "inline"
    buffer: str

    def apply(self, program: ir.Program) -> ir.Program:
        store = single_store(program, self.buffer, moved=True)
        program = _drop_stage(program, stage_of(program, self.buffer), self.buffer)
        formals = [(i.terms[0][0] if i.terms else None, i.const) for i in store.indices]
        cache: dict[ir.Load, ir.Value] = {}

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            if value not in cache:
                pairs = zip(formals, value.indices, strict=True)
                env = {f: i - at for (f, at), i in pairs if isinstance(f, str)}
                cache[value] = rewrite.map_indices(store.value, lambda i: i.substitute(env))
            return cache[value]

        body = rewrite.map_loads(program.body, load)
        return rewrite.drop_alloc(changed(program, body=body), self.buffer)


def _drop_stage(program: ir.Program, stage: ir.Stmt, buffer: str) -> ir.Program:
    if len(rewrite.stores_of((stage,))) != 1:
        raise ScheduleError(f"the loops that compute {buffer} compute something else too")
    return rewrite.replace(program, stage, ())


def single_store(program: ir.Program, buffer: str, moved: bool = False) -> ir.Store:
    """The only store to a buffer, not a reduction, indexed by one distinct loop per dimension;
    `moved`: perhaps with a constant on top, as what lies in a halo is."""
    stores = rewrite.stores_of(program.body, buffer)
    if len(stores) != 1 or stores[0].combine:
        raise ScheduleError(f"{buffer} is not computed by a single plain store")
    atoms = [i.terms[0] for i in stores[0].indices if i.terms]
    plain = all(isinstance(a, str) and c == 1 for a, c in atoms)
    simple = all(
        i == ir.Index() or (len(i.terms) == 1 and (moved or not i.const))
        for i in stores[0].indices
    )
    if not (plain and simple) or len(set(atoms)) != len(atoms):
        raise ScheduleError(f"{buffer} is not indexed by one loop per dimension")
    return stores[0]


def nest_of(program: ir.Program, buffer: str) -> ir.For:
    """The outermost loop around the stores to a buffer."""
    stage = stage_of(program, buffer)
    if not isinstance(stage, ir.For):
        raise ScheduleError(f"no top-level loop computes {buffer}")
    return stage


def stage_of(program: ir.Program, buffer: str) -> ir.Stmt:
    """The statement at the root that computes a buffer: a loop, or a store of a single element."""
    for stmt in root_body(program):
        if rewrite.stores_of((stmt,), buffer):
            return stmt
    raise ScheduleError(f"no statement at the root computes {buffer}")


def root_body(program: ir.Program) -> rewrite.Body:
    """The statements below the allocs at the root."""
    body = program.body
    while len(body) == 1 and isinstance(body[0], ir.Alloc):
        body = body[0].body
    return body


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAt:
    """Compute a consumer inside its producer's loops, down to and including the loop `at`.

    for i: t[i] = .. ; for j: y[j] = t[j]   ->   for i: { t[i] = .. ; y[i] = t[i] }
    """

    step: ClassVar[str] = "compute_at"
    buffer: str
    at: str

    def apply(self, program: ir.Program) -> ir.Program:
        consumer = nest_of(program, self.buffer)
        path = [s for s in rewrite.loop_path(program.body, self.at) if isinstance(s, ir.For)]
        if path[0] is consumer:
            raise ScheduleError(f"{self.buffer} is computed inside {self.at} already")
        producer = path[0]
        if not any(s is producer for s in root_body(program)):
            raise ScheduleError(f"loop {self.at} is inside a local buffer's life")
        _check_between(program, producer, consumer, self.buffer)
        chain = perfect_chain(consumer, len(path))
        if [c.extent for c in chain] != [p.extent for p in path]:
            raise ScheduleError(f"loops of {self.buffer} differ from those down to {self.at}")
        env = {c.var: ir.index(p.var) for c, p in zip(chain, path, strict=True)}
        moved = rewrite.map_stmt_indices(chain[-1].body, lambda i: i.substitute(env))
        _check_same_elements(path, moved)
        program = rewrite.replace(program, consumer, ())
        target = rewrite.find_loop(program, self.at)
        return rewrite.replace(program, target, (rewrite.with_body(target, target.body + moved),))


def _check_between(program: ir.Program, producer: ir.For, consumer: ir.For, buffer: str) -> None:
    body = root_body(program)
    first, last = (next(i for i, s in enumerate(body) if s is n) for n in (producer, consumer))
    if last < first:
        raise ScheduleError(f"{buffer} is computed before the loop")
    needed = {v.buffer for v in rewrite.loads_of((consumer,))}
    needed |= {s.buffer for s in rewrite.stores_of((consumer,)) if s.combine}  # what it adds to
    between = body[first + 1 : last]
    if any(s.buffer in needed for s in rewrite.stores_of(between)):
        raise ScheduleError(f"{buffer} needs something that is computed after the loop")


def _check_same_elements(path: Sequence[ir.For], consumer: rewrite.Body) -> None:
    """Every iteration of the joined loops reads only what that iteration wrote, finished."""
    loops = {p.var for p in path}
    ranges = {s.var: s.extent for s in ir.walk((*path, *consumer)) if isinstance(s, ir.For)}
    repeated = {p.var for p in path if is_size(p.extent) or p.extent > 1}
    inside = rewrite.stores_of(path[-1].body)
    for store in rewrite.stores_of((path[0],)):
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        for read in rewrite.loads_of(consumer):
            if read.buffer != store.buffer:
                continue
            if not repeated <= used or not any(s is store for s in inside):
                raise ScheduleError(f"{store.buffer} is not finished inside {path[-1].var}")
            pairs = zip(store.indices, read.indices, strict=True)
            for written, wanted in pairs:
                if not (written.vars() | wanted.vars()) & loops:
                    continue
                if written != wanted and not _within(written, wanted, loops, ranges):
                    raise ScheduleError(f"{store.buffer} is read where it is not written yet")


def _within(written: ir.Index, wanted: ir.Index, loops: set[str], ranges: Ranges) -> bool:
    """Whether one index, as loops inside run, takes all the values that the other takes: both
    begin at the same place, and the first goes on one by one."""
    start = ir.Index(tuple(t for t in written.terms if ir.Index((t,)).vars() <= loops))
    steps, rest = written - start, wanted - start
    if rest.vars() & loops or len(steps.terms) != 1 or steps.const:
        return False
    atom, by = steps.terms[0]
    low, high = interval(rest, ranges)
    return isinstance(atom, str) and by == 1 and low >= 0 and high < ranges[atom]

"""Writing schedules: a program that steps are applied to as they are chosen.

In: a task. Out: the steps, known to apply. Helpers that several rules share live here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from autotune.ops import OPS
from autotune.program import ir
from autotune.program.analysis import carried_vars, own_vars, recombine
from autotune.program.rewrite import find_loop, loads_of, stores_of
from autotune.schedule import Scheduled, Step
from autotune.schedule.loops.compute import ComputeAt, Inline, root_body
from autotune.schedule.loops.nest import Fuse, Parallel, Reorder, Split, Unroll, Vectorize
from autotune.schedule.loops.specialize import Specialize
from autotune.sizes import is_size, least
from autotune.target import Target
from autotune.tasks.build import build_program, loop_var
from autotune.types import ITEM_BYTES, Task, TaskNode


class ScheduleBuilder:
    """Steps chosen so far, and the program they give."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.program: ir.Program = build_program(task)
        self._steps: list[Step] = []

    def apply(self, step: Step) -> None:
        """Apply a step and keep it. Raises ScheduleError where it is not legal."""
        self.program = step.apply(self.program)
        self._steps.append(step)

    @property
    def scheduled(self) -> Scheduled:
        return Scheduled(tuple(self._steps), self.program)

    def extent(self, loop: str) -> int:
        return find_loop(self.program, loop).extent

    def loops(self) -> set[str]:
        return {s.var for s in ir.walk(self.program.body) if isinstance(s, ir.For)}

    def present(self, names: list[str]) -> tuple[str, ...]:
        """The names that are loops."""
        known = self.loops()
        return tuple(n for n in names if n in known)

    def split(self, loop: str, factor: int, outer: str, inner: str) -> None:
        """Split, also by 1 or the whole extent: later steps then find the same names."""
        self.apply(Split(loop=loop, factor=factor, outer=outer, inner=inner))

    def fuse(self, loops: list[str], name: str) -> str:
        """Fuse nested loops, outermost first, into one; gives its name."""
        fused = loops[0]
        for number, inner in enumerate(loops[1:]):
            new = f"{name}{number}" if number < len(loops) - 2 else name
            self.apply(Fuse(outer=fused, inner=inner, fused=new))
            fused = new
        return fused


def lanes_of(task: Task, target: Target) -> int:
    """Lanes of a vector of the widest elements; those over 4 bytes take several registers."""
    widest = max((ITEM_BYTES[v.type.dtype] for v in task.values), default=4)
    return target.lanes(min(widest, 4))


def output_name(task: Task) -> str:
    return task.by_role("output")[0].name


CHEAP = frozenset((
    "add", "sub", "mul", "max", "min", "neg", "abs", "where", "relu", "clip", "eq", "ne", "lt",
    "le", "gt", "ge", "and", "or", "not", "to_float32", "to_bool", "to_int64", "to_int32",
    "expand",
))  # fmt: skip
"""Ops that are as quick to compute again as to load."""


def is_written_again(task: Task, node: TaskNode, compute: ir.Compute) -> bool:
    """Whether what a node of several passes ends with is quick to compute in its only reader."""
    (name, *others), readers = node.outputs, [n for n in task.nodes if compute.output in n.inputs]
    return (
        not others
        and compute.output == name
        and compute.combine is None
        and len(readers) == 1
        and readers[0].inputs.count(name) == 1
        and OPS.get(readers[0].op).kind == "elementwise"
        and all(fn in CHEAP for fn in _functions(compute.body))
    )


def _functions(value: ir.Value) -> Iterator[str]:
    if isinstance(value, ir.Apply):
        yield value.fn
        for part in value.args:
            yield from _functions(part)
    elif isinstance(value, ir.Select):
        yield from (*_functions(value.then), *_functions(value.other))


def inline_locals(
    builder: ScheduleBuilder, keep: frozenset[str], cheap_only: bool = False
) -> None:
    """Inline every elementwise local tensor into its readers, but for those to keep."""
    for node in builder.task.nodes:
        name = node.outputs[0]
        elementwise = OPS.get(node.op).kind in ("elementwise", "data", "view")
        if not elementwise or name in keep or (cheap_only and node.op not in CHEAP):
            continue
        if name in local_buffers(builder.program):
            builder.apply(Inline(buffer=name))


def output_with_sums(builder: ScheduleBuilder, sums: str, loop: str) -> str:
    """Inline every elementwise local tensor but the sums, and compute the output in their loop, as
    soon as they are done; gives the output's name."""
    output = output_name(builder.task)
    inline_locals(builder, keep=frozenset((output, sums)))
    anchor = builder.task.nodes[builder.task.anchor].outputs[0]
    if anchor not in (sums, output) and anchor in local_buffers(builder.program):
        builder.apply(Inline(buffer=anchor))
    if output != sums:
        builder.apply(ComputeAt(buffer=output, at=loop))
    return output


def local_buffers(program: ir.Program) -> set[str]:
    """Names of the buffers that the program allocates."""
    return {s.buffer.name for s in ir.walk(program.body) if isinstance(s, ir.Alloc)}


def nest_loops(stmt: ir.Stmt) -> list[ir.For]:
    """A perfect chain of loops from a statement inwards."""
    chain: list[ir.For] = []
    while isinstance(stmt, ir.For):
        chain.append(stmt)
        if len(stmt.body) != 1:
            break
        stmt = stmt.body[0]
    return chain


def schedule_copies(builder: ScheduleBuilder, target: Target, done: set[str]) -> None:
    """Vectorize and share among threads the top-level nests that compute none of `done`: padding
    copies and other plain elementwise stages."""
    for stmt in root_body(builder.program):
        stores = stores_of((stmt,))
        plain = isinstance(stmt, ir.For) and stmt.kind == "serial" and len(stores) == 1
        if plain and stores[0].buffer not in done and not stores[0].buffer.endswith(".cache"):
            schedule_elementwise(builder, target, [c.var for c in nest_loops(stmt)], 1)


def schedule_elementwise(
    builder: ScheduleBuilder, target: Target, loops: list[str], unroll: int
) -> None:
    """Vector lanes along the last loop, `unroll` vectors an iteration, the rest among threads."""
    loops = widen_last(builder, target, loops)
    last, lanes = loops[-1], lanes_of(builder.task, target)
    outer = [*loops[:-1], *vectorize_loop(builder, last, lanes, unroll)]
    share(builder, target, outer, f"{loops[0]}_p")


def vectorize_loop(
    builder: ScheduleBuilder, loop: str, lanes: int, unroll: int, inside: str = ""
) -> list[str]:
    """Run a loop in vectors, `unroll` of them an iteration; gives the loop around them, if any.
    The loop `inside`, directly around, goes into the vectors."""
    extent = builder.extent(loop)
    if extent <= lanes:
        if inside:
            builder.apply(Reorder(loops=(loop, inside)))
        builder.apply(Vectorize(loops=(loop,)))
        return []
    block = lanes * unroll if extent >= lanes * unroll else lanes
    builder.split(loop, block, f"{loop}_o", f"{loop}_b")
    builder.split(f"{loop}_b", lanes, f"{loop}_u", f"{loop}_v")
    builder.apply(Unroll(loops=(f"{loop}_u",)))
    if inside:
        builder.apply(Reorder(loops=(f"{loop}_o", f"{loop}_u", f"{loop}_v", inside)))
    builder.apply(Vectorize(loops=(f"{loop}_v",)))
    if extent % block:
        builder.apply(Specialize(loop=f"{loop}_o"))
    return [f"{loop}_o"]


def widen_last(builder: ScheduleBuilder, target: Target, loops: list[str]) -> list[str]:
    """Fuse the last loops while they are too short for vectors and the data stay side by side."""
    while len(loops) > 1 and builder.extent(loops[-1]) % lanes_of(builder.task, target):
        fused = f"{loops[-2]}_f"
        step = Fuse(outer=loops[-2], inner=loops[-1], fused=fused)
        if not is_regular(step.apply(builder.program), fused):
            break
        builder.apply(step)
        loops = [*loops[:-2], fused]
    return loops


def is_regular(program: ir.Program, loop: str) -> bool:
    """Whether every access inside a loop moves by whole elements along it."""
    buffers = {p.name: p for p in program.params}
    buffers |= {s.buffer.name: s.buffer for s in ir.walk(program.body) if isinstance(s, ir.Alloc)}
    body = find_loop(program, loop).body
    accesses = [(v.buffer, v.indices) for v in loads_of(body)]
    accesses += [(s.buffer, s.indices) for s in stores_of(body)]
    for name, indices in accesses:
        flat = ir.Index()
        for i, stride in zip(indices, buffers[name].strides, strict=True):
            flat = flat + i * stride
        if any(
            not isinstance(atom, str) and loop in ir.Index(((atom, 1),)).vars()
            for atom, _ in recombine(flat).terms
        ):
            return False
    return not any(loop in b.index.vars() for s in stores_of(body) for b in value_bounds(s.value))


def value_bounds(value: ir.Value) -> list[ir.Bound]:
    """Bounds of the selections in a value."""
    if isinstance(value, ir.Select):
        return [*value.bounds, *value_bounds(value.then), *value_bounds(value.other)]
    if isinstance(value, ir.Apply):
        return [b for a in value.args for b in value_bounds(a)]
    return []


def share(builder: ScheduleBuilder, target: Target, outer: list[str], name: str) -> None:
    """Fuse outer loops, the fewest that give every thread several pieces, and share them out.
    Loops of an extent that only a run knows are fused with nothing around them."""
    if target.threads == 1 or not outer:
        return
    count, chunks = 0, 1
    while count < len(outer) and (least(chunks) < 8 * target.threads or count == 0):
        extent = builder.extent(outer[count])
        if count and is_size(extent):
            break
        chunks *= extent
        count += 1
    if is_size(chunks) or chunks > 1:
        builder.apply(Parallel(loop=builder.fuse(outer[:count], name)))


__all__ = ["ScheduleBuilder", "loop_var"]


def own_loops(nest: ir.For) -> list[str]:
    """The outer loops of a nest whose iterations write elements of their own: no reductions."""
    chain = nest_loops(nest)
    local = {s.buffer.name for s in ir.walk((nest,)) if isinstance(s, ir.Alloc)}
    written = [
        own_vars(store.indices) - carried_vars(store)
        for store in stores_of((nest,))
        if store.buffer not in local
    ]
    return [
        loop.var
        for loop in itertools.takewhile(
            lambda loop: loop.extent == 1 or all(loop.var in used for used in written), chain
        )
    ]

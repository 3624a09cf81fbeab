"""Writing schedules: a program that steps are applied to as they are chosen.

In: a task. Out: the steps, known to apply. Helpers that several rules share live here.
"""

from __future__ import annotations

from autotune.program.build import build_program, loop_var
from autotune.program.ir import Alloc, For, Program, Stmt, walk
from autotune.program.rewrite import find_loop, stores_of
from autotune.schedule import STEPS, Schedule, Step
from autotune.schedule.compute import root_body
from autotune.target import Target
from autotune.types import Task


class ScheduleBuilder:
    """Steps chosen so far, and the program they give."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.program: Program = build_program(task)
        self._steps: list[Step] = []

    def do(self, step: str, **fields: object) -> None:
        """Apply a step and keep it. Raises ScheduleError where it is not legal."""
        made = STEPS.get(step)(**fields)
        self.program = made.apply(self.program)
        self._steps.append(made)

    @property
    def schedule(self) -> Schedule:
        return tuple(self._steps)

    def extent(self, loop: str) -> int:
        return find_loop(self.program, loop).extent

    def loops(self) -> set[str]:
        return {s.var for s in walk(self.program.body) if isinstance(s, For)}

    def present(self, names: list[str]) -> tuple[str, ...]:
        """Those of the names that are loops."""
        known = self.loops()
        return tuple(n for n in names if n in known)

    def split(self, loop: str, factor: int, outer: str, inner: str) -> None:
        """Split, also by 1 or the whole extent: later steps then find the same names."""
        self.do("split", loop=loop, factor=factor, outer=outer, inner=inner)

    def fuse(self, loops: list[str], name: str) -> str:
        """Fuse nested loops, outermost first, into one; gives its name."""
        fused = loops[0]
        for number, inner in enumerate(loops[1:]):
            new = f"{name}{number}" if number < len(loops) - 2 else name
            self.do("fuse", outer=fused, inner=inner, fused=new)
            fused = new
        return fused


def output_name(task: Task) -> str:
    return task.by_role("output")[0].name


def inline_epilogue(builder: ScheduleBuilder, anchor: str) -> None:
    """Inline every tensor between the anchor and the output; they are elementwise."""
    task = builder.task
    after = task.nodes[task.anchor + 1 :]
    for node in after:
        name = node.outputs[0]
        local = any(
            isinstance(s, Alloc) and s.buffer.name == name for s in walk(builder.program.body)
        )
        if name != anchor and local and node.op != "scalar":
            builder.do("inline", buffer=name)


def inline_prologue(builder: ScheduleBuilder) -> None:
    """Inline elementwise tensors that come before the anchor."""
    task = builder.task
    for node in task.nodes[: task.anchor]:
        name = node.outputs[0]
        local = any(
            isinstance(s, Alloc) and s.buffer.name == name for s in walk(builder.program.body)
        )
        if local and node.op != "scalar":
            builder.do("inline", buffer=name)


def nest_loops(stmt: Stmt) -> list[For]:
    """A perfect chain of loops from a statement inwards."""
    chain: list[For] = []
    while isinstance(stmt, For):
        chain.append(stmt)
        if len(stmt.body) != 1:
            break
        stmt = stmt.body[0]
    return chain


def schedule_copies(builder: ScheduleBuilder, target: Target, done: set[str]) -> None:
    """Vectorise and share among threads the top-level nests that compute none of `done`: padding
    copies and other plain elementwise stages."""
    for stmt in root_body(builder.program):
        stores = stores_of((stmt,))
        plain = isinstance(stmt, For) and stmt.kind == "serial" and len(stores) == 1
        if plain and stores[0].buffer not in done and not stores[0].buffer.endswith(".cache"):
            schedule_elementwise(builder, target, [c.var for c in nest_loops(stmt)], 1)


def schedule_elementwise(
    builder: ScheduleBuilder, target: Target, loops: list[str], unroll: int
) -> None:
    """Vector lanes along the last loop, `unroll` vectors an iteration, the rest among threads."""
    last, lanes = loops[-1], target.lanes()
    extent = builder.extent(last)
    outer = loops[:-1]
    width = min(lanes, extent)
    if extent > width:
        block = width * unroll if extent >= width * unroll else width
        builder.split(last, block, f"{last}_o", f"{last}_b")
        builder.split(f"{last}_b", width, f"{last}_u", f"{last}_v")
        builder.do("unroll", loops=(f"{last}_u",))
        outer = [*outer, f"{last}_o"]
        last = f"{last}_v"
    builder.do("vectorize", loops=(last,))
    share(builder, target, outer, f"{loops[0]}_p")


def share(builder: ScheduleBuilder, target: Target, outer: list[str], name: str) -> None:
    """Fuse outer loops (the fewest that give every thread several pieces) and run them parallel."""
    if target.threads == 1 or not outer:
        return
    count, chunks = 0, 1
    while count < len(outer) and (chunks < 8 * target.threads or count == 0):
        chunks *= builder.extent(outer[count])
        count += 1
    if chunks > 1:
        builder.do("parallel", loop=builder.fuse(outer[:count], name))


__all__ = ["ScheduleBuilder", "loop_var"]

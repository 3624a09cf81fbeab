"""A kernel for any size from one for a small size: the output is gone through in strips.

In: a task with sizes known at run time, the same task at a small size, and the program that a
schedule makes of the small one. Out: a program that runs it for every strip of the output.

Most kernels do the same at every place: element (h + 1, w) of a convolution's output reads what
(h, w) reads, a row further on. Where all of a task's expressions are like that along a dimension,
a kernel scheduled, tuned and recorded for 8 rows serves any number of rows: it is run again and
again with its indices moved, and the last strip begins early enough to end where the output ends,
so that a few elements are made twice. Inside, all extents are known; only strides, the number of
strips and where they begin are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.sizes import ceil_div, greatest, is_size, surely_at_most
from autotune.tasks.at_sizes import task_symbols
from autotune.tasks.build import task_computes
from autotune.tasks.shifts import Moves, Shifts, clamped_as_whole, limited_dimensions, shifts_of
from autotune.types import Task, TaskValue

_FAR = 1 << 40
"""More strips than there are."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A dimension of the output, in runs."""

    dimension: int
    extent: int
    length: int
    """Elements of a run, which the kernel was made for."""

    @property
    def variable(self) -> str:
        return f"strip{self.dimension}"

    @property
    def last(self) -> str:
        """Loop of the strip that is run after a whole one by the same thread."""
        return f"last{self.dimension}"

    @property
    def count(self) -> int:
        return ceil_div(self.extent, self.length)

    @property
    def whole(self) -> int:
        """Strips without the one that ends where the output ends and makes elements again."""
        return ceil_div(self.extent - self.length + 1, self.length)

    @property
    def first(self) -> ir.Index:
        """Index at which a run begins."""
        begin = ir.index(self.variable) * self.length
        return begin if self.length == 1 else ir.clamp(begin, 0, self.extent - self.length)


def in_strips(
    program: ir.Program,
    task: Task,
    sample: Task,
    *,
    parallel: bool = False,
    apart: bool = False,
    placed: bool = False,
) -> ir.Program:
    """`program`, made of `sample`, for the sizes of `task`. Raises ScheduleError where the task
    does not do the same at every place. Runs where no strip is longer than the output. `apart`:
    each stage goes through all strips before the next one begins, so that its weights, which are
    too many to stay in a core's own cache, are read once. `placed`: an element is rounded by
    where its strip begins, so that no two threads may make it."""
    strips = strips_of(task, sample)
    shifts = shifts_of(task, tuple(s.dimension for s in strips))
    _check_sizes(task, sample, shifts, strips)
    body = program.body
    for param in program.params:
        moves = shifts.get(param.name, ())
        if any(moves):
            by = tuple(_moved(of_dimension, strips) for of_dimension in moves)
            limited = limited_dimensions(sample, param.name)
            body = _Mover(param, task.value(param.name).type.shape, by, limited).run(body)
    (output,) = task.by_role("output")
    weights = frozenset(value.name for value in task.by_role("constant"))
    spread = _Spread(strips, output.name, weights, parallel, placed)
    body = spread.stages(body) if apart else spread.whole(body)
    used = {s.name for s in task_symbols(task)}
    return dataclasses.replace(
        program,
        params=tuple(_sized(param, task) for param in program.params),
        body=body,
        symbols=tuple(sorted(used)),
    )


def check_strips(task: Task) -> None:
    """Raises ScheduleError where the task is not the same at every place, of whatever sample."""
    (output,) = task.by_role("output")
    shifts_of(task, tuple(d for d, extent in enumerate(output.type.shape) if is_size(extent)))


def strips_of(task: Task, sample: Task) -> tuple[Strip, ...]:
    """The dimensions of the output whose extent a run decides, outermost first."""
    (sized,), (small,) = task.by_role("output"), sample.by_role("output")
    out = []
    for d, (extent, length) in enumerate(zip(sized.type.shape, small.type.shape, strict=True)):
        if is_size(extent):
            out.append(Strip(d, extent, length))
    return tuple(out)


# ------------------------------------------------------------------------------------------- parts


@dataclass(frozen=True, slots=True)
class _Spread:
    """Puts loops over strips around what makes one strip."""

    strips: Sequence[Strip]
    output: str
    weights: frozenset[str]
    parallel: bool
    placed: bool

    def whole(self, body: rewrite.Body) -> rewrite.Body:
        """The body for every strip. Loops outside of everything else that go through the weights,
        a part of the output each, stay outside: then a part of the weights is read once for all
        strips."""
        if len(body) == 1 and isinstance(loop := body[0], ir.For) and loop.kind == "serial":
            stores, loads = list(rewrite.stores_of(loop.body)), list(rewrite.loads_of(loop.body))
            written = {self.output, *(s.buffer for s in stores if not _within(loop, s.buffer))}
            apart = all(
                any(at.reads({loop.var}) for at in store.indices)
                for store in stores
                if store.buffer in written
            )
            reads = any(
                load.buffer in self.weights and any(at.reads({loop.var}) for at in load.indices)
                for load in loads
            )
            if apart and (reads or loop.extent == 1) and not self.parallel:
                return (rewrite.with_body(loop, self.whole(loop.body)),)
        strips = self.strips
        if self.parallel:  # the dimension with most strips outside, which threads share
            strips = sorted(strips, key=lambda s: -(greatest(s.extent) // s.length))
        for number, strip in reversed(list(enumerate(strips))):
            if not self.parallel or number:
                body = (ir.For(strip.variable, strip.count, "serial", body),)
            elif self.placed and strip.length > 1:
                body = (ir.For(strip.variable, strip.whole, "parallel", _with_last(strip, body)),)
            else:
                body = (ir.For(strip.variable, strip.count, "parallel", body),)
        return body

    def stages(self, body: rewrite.Body) -> rewrite.Body:
        """The same stage by stage; what one leaves to another is there of every strip."""
        alloc = body[0]
        if len(body) == 1 and isinstance(alloc, ir.Alloc) and alloc.buffer.scope == "scratch":
            inside = rewrite.map_buffers(alloc.body, {alloc.buffer.name}, self._of_strip)
            return (ir.Alloc(self._of_strips(alloc.buffer), self.stages(inside)),)
        if len(body) == 1:
            return self.whole(body)
        return tuple(
            stmt
            for number, stage in enumerate(body)
            for stmt in self._renamed(self.whole((stage,)), number)
        )

    def _of_strip(self, indices: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
        return (*(ir.index(strip.variable) for strip in self.strips), *indices)

    def _of_strips(self, buffer: ir.Buffer) -> ir.Buffer:
        """One of every strip, one after the other."""
        pairs = zip(buffer.shape, buffer.strides, strict=True)
        stride, strides = max((e * s for e, s in pairs), default=1), list[int]()
        for strip in reversed(self.strips):
            strides.insert(0, stride)
            stride *= strip.count
        counts = tuple(strip.count for strip in self.strips)
        return dataclasses.replace(
            buffer,
            shape=(*counts, *buffer.shape),
            strides=(*strides, *buffer.strides),
            halo=(*((0, 0) for _ in counts), *buffer.halo),
        )

    def _renamed(self, body: rewrite.Body, number: int) -> rewrite.Body:
        """With loops over strips of its own."""
        if not number:
            return body
        loops = [name for s in self.strips for name in (s.variable, s.last)]
        names = {name: f"{name}_{number}" for name in loops}
        env = {old: ir.index(new) for old, new in names.items()}

        def named(stmts: rewrite.Body) -> rewrite.Body:
            return tuple(
                ir.For(names.get(s.var, s.var), s.extent, s.kind, named(s.body))
                if isinstance(s, ir.For)
                else rewrite.with_body(s, named(s.body))
                if isinstance(s, ir.NESTED)
                else s
                for s in stmts
            )

        return rewrite.map_stmt_indices(named(body), lambda i: i.substitute(env))


def _with_last(strip: Strip, body: rewrite.Body) -> rewrite.Body:
    """The body for a whole strip, and for what is left of the output behind the last one."""
    this, after = ir.index(strip.variable), ir.index(strip.last)
    moved = rewrite.map_stmt_indices(body, lambda i: i.substitute({strip.variable: this + after}))
    behind = ir.Bound(this + after - after * _FAR + _FAR, strip.whole, 2 * _FAR)
    there = ir.Bound(this + after, 0, strip.count)
    return (ir.For(strip.last, 2, "serial", (ir.If((behind, there), moved),)),)


def _within(loop: ir.For, buffer: str) -> bool:
    """Whether a buffer lives inside of a loop."""
    return any(isinstance(s, ir.Alloc) and s.buffer.name == buffer for s in ir.walk(loop.body))


def _check_sizes(task: Task, sample: Task, shifts: Shifts, strips: Sequence[Strip]) -> None:
    """Raise ScheduleError where a dimension that does not move, or a sum, is not as long in
    both."""
    for value in task.values:
        small = sample.value(value.name).type.shape
        moves = shifts.get(value.name, ({},) * len(small))
        for extent, length, move in zip(value.type.shape, small, moves, strict=True):
            if not move and extent != length:
                raise ScheduleError(f"{value.name} has a length of {extent} that no strip cuts")
        _check_ends(value, small, moves, strips)
    (computes, numbers), (smalls, known) = task_computes(task), task_computes(sample)
    if numbers != known:
        raise ScheduleError("a number that it computes with depends on sizes")
    for sized, small_one in zip(computes, smalls, strict=True):
        if sized.reduce != small_one.reduce:
            raise ScheduleError("what is summed up depends on sizes")
        if _begins(sized.body) != _begins(small_one.body):
            raise ScheduleError("where it begins to read depends on sizes")


def _begins(value: ir.Value) -> list[int]:
    """Constant parts of an expression's indices."""
    found: list[int] = []

    def seen(index: ir.Index) -> ir.Index:
        limited = clamped_as_whole(index)
        found.append(limited.index.const if limited else index.const)
        return index

    rewrite.map_indices(value, seen)
    return found


def _check_ends(
    value: TaskValue, small: tuple[int, ...], moves: Sequence[Moves], strips: Sequence[Strip]
) -> None:
    """Raise ScheduleError where the last strip may read or write behind a tensor."""
    for extent, length, move in zip(value.type.shape, small, moves, strict=True):
        far = sum(move.get(s.dimension, 0) * (s.extent - s.length) for s in strips)
        if not surely_at_most(far + length, extent):
            raise ScheduleError(f"the last {length} of {value.name} may end beyond {extent}")


def _moved(moves: Moves, strips: Sequence[Strip]) -> ir.Index:
    out = ir.Index()
    for strip in strips:
        out = out + strip.first * moves.get(strip.dimension, 0)
    return out


@dataclass(frozen=True, slots=True)
class _Mover:
    """Moves what reads or writes a param to a strip."""

    param: ir.Buffer
    shape: tuple[int, ...]
    """As the task has it."""
    by: tuple[ir.Index, ...]
    """Elements, per dimension."""
    limited: frozenset[int]
    """Dimensions in which the task limits indices."""

    def run(self, body: rewrite.Body) -> rewrite.Body:
        return self._prefetches(rewrite.map_buffers(body, {self.param.name}, self._places))

    def _places(self, indices: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
        return tuple(self._place(d, i) for d, i in enumerate(indices))

    def _place(self, dimension: int, at: ir.Index) -> ir.Index:
        """A limit is that of the whole dimension. Where a schedule found that there is nothing to
        limit, the element is one of the sample's, and so one of the task's; but it may have found
        that an index is beyond the sample's first or last element, and taken that."""
        by, limited = self.by[dimension], clamped_as_whole(at)
        if by == ir.Index():
            return at
        if limited is None and dimension in self.limited and not at.vars():
            raise ScheduleError(f"{self.param.name} is read at the border of a small task")
        if limited is None:
            return at + by
        if (limited.lo, limited.hi) != (0, self.param.shape[dimension] - 1):
            raise ScheduleError(f"{self.param.name} is read within limits of its own")
        return ir.clamp(limited.index + by, 0, self.shape[dimension] - 1)

    def _prefetches(self, stmts: rewrite.Body) -> rewrite.Body:
        out: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.Prefetch) and stmt.buffer == self.param.name:
                out.append(ir.Prefetch(stmt.buffer, self._places(stmt.indices)))
            elif isinstance(stmt, ir.NESTED):
                out.append(rewrite.with_body(stmt, self._prefetches(stmt.body)))
            else:
                out.append(stmt)
        return tuple(out)


def _sized(param: ir.Buffer, task: Task) -> ir.Buffer:
    """The param as the task has it; packed weights stay as they are packed."""
    value = task.value(param.name)
    if value.role == "constant":
        return param
    return dataclasses.replace(
        param,
        shape=value.type.shape,
        strides=value.layout.strides,
        halo=value.layout.halo,
    )

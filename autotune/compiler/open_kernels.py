"""Kernels that serve all sizes. In: a task of open sizes. Out: programs, each with what a call of
it is predicted to cost at any size.

A kernel is scheduled for small outputs, by the rules that schedule any task, and run in strips
(`open_strips`): several, of which the cheapest at a set of sizes is called. What is not the same
at every place takes the schedule of representative sizes, with its loops as long as a call says.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import cost_model
from autotune.compiler.choose import recorded
from autotune.compiler.shared_packings import Packing
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT
from autotune.errors import AutotuneError, UndecidedError
from autotune.machine import Machine
from autotune.program.ir import For, Program, walk
from autotune.schedule.base import Schedule, Step, apply_schedule
from autotune.schedule.loops.nest import Split, Vectorize
from autotune.schedule.memory.prefetch import PrefetchNext
from autotune.sizes import ceil_div, is_size, surely_at_most, symbol, symbols_of, value_at
from autotune.target import Target
from autotune.tasks.at_sizes import deciding_lows, task_at, task_from, task_symbols
from autotune.tasks.build import build_program
from autotune.tasks.joined import as_few
from autotune.tasks.samples import sample_values, task_of_values
from autotune.types import Task
from search_spaces.base import PLAIN, Rule
from search_spaces.params import Config
from search_spaces.rules import rules_for

Sizes = Mapping[str, int]
MOST_LIMITS = 4
"""Questions about sizes that a kernel on loops of any length may leave to its least sizes."""
ODD_SIZES = (251, 241, 239), (61, 59, 53), (31, 29, 23)
"""Sizes of symbols, in turn, for schedules that must do for any."""


class NoOpenKernelError(AutotuneError):
    """A task that has no kernel for all sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenKernel:
    """A program for all sizes for which it does: `extents` are at least `lengths`."""

    program: Program
    schedule: Schedule
    extents: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    pieces: int = 1
    """Strips, or blocks, that a call goes through."""
    seconds: float = 0.0
    """Predicted, of one piece."""
    plain: bool = False
    """Whether it takes the task's loops as they are, which is slow."""
    sample: Task | None = None
    """The task of fixed sizes that its schedule is of, by which a log knows it; None where only
    its own rule can give the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedKernel:
    """A kernel that is not written yet; names are those of an OpenKernel."""

    write: Callable[[], tuple[Program, Schedule]]
    """Raises anything where it cannot."""
    extents: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    pieces: int = 1
    seconds: float = 0.0
    sample: Task | None = None
    packing: Packing = ()
    """How its weights lie."""
    measured_s: float | None = None
    """Seconds of one piece that a record has."""
    instead: Iterator[TriedKernel] = field(default_factory=lambda: iter(()), compare=False)
    """Others for the same sizes, where this one cannot be built."""

    def written(self) -> OpenKernel:
        program, schedule = self.write()
        return OpenKernel(
            program=program,
            schedule=schedule,
            extents=self.extents,
            lengths=self.lengths,
            pieces=self.pieces,
            seconds=self.seconds,
            sample=self.sample,
        )


def calls_at(kernel: OpenKernel | TriedKernel, values: Sizes) -> int:
    """Pieces that a call goes through at these sizes."""
    return int(value_at(kernel.pieces, values))


def covers(kernel: OpenKernel | TriedKernel) -> bool:
    """Whether it serves all sizes."""
    return all(map(surely_at_most, kernel.lengths, kernel.extents))


def does_more(kernel: OpenKernel, others: Iterable[OpenKernel]) -> bool:
    """Whether it serves sizes that none of the others does, of kernels on loops of any length."""
    least = dict(zip(kernel.extents, kernel.lengths, strict=True))
    return not any(
        all(least.get(e, 0) >= n for e, n in zip(other.extents, other.lengths, strict=True))
        for other in others
    )


def pieces_of(extents: Iterable[int], lengths: Iterable[int]) -> int:
    """Strips, or blocks, of these lengths."""
    pairs = zip(extents, lengths, strict=True)
    return math.prod(ceil_div(extent, length) for extent, length in pairs)


def block_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> Iterator[TriedKernel]:
    """Kernels each of which does for any sizes, in blocks of different lengths."""
    rule = next(rules_for(task_at(task, sizes), machine.target))
    blocks = rule.open_blocks(task, machine.target)
    if blocks is None:
        return
    for settled in blocks.tried:
        try:
            extents = [blocks.extents[param] for param in settled]
            values = sample_values(extents, [*settled.values()], sizes)
            small = task_of_values(task, values, sizes)
            config = cost_model.default(small, machine, rule, settled)
            seconds = cost_model.predict(small, machine, [config], rule).seconds[0]
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
            continue
        lengths = [config.number(param) for param in blocks.extents]
        pieces = blocks.times * pieces_of(blocks.extents.values(), lengths)
        yield TriedKernel(
            write=functools.partial(by_rule, task, machine, rule, config),
            pieces=pieces,
            seconds=float(seconds) / value_at(pieces, cast(Mapping[str, int], values)),
        )


def by_rule(task: Task, machine: Machine, rule: Rule, config: Config) -> tuple[Program, Schedule]:
    """What a rule makes of a task of open sizes."""
    made = rule.write(task, machine.target, config)
    return with_symbols(made.program, task), made.schedule


def with_symbols(program: Program, task: Task) -> Program:
    """The program with the sizes that the task depends on."""
    symbols = tuple(sorted(s.name for s in task_symbols(task)))
    return dataclasses.replace(program, symbols=symbols)


def whole_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str], log: LogStore | None = None
) -> Iterator[OpenKernel]:
    """Kernels on loops of any length, the better ones first, by the schedules of single sizes:
    those that a log knows, then of odd sizes (no loop of them is as long as a vector by chance),
    of representative ones, and plain loops. Some do from certain sizes on only."""
    task = as_few(task)
    there = task_at(task, sizes)
    known = recorded(there, machine.target, log, said) if log else ()
    for choice in known:
        kernel = _on_loops(task, choice.schedule, machine.target, said)
        if kernel is not None:
            yield dataclasses.replace(kernel, sample=there)
    samples = [*({**sizes, **odd} for odd in odd_sizes(task)), sizes]
    for plain in (False, True):
        for there in (task_at(task, sample) for sample in samples):
            for rule in rules_for(there, machine.target):
                if (rule.name == PLAIN) == plain:
                    yield from _default_of(task, there, machine, rule, said)


def _default_of(
    task: Task, there: Task, machine: Machine, rule: Rule, said: list[str]
) -> Iterator[OpenKernel]:
    """The kernel of a rule's default at some sizes, if there is one."""
    try:
        schedule = rule.schedule(there, machine.target, cost_model.default(there, machine, rule))
    except NO_DEFECT:
        raise
    except Exception as error:
        said.append(str(error))
        return
    kernel = _on_loops(task, schedule, machine.target, said)
    if kernel is not None:
        yield dataclasses.replace(kernel, sample=there, plain=rule.name == PLAIN)


def _on_loops(
    task: Task, schedule: Schedule, target: Target, said: list[str]
) -> OpenKernel | None:
    """A schedule of some sizes on loops of any length, for all sizes that it does for. Without
    what it asks for ahead of time, whose distances are those sizes'."""
    lows: dict[str, int] = {}
    schedule = tuple(step for step in schedule if not isinstance(step, PrefetchNext))
    for _ in range(MOST_LIMITS):
        try:
            naive = build_program(task_from(task, lows))
            program = apply_schedule(naive, schedule)
            schedule = _in_vectors(schedule, program, target.lanes())
            program = apply_schedule(naive, schedule)
        except NO_DEFECT:
            raise
        except Exception as error:
            more = deciding_lows(error) if isinstance(error, UndecidedError) else {}
            if not more:
                said.append(str(error))
                return None
            lows |= more
        else:
            limited = sorted((s for s in task_symbols(task) if s.name in lows), key=str)
            return OpenKernel(
                program=with_symbols(program, task),
                schedule=schedule,
                extents=tuple(symbol(s.name, s.low, s.high) for s in limited),
                lengths=tuple(lows[s.name] for s in limited),
            )
    return None


def _in_vectors(schedule: Schedule, program: Program, lanes: int) -> Schedule:
    """The schedule, whose program is given, with loops that the size it was made for has in one
    vector, and that a call makes longer, in vectors: the last one is masked."""
    loops = (stmt for stmt in walk(program.body) if isinstance(stmt, For))
    longer = {loop.var for loop in loops if loop.kind == "vector" and is_size(loop.extent)}
    if not longer:
        return schedule
    out: list[Step] = []
    for step in schedule:
        if not isinstance(step, Vectorize):
            out.append(step)
            continue
        again = {loop: f"{loop}.lanes" for loop in step.loops if loop in longer}
        out += [
            Split(loop=loop, factor=lanes, outer=f"{loop}.vectors", inner=inner)
            for loop, inner in again.items()
        ]
        out.append(Vectorize(loops=tuple(again.get(loop, loop) for loop in step.loops)))
    return tuple(out)


def odd_sizes(task: Task) -> Iterator[dict[str, int]]:
    """Sizes that are no multiples of anything, as far as ranges allow: long ones, then shorter
    ones; of all symbols, then of all but those of the outermost dimension, whose rows need not be
    made together, and so on up to the innermost."""
    there = sorted(task_symbols(task), key=lambda s: s.name)
    widest = max((v.type.shape for v in task.values), key=len)
    outer = [sorted(symbols_of(extent), key=lambda s: s.name) for extent in widest]
    outer = [symbols for symbols in outer if symbols][:-1]
    for primes in ODD_SIZES:
        every = zip(there, itertools.cycle(primes), strict=False)
        sizes = {s.name: _in_range(size, s.low, s.high) for s, size in every}
        yield dict(sizes)
        for symbols in outer:
            sizes |= {s.name: s.low for s in symbols}
            yield dict(sizes)


def _in_range(size: int, low: int, high: int) -> int:
    return max(low | 1, min(size, high - 1 + high % 2))

"""Kernels that serve all sizes. In: a task of open sizes. Out: programs, each with what a call of
it is predicted to cost at any size.

A kernel is scheduled for small outputs, by the rules that schedule any task, and run in strips
(`autotune.tasks.strips`): several, of which the cheapest at a set of sizes is called. What is not
the same at every place takes the schedule of representative sizes, with its loops as long as a
call says.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import cost_model
from autotune.compiler.choose import Candidate, recorded
from autotune.compiler.shared_packings import Chosen, Packing, packing_of, shared_choices
from autotune.compiler.strip_lengths import strip_lengths, weight_bytes
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT
from autotune.errors import AutotuneError, UndecidedError
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule.base import Schedule, Scheduled, apply_schedule
from autotune.schedule.memory.prefetch import PrefetchNext
from autotune.sizes import ceil_div, surely_at_most, symbol, symbols_of, value_at
from autotune.tasks.at_sizes import deciding_lows, task_at, task_from, task_symbols
from autotune.tasks.build import build_program
from autotune.tasks.merged import merged
from autotune.tasks.samples import open_extents, sample_task, sample_values, task_of_values
from autotune.tasks.strips import in_strips
from autotune.types import Task
from search_spaces.algorithms.base import DIRECT, algorithm_of
from search_spaces.base import PLAIN, Rule
from search_spaces.params import Config
from search_spaces.rules import rules_for

Sizes = Mapping[str, int]
STRIPS = 12
"""Kernels of a task, for strips of different lengths."""
STRIPS_OF_ONE = 20
"""The same where a single dimension is open."""
MOST_LIMITS = 4
"""Questions about sizes that a kernel on loops of any length may leave to its least sizes."""
ODD_SIZES = (251, 241, 239), (61, 59, 53), (31, 29, 23)
"""Sizes of symbols, in turn, for schedules that must do for any."""
STRIPS_OF_SOURCE = 3
"""The same in C, whose kernels are long texts that a compiler of the user's reads."""


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
    packing: Packing = ()
    """How its weights lie."""
    measured_s: float | None = None
    """Seconds of one piece that a record has."""

    def calls_at(self, values: Sizes) -> int:
        """Pieces that a call goes through at these sizes."""
        return int(value_at(self.pieces, values))


def strip_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str], log: LogStore | None = None
) -> tuple[OpenKernel, ...]:
    """Kernels of a task, one of which does for any sizes; none where the task is not the same at
    every place. `sizes`: representative ones; `said`: gets what was in the way; `log`: schedules
    come from it where it knows their samples, or ones like them."""
    found = tuple(_in_strips(merged(task), machine, sizes, said, log))
    return _on_one_scale(found) if any(map(covers, found)) else ()


def _on_one_scale(kernels: tuple[OpenKernel, ...]) -> tuple[OpenKernel, ...]:
    """Measured seconds where there are records, and elsewhere predictions that are off by as much
    as those of the measured ones: the least of them decides what a call runs."""
    ratios = [k.measured_s / k.seconds for k in kernels if k.measured_s and k.seconds]
    off = statistics.median(ratios) if ratios else 1.0
    return tuple(
        dataclasses.replace(kernel, seconds=kernel.measured_s or kernel.seconds * off)
        for kernel in kernels
    )


def covers(kernel: OpenKernel) -> bool:
    """Whether it serves all sizes."""
    return all(map(surely_at_most, kernel.lengths, kernel.extents))


def does_more(kernel: OpenKernel, others: Iterable[OpenKernel]) -> bool:
    """Whether it serves sizes that none of the others does, of kernels on loops of any length."""
    least = dict(zip(kernel.extents, kernel.lengths, strict=True))
    return not any(
        all(least.get(e, 0) >= n for e, n in zip(other.extents, other.lengths, strict=True))
        for other in others
    )


def _in_strips(
    task: Task, machine: Machine, sizes: Sizes, said: list[str], log: LogStore | None
) -> Iterator[OpenKernel]:
    extents = open_extents(task)
    samples = _samples(task, machine, sizes, said)
    shared = shared_choices(task, samples, machine, said)
    for lengths, small in samples:
        try:
            kernel = next(
                _of_sample(task, small, machine, said, log=log, shared=shared.get(lengths))
            )
        except StopIteration:
            continue
        yield dataclasses.replace(
            kernel, extents=extents, lengths=lengths, pieces=_pieces(extents, lengths)
        )


def _samples(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> list[tuple[tuple[int, ...], Task]]:
    """Lengths of strips, and the task of that size."""
    count = STRIPS_OF_ONE if len(open_extents(task)) == 1 else STRIPS
    count = STRIPS_OF_SOURCE if machine.target.is_source else count
    out = []
    for lengths in strip_lengths(task, count, machine):
        try:
            out.append((lengths, sample_task(task, lengths, sizes)))
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
    return out


def _of_sample(
    task: Task,
    small: Task,
    machine: Machine,
    said: list[str],
    *,
    log: LogStore | None,
    shared: Chosen | None,
) -> Iterator[OpenKernel]:
    """Kernels by the schedules that a sample may have, the best one first."""
    for rule, choice in _schedules(small, machine, said, log, shared):
        try:
            made = choice.program or apply_schedule(build_program(small), choice.schedule)
            program = in_strips(
                made, task, small,
                parallel=machine.target.threads > 1,
                apart=weight_bytes(task) > machine.cache_bytes(2),
                placed=algorithm_of(choice.schedule)[1] != DIRECT,
            )  # fmt: skip
            assert choice.config is not None  # it is a record's or a rule's
            seconds = cost_model.predict(small, machine, [choice.config], rule).seconds
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
            continue
        yield OpenKernel(
            program=program,
            schedule=choice.schedule,
            seconds=float(seconds[0]),
            sample=small,
            packing=packing_of(rule, choice.config),
            measured_s=choice.measured_s,
        )


def _schedules(
    small: Task, machine: Machine, said: list[str], log: LogStore | None, shared: Chosen | None
) -> Iterator[tuple[Rule, Candidate]]:
    """What a log knows of a task of fixed sizes, then its default: first the one whose weights
    other kernels read, too."""
    if log is not None:
        first = next(rules_for(small, machine.target))
        yield from ((first, known) for known in recorded(small, machine.target, log, said))
    if shared is not None:
        try:
            made = shared.rule.write(small, machine.target, shared.config)
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
        else:
            yield shared.rule, _default_candidate(made, shared.config)
    rule, config, made = cost_model.default_of(small, machine)
    yield rule, _default_candidate(made, config)


def _default_candidate(made: Scheduled, config: Config) -> Candidate:
    return Candidate(schedule=made.schedule, source="default", program=made.program, config=config)


def _pieces(extents: Iterable[int], lengths: Iterable[int]) -> int:
    pairs = zip(extents, lengths, strict=True)
    return math.prod(ceil_div(extent, length) for extent, length in pairs)


def block_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> Iterator[OpenKernel]:
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
            made = rule.write(task, machine.target, config)
            seconds = cost_model.predict(small, machine, [config], rule).seconds[0]
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
            continue
        lengths = [config.number(param) for param in blocks.extents]
        pieces = blocks.times * _pieces(blocks.extents.values(), lengths)
        yield OpenKernel(
            program=with_symbols(made.program, task),
            schedule=made.schedule,
            pieces=pieces,
            seconds=float(seconds) / value_at(pieces, cast(Mapping[str, int], values)),
        )


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
    task = merged(task)
    there = task_at(task, sizes)
    known = recorded(there, machine.target, log, said) if log else ()
    for choice in known:
        kernel = _on_loops(task, choice.schedule, said)
        if kernel is not None:
            yield dataclasses.replace(kernel, sample=there)
    samples = [*({**sizes, **odd} for odd in odd_sizes(task)), sizes]
    for plain in (False, True):
        for there in (task_at(task, sample) for sample in samples):
            for rule in rules_for(there, machine.target):
                if (rule.name == PLAIN) == plain:
                    yield from _by_rule(task, there, machine, rule, said)


def _by_rule(
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
    kernel = _on_loops(task, schedule, said)
    if kernel is not None:
        yield dataclasses.replace(kernel, sample=there, plain=rule.name == PLAIN)


def _on_loops(task: Task, schedule: Schedule, said: list[str]) -> OpenKernel | None:
    """A schedule of some sizes on loops of any length, for all sizes that it does for. Without
    what it asks for ahead of time, whose distances are those sizes'."""
    lows: dict[str, int] = {}
    schedule = tuple(step for step in schedule if not isinstance(step, PrefetchNext))
    for _ in range(MOST_LIMITS):
        try:
            program = apply_schedule(build_program(task_from(task, lows)), schedule)
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

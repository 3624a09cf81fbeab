"""Kernels that go through outputs of any size in strips. In: a task of open sizes that does the
same at every place. Out: a kernel for each length of strips that may be worth one, with what a
strip is predicted to take; none is written yet, since only few of them are kept.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import cost_model
from autotune.compiler.choose import Candidate, recorded
from autotune.compiler.open_kernels import Sizes, TriedKernel, covers, pieces_of
from autotune.compiler.shared_packings import Chosen, packing_of, shared_choices
from autotune.compiler.strip_lengths import place_s, strip_lengths, weight_bytes
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule.base import Schedule, apply_schedule
from autotune.tasks.apart import in_places, together
from autotune.tasks.build import build_program
from autotune.tasks.joined import as_few
from autotune.tasks.samples import open_extents, sample_task
from autotune.tasks.strips import check_strips, in_strips
from autotune.types import Task
from search_spaces.algorithms.base import DIRECT, algorithm_of
from search_spaces.base import Rule
from search_spaces.params import Config
from search_spaces.rules import rule_for, rules_for

STRIPS = 12
"""Kernels of a task, for strips of different lengths."""
STRIPS_OF_ONE = 20
"""The same where a single dimension is open."""
UNSURE = 1.1
"""What a kernel that was not measured has to be better by than one that was: of several that are
predicted the least is likely to be one that is predicted too low."""
STRIPS_OF_SOURCE = 3
"""The same in C, whose kernels are long texts that a compiler of the user's reads."""
TABLE_SHARE = 0.003
"""Share of the work at a place that its entry in a table of places may take (chosen)."""
_ENTRY_BYTES = 16
"""An entry, written and read."""

Lengths = tuple[int, ...]


def strip_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str], log: LogStore | None = None
) -> tuple[TriedKernel, ...]:
    """Kernels of a task, one of which does for any sizes; none where the task is not the same at
    every place. `sizes`: representative ones; `said`: gets what was in the way; `log`: schedules
    come from it where it knows their samples, or ones like them."""
    task, whole = as_few(task), None
    found = together(task)
    if found is not None and _pays_a_table(found, machine):
        task, whole = found, task
    try:
        check_strips(task)
    except NO_DEFECT:
        raise
    except Exception as error:
        said.append(str(error))
        return ()
    samples = _samples(task, machine, sizes, said)
    shared = shared_choices(task, samples, machine, said)
    made = []
    for lengths, small in samples:
        strips = _Strips(task, lengths, small, machine, said, whole)
        several = strips.tried(log, shared.get(lengths))
        first = next(several, None)
        if first is not None:
            made.append(dataclasses.replace(first, instead=several))
    return _on_one_scale(made) if any(map(covers, made)) else ()


def _pays_a_table(task: Task, machine: Machine) -> bool:
    """Whether there is so much to do at a place that a table of them costs nothing beside it."""
    entry_s = float(machine.stream_s(_ENTRY_BYTES, machine.cache_bytes(2)))
    return entry_s < TABLE_SHARE * place_s(task, machine)


def _on_one_scale(kernels: list[TriedKernel]) -> tuple[TriedKernel, ...]:
    """Measured seconds where there are records, and elsewhere predictions that are off by as much
    as those of the measured ones: the least of them decides what a call runs."""
    ratios = [k.measured_s / k.seconds for k in kernels if k.measured_s and k.seconds]
    off = statistics.median(ratios) * UNSURE if ratios else 1.0

    def scaled(kernel: TriedKernel) -> TriedKernel:
        seconds = kernel.measured_s or kernel.seconds * off
        return dataclasses.replace(kernel, seconds=seconds, instead=map(scaled, kernel.instead))

    return tuple(map(scaled, kernels))


def _samples(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> list[tuple[Lengths, Task]]:
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


@dataclass(frozen=True, slots=True)
class _SampleConfig:
    """How the sample's program is made: by a rule's config, or as a candidate says."""

    rule: Rule
    config: Config
    known: Candidate | None = None


@dataclass(frozen=True, slots=True)
class _Strips:
    """Kernels of a task in strips of these lengths, by the schedules of a sample."""

    task: Task
    lengths: Lengths
    small: Task
    machine: Machine
    said: list[str]
    whole: Task | None
    """The task itself, where this one has its places together."""

    def tried(self, log: LogStore | None, shared: Chosen | None) -> Iterator[TriedKernel]:
        """The best one first."""
        extents = open_extents(self.task)
        for choice in self._choices(log, shared):
            try:
                predicted = cost_model.predict(
                    self.small, self.machine, [choice.config], choice.rule
                )
            except NO_DEFECT:
                raise
            except Exception as error:
                self.said.append(str(error))
                continue
            yield TriedKernel(
                write=functools.partial(self._write, choice),
                extents=extents,
                lengths=self.lengths,
                pieces=pieces_of(extents, self.lengths),
                seconds=float(predicted.seconds[0]),
                sample=self.small,
                packing=packing_of(choice.rule, choice.config),
                measured_s=choice.known.measured_s if choice.known else None,
            )

    def _choices(self, log: LogStore | None, shared: Chosen | None) -> Iterator[_SampleConfig]:
        """What a log knows of the sample, then its default: first the one whose weights other
        kernels read, too; last one that is surely written."""
        small, machine = self.small, self.machine
        if log is not None:
            first = next(rules_for(small, machine.target))
            for known in recorded(small, machine.target, log, self.said):
                assert known.config is not None  # it is a record's
                yield _SampleConfig(first, known.config, known)
        if shared is not None:
            yield _SampleConfig(shared.rule, shared.config)
        else:
            yield from self._default()
        rule, config, made = cost_model.default_of(small, machine)
        source = Candidate(schedule=made.schedule, source="default", program=made.program)
        yield _SampleConfig(rule, config, source)

    def _default(self) -> Iterator[_SampleConfig]:
        rule = rule_for(self.small, self.machine.target)
        try:
            yield _SampleConfig(rule, cost_model.default(self.small, self.machine, rule))
        except NO_DEFECT:
            raise
        except Exception as error:
            self.said.append(str(error))

    def _write(self, choice: _SampleConfig) -> tuple[Program, Schedule]:
        task, small, machine = self.task, self.small, self.machine
        if choice.known is None:
            made = choice.rule.write(small, machine.target, choice.config)
            program, schedule = made.program, made.schedule
        else:
            schedule = choice.known.schedule
            program = choice.known.program or apply_schedule(build_program(small), schedule)
        placed = algorithm_of(schedule)[1] != DIRECT
        parallel, apart = machine.target.threads > 1, weight_bytes(task) > machine.cache_bytes(2)
        strips = in_strips(program, task, small, parallel=parallel, apart=apart, placed=placed)
        return (in_places(strips, self.whole) if self.whole else strips), schedule

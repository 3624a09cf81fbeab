"""The kernels of a task of open sizes, built. In: the task, a machine, representative sizes. Out:
kernels with their code, at least one for any sizes in the range.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.compiler.kept_kernels import kept_kernels
from autotune.compiler.open_emission import with_code
from autotune.compiler.open_kernels import (
    NoOpenKernelError,
    OpenKernel,
    TriedKernel,
    block_kernels,
    covers,
    does_more,
    whole_kernels,
)
from autotune.compiler.open_lines import BuiltKernel, written
from autotune.compiler.open_strips import strip_kernels
from autotune.compiler.open_tiles import tile_kernels
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT
from autotune.machine import Machine
from autotune.runtime.open_image import Unit
from autotune.types import Task

LAST_RESORT_S = 1.0
"""Seconds that a kernel is taken to need which is for sizes that no other one serves."""


def built_kernels(
    task: Task,
    machine: Machine,
    sizes: Mapping[str, int],
    units: tuple[Unit, ...],
    log: LogStore | None,
    *,
    coded: bool = True,
) -> list[BuiltKernel]:
    """A task's kernels with their code, or else the texts of it. Raises NoOpenKernelError where
    none can be built."""
    build = _Build(task, machine, units, coded)
    tried = sampled_kernels(task, machine, sizes, build.said, log)
    kernels = build.worthy(tried)
    if kernels and not any(covers(each.kernel) for each in kernels):
        # Those for the least sizes could not be built: there, and only there, loops as long as a
        # call says do.
        rest = (
            dataclasses.replace(kernel, seconds=LAST_RESORT_S)
            for kernel in whole_kernels(task, machine, sizes, build.said)
        )
        kernels += build.whole(rest)
        kernels = kernels if covers(kernels[-1].kernel) else []
    kernels = kernels or build.worthy(list(block_kernels(task, machine, sizes, build.said)))
    kernels = kernels or build.whole(whole_kernels(task, machine, sizes, build.said, log))
    if not any(covers(each.kernel) for each in kernels):
        raise NoOpenKernelError(f"{task.op}: {build.said[0]}")
    return kernels


def sampled_kernels(
    task: Task,
    machine: Machine,
    sizes: Mapping[str, int],
    said: list[str],
    log: LogStore | None = None,
) -> list[TriedKernel]:
    """Kernels in strips, and those over any number of tiles that gain over them."""
    strips = strip_kernels(task, machine, sizes, said, log)
    return [*strips, *(tile_kernels(task, machine, sizes, strips, said) if strips else ())]


@dataclass(frozen=True, slots=True)
class _Build:
    """Builds kernels of a task, under numbers that go up."""

    task: Task
    machine: Machine
    units: tuple[Unit, ...]
    coded: bool
    """Whether texts are made code of at once."""
    said: list[str] = field(default_factory=list)
    """What was in the way."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def worthy(self, tried: Sequence[TriedKernel]) -> list[BuiltKernel]:
        """Those of the kernels that are worth their code, of those that can be built."""
        left, there = list(tried), dict[int, list[BuiltKernel]]()
        while True:
            kept = kept_kernels(left)
            for kernel in kept:
                there[id(kernel)] = there.get(id(kernel)) or self._first_of(kernel)
                if not there[id(kernel)]:
                    left.remove(kernel)
                    break
            else:
                return [built for kernel in kept for built in there[id(kernel)]]

    def _first_of(self, kernel: TriedKernel) -> list[BuiltKernel]:
        """The kernel, or else what there is instead of it."""
        for each in itertools.chain([kernel], kernel.instead):
            try:
                found = self._built(each.written())
            except NO_DEFECT:
                raise
            except Exception as error:
                self.said.append(str(error))
            else:
                if found:
                    return found
        return []

    def whole(self, kernels: Iterable[OpenKernel]) -> list[BuiltKernel]:
        """Those that do more than the ones before them, up to one that serves all sizes."""
        there: list[BuiltKernel] = []
        for kernel in kernels:
            if does_more(kernel, (each.kernel for each in there)):
                there += self._built(kernel)
                if there and covers(there[-1].kernel):
                    break
        return there

    def _built(self, kernel: OpenKernel) -> list[BuiltKernel]:
        target = self.machine.target
        try:
            made = written(self.task, next(self.numbers), kernel, target, self.units)
            return with_code([made], target) if self.coded else [made]
        except NO_DEFECT:
            raise
        except Exception as error:
            self.said.append(str(error))
            return []

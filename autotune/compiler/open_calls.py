"""The calls of a partition of open sizes, in order. In: its linker and kernels. Out: for each call
the lines of the table that it may take, those that repeat calls among them, and their objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.codegen import backend_for
from autotune.compiler.open_lines import BuiltKernel, OpenLinker, TableLine, of_units
from autotune.placement.halo_clearing import halo_program, halo_symbol
from autotune.placement.types import Partition, Repeat
from autotune.sizes import surely_at_most
from autotune.target import Target
from autotune.types import Task


@dataclass(slots=True)
class CallLines:
    """Lines in the making."""

    linker: OpenLinker
    partition: Partition
    kernels: Mapping[Task, Sequence[BuiltKernel]]
    names: tuple[str, ...]
    """Names of the units."""
    target: Target
    lines: list[Sequence[TableLine]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """By lines, the number of the call that they are of, or -1."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """By symbol."""
    _begun: list[tuple[Repeat, int]] = field(default_factory=list)
    """Repeats around the next call, and the number of the first line of each."""
    _cleared: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Fills `lines`, their `numbers` and `objects`."""
        for number, call in enumerate(self.partition.calls):
            for repeat in self.partition.repeats:
                if repeat.first == number:
                    self._begin(repeat)
            self._clear(number, number)
            self._more(self.linker.lines(call, self.kernels[call.task]), number)
            self.objects.update((made.symbol, made.code) for made in self.kernels[call.task])
            while self._begun and self._begun[-1][0].last == number:
                self._end()

    def _more(self, lines: Sequence[TableLine], number: int = -1) -> None:
        self.lines.append(lines)
        self.numbers.append(number)

    def _begin(self, repeat: Repeat) -> None:
        """Halos that live through all trips are zeroed before the first one."""
        self._clear(repeat.first, repeat.last)
        if _may_be_none(repeat):
            self._more(())  # known when the last line is
        self._more([self.linker.begun(repeat)])
        self._begun.append((repeat, len(self.lines)))

    def _end(self) -> None:
        repeat, first = self._begun.pop()
        again = self.linker.again(repeat, len(self.lines) - first, len(self._begun))
        for line in again:
            self._more([line])
        if _may_be_none(repeat):
            self.lines[first - 2] = [self.linker.skipped(repeat, len(self.lines) - first + 1)]

    def _clear(self, first: int, last: int) -> None:
        """Zeroes the halos of what begins at one call and lives up to another."""
        for storage, line in self.linker.halos(first, last):
            if storage.name in self._cleared:
                continue
            self._cleared.add(storage.name)
            self._more([line])
            symbol = halo_symbol(storage)
            if symbol not in self.objects:
                program = of_units(halo_program(storage, self.target), self.names)
                built = backend_for(self.target).build(program, self.target, symbol)
                self.objects[symbol] = built.code


def _may_be_none(repeat: Repeat) -> bool:
    """Whether there are sizes at which its calls are not made."""
    return not surely_at_most(1, repeat.trips)

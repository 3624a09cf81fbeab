"""The choice of each task's algorithm in a model whose weights share a cache.

In: for each task, options of different weights and speeds. Out: one option of each.

What a run touches decides how fast all of it comes (`Machine.among`): the bytes of one task's
weights slow every other task down. The least total is looked for as a Lagrange multiplier would
have it (Everett 1963): bytes have a price, at which each task chooses by itself; prices and
footprints are scanned, and from the best choice it goes downhill, a task at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PRICES = 24
"""Prices of a byte that are tried at each footprint."""

Table = npt.NDArray[np.float64]
Choice = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to compute a task."""

    nbytes: int
    """Bytes of the weights of a call, as they are packed for it."""
    seconds: tuple[float, ...]
    """Time of a call, at each of the footprints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """A task, how often a run calls it (each time with weights of its own), and its options."""

    count: int
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All tasks of a model. `footprints`: bytes that a run touches, ascending, for which seconds
    are known; between them these are straight over the logarithm. `fixed_bytes`: what a run
    touches whatever is chosen."""

    tasks: tuple[Calls, ...]
    footprints: tuple[float, ...]
    fixed_bytes: float = 0.0

    def total_s(self, choice: Sequence[int]) -> float:
        """Seconds of a run, one option of each task."""
        return float(_Tables.of(self).totals(np.array([choice], np.intp))[0])

    def footprint(self, choice: Sequence[int]) -> float:
        """Bytes that a run touches."""
        return float(_Tables.of(self).footprints(np.array([choice], np.intp))[0])

    def alone(self) -> tuple[int, ...]:
        """What each task takes that sees nothing of the others: the fastest at the largest
        footprint."""
        late = ([option.seconds[-1] for option in task.options] for task in self.tasks)
        return tuple(times.index(min(times)) for times in late)

    def cheapest(self) -> tuple[int, ...]:
        """The options of least total, as far as prices and single changes find them; never more
        than any task's own favourites would take."""
        tables = _Tables.of(self)
        tried = np.concatenate([tables.priced(), np.array([self.alone()], np.intp)])
        best = tried[int(np.argmin(tables.totals(tried)))]
        return tuple(map(int, tables.downhill(best)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """The same as arrays: a row per task, a column per option, padded with what nobody takes."""

    nbytes: Table
    """Bytes of the weights of all calls of a task."""
    seconds: Table
    """Time of all calls of a task; the last axis is that of footprints."""
    at: Table
    """Logarithms of the footprints."""
    fixed: float

    @staticmethod
    def of(choices: Choices) -> _Tables:
        most = max((len(t.options) for t in choices.tasks), default=1)
        nbytes = np.zeros((len(choices.tasks), most))
        seconds = np.full((len(choices.tasks), most, len(choices.footprints)), np.inf)
        for row, task in enumerate(choices.tasks):
            for column, option in enumerate(task.options):
                nbytes[row, column] = task.count * option.nbytes
                seconds[row, column] = task.count * np.array(option.seconds)
        return _Tables(
            nbytes=nbytes,
            seconds=seconds,
            at=np.log(choices.footprints),
            fixed=choices.fixed_bytes,
        )

    def footprints(self, choices: Choice) -> Table:
        """Bytes that runs touch, of choices, one a row."""
        rows = np.arange(len(self.nbytes))
        return np.asarray(self.nbytes[rows, choices].sum(axis=1) + self.fixed)

    def totals(self, choices: Choice) -> Table:
        """Seconds of runs, of choices, one a row."""
        rows = np.arange(len(self.nbytes))
        sums = self.seconds[rows, choices].sum(axis=1)
        return self._there(sums, self.footprints(choices))

    def _there(self, sums: Table, footprints: Table) -> Table:
        """Seconds at footprints, of those at the known ones."""
        where = np.log(np.maximum(footprints, 1.0))
        return np.array([np.interp(w, self.at, s) for w, s in zip(where, sums, strict=True)])

    def priced(self) -> Choice:
        """What tasks choose by themselves, at every footprint and price of a byte."""
        less = self.nbytes[:, :, None] - self.nbytes[:, None, :]
        with np.errstate(invalid="ignore"):  # of what nobody takes
            more = self.seconds[:, None, :, -1] - self.seconds[:, :, None, -1]
        trades = (less > 0) & (more > 0) & np.isfinite(more)
        slopes = more[trades] / less[trades]
        prices = [0.0]
        if len(slopes):  # a little above, so that the trade is made
            prices += list(1.001 * np.quantile(slopes, np.linspace(0, 1, PRICES)))
        found = [
            np.argmin(self.seconds[:, :, g] + price * self.nbytes, axis=1)
            for g in range(len(self.at))
            for price in prices
        ]
        return np.unique(np.array(found, np.intp), axis=0)

    def downhill(self, choice: Choice) -> Choice:
        """To where no task can change its option and gain."""
        choice = choice.copy()
        least, falling = float(self.totals(choice[None])[0]), True
        while falling:
            falling = False
            for row in range(len(choice)):
                options = np.flatnonzero(np.isfinite(self.seconds[row, :, 0]))
                tried = np.repeat(choice[None], len(options), axis=0)
                tried[:, row] = options
                totals = self.totals(tried)
                if totals.min() < least * (1 - 1e-12):
                    choice, least = tried[int(np.argmin(totals))], float(totals.min())
                    falling = True
        return choice

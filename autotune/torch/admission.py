"""Admission of sets of sizes that want a program of their own. In: how many are kept, and what
sizes are met. Out: whether a program of them is compiled.

Where a model's sizes are other ones all the time (the boxes that a detector finds), a program for
each would be compiled for every call, and never used again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

REMEMBERED = 1024
"""Sets of sizes whose meetings are counted, those met last."""


class SizeAdmission:
    """Counts the meetings of sizes that have no program."""

    def __init__(self, kept: int) -> None:
        """`kept`: how many programs there may be."""
        self._kept, self._wanted = kept, 1
        self._met: OrderedDict[Hashable, int] = OrderedDict()

    def admits(self, sizes: Hashable, programs: int) -> bool:
        """Whether sizes that have none get a program beside `programs` others: the first ones at
        once; where one has to go for it, when they were met twice as often as the last such."""
        if programs < self._kept:
            return True
        count = self._met.pop(sizes, 0) + 1
        if count > self._wanted:
            self._wanted *= 2
            return True
        self._met[sizes] = count
        if len(self._met) > REMEMBERED:
            self._met.popitem(last=False)
        return False

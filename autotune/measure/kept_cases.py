"""Test cases of the last few tasks, which candidates share. In: MeasureRequest. Out: a Case."""

from __future__ import annotations

from collections import OrderedDict

from autotune.measure.case import Case, make_case
from autotune.measure.types import MeasureRequest


class KeptCases:
    """At most so many, of at most so many bytes together, but for the newest."""

    def __init__(self, most: int, most_bytes: int = 1 << 30) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._cases: OrderedDict[tuple[str, int, str], Case] = OrderedDict()

    def of(self, request: MeasureRequest) -> Case:
        """Made where it is not kept. Raises BuildError if memory is too small."""
        key = (request.task.key, request.seed, request.target.precision)
        if key not in self._cases:
            self._cases[key] = make_case(request.task, request.seed, request.target.precision)
        self._cases.move_to_end(key)
        while len(self._cases) > 1 and (len(self._cases) > self._most or self._too_large()):
            self._cases.popitem(last=False)
        return self._cases[key]

    def _too_large(self) -> bool:
        return sum(case.nbytes() for case in self._cases.values()) > self._most_bytes

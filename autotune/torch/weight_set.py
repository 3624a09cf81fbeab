"""Weights that a graph is called with, and its programs for them. In: a graph's inputs at a call.
Out: what was compiled for the weights among them.

PyTorch's recorder has one graph for all layers that are alike and compiled each for itself, or
called from code that breaks the graph: the weights are other ones from call to call. Each layer's
are packed once, and kept as long as somebody else holds them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from autotune.torch.admission import SizeAdmission
from autotune.torch.native import QuickCall
from autotune.torch.pieces import PieceRunner
from autotune.torch.versions import STORAGE_USES
from autotune.torch.watch import WeightWatch, taker

KEPT_SIZES = 16
"""Programs of one set that are kept, those used last."""
Addresses = tuple[int, ...]
_STANDING = 1
"""The one that the question is asked with."""


class WeightSet:
    """Programs for some weights, by sizes where these are open."""

    def __init__(self, weights: Mapping[int, torch.Tensor], *, settled: bool = True) -> None:
        """`weights`: by the number of an input; `settled`: whether they are likely to stay."""
        self.programs: OrderedDict[Any, PieceRunner | None] = OrderedDict()
        self.admission = SizeAdmission(KEPT_SIZES)
        self.settled = settled
        self.take(weights)

    def take(self, weights: Mapping[int, torch.Tensor]) -> None:
        """Begin anew with these."""
        self.programs.clear()
        self.quick: QuickCall = by_the_long_way
        """Looks at the weights and runs the program, where that is one piece on its inputs'
        memory: all that calls of small graphs need, which take longer than their work."""
        # Tensors of our own in the same memory: that of theirs is seen to have been let go.
        self.weights = {i: t.detach() for i, t in weights.items()}
        self.watch = WeightWatch(self.weights)

    def take_quick(self) -> None:
        program = self.programs.get(None)
        direct = None if program is None else program.direct
        self.quick = by_the_long_way if direct is None else direct.watching(self.watch)

    @property
    def abandoned(self) -> bool:
        """Whether nobody else holds one of the weights any more; False where this PyTorch does not
        tell."""
        if STORAGE_USES is None:
            return False
        places = [t.untyped_storage()._cdata for t in self.weights.values()]
        ours = Counter(places)
        return any(STORAGE_USES(place) <= count + _STANDING for place, count in ours.items())


class WeightSets:
    """Sets of weights that one graph was called with, by where they lie."""

    def __init__(self, weights: Mapping[int, torch.Tensor]) -> None:
        self._numbers = tuple(sorted(weights))
        self._taken = taker(self._numbers)
        first = WeightSet(weights)
        self._sets = {self._addresses(weights): first}
        self._only: WeightSet | None = first

    def __len__(self) -> int:
        return len(self._sets)

    def _addresses(self, inputs: Any) -> Addresses:
        return tuple(map(torch.Tensor.data_ptr, self._taken(inputs)))

    def among(self, inputs: Any) -> dict[int, torch.Tensor]:
        """The weights among a call's inputs, by number."""
        return {i: inputs[i] for i in self._numbers}

    def find(self, inputs: Any) -> WeightSet | None:
        """The set of the weights among a call's inputs; None where they were not met."""
        return self._sets.get(self._addresses(inputs))

    def meet(self, inputs: Any) -> None:
        """Keep a set for the weights among a call's inputs. Who has let others go may go on doing
        so: then nothing is compiled at the second call, either."""
        left = [a for a, known in [*self._sets.items()] if STORAGE_USES is None or known.abandoned]
        for addresses in left:
            self._sets.pop(addresses, None)
        made = WeightSet(self.among(inputs), settled=not left)
        self._sets[self._addresses(inputs)] = made
        self._only = made if len(self._sets) == 1 else None

    def quick(self, inputs: tuple[Any, ...]) -> list[torch.Tensor] | None:
        """What the program for these weights gives; None where it takes the long way."""
        found = self._only or self.find(inputs)
        return None if found is None else found.quick(inputs)


def by_the_long_way(_: Sequence[Any]) -> None:
    """Where there is no quick way."""

"""A watch on weights that were packed: are they what they were then? In: tensors. Out: yes or no,
at a call.

A tensor that is written counts a version, and one that is replaced lies elsewhere. What changes
without either (`p.data.add_`, a numpy view, another process) is seen by its numbers: those at a
few places of every tensor are compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from autotune.runtime.watched import WORD_BYTES, WatchedWords

PLACES = 4
"""Places of a tensor that are compared."""


class WeightWatch:
    """Weights among the inputs of a graph, by their number, as they are now."""

    def __init__(self, weights: Mapping[int, torch.Tensor]) -> None:
        self.numbers = tuple(sorted(weights))
        self.taken = taker(self.numbers)
        """Takes the weights from a graph's inputs."""
        self._kept = self.taken(weights)  # so that no other tensor comes to lie where they are
        tensors = self._kept
        self.version = version if any(t.is_inference() for t in tensors) else _counted
        self.versions = tuple(map(self.version, tensors))
        self.addresses = tuple(map(_address, tensors))
        probed = [place for t in tensors for place in _places(t)]
        self.words = WatchedWords(probed) if probed else None
        """To be looked at only where the addresses are the same: they lie in the weights."""

    def changed(self, inputs: Sequence[Any]) -> bool:
        """Whether a weight is another one, or was written."""
        return self.replaced(inputs) or (self.words is not None and self.words.changed())

    def replaced(self, inputs: Sequence[Any]) -> bool:
        """The same by what tensors tell of themselves, without a look at numbers."""
        now = self.taken(inputs)
        return (
            tuple(map(self.version, now)) != self.versions
            or tuple(map(_address, now)) != self.addresses
        )


_counted = operator.attrgetter("_version")
_address = torch.Tensor.data_ptr


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written; tensors of inference mode do not count that."""
    return 0 if tensor.is_inference() else tensor._version


def taker(numbers: Sequence[int]) -> Callable[[Any], tuple[torch.Tensor, ...]]:
    """What takes those of these numbers from a sequence."""
    if len(numbers) == 1:
        (number,) = numbers
        return lambda inputs: (inputs[number],)
    return operator.itemgetter(*numbers) if numbers else lambda _: ()


def _places(tensor: torch.Tensor) -> list[int]:
    """Addresses of whole words inside the tensor's memory, the first and the last among them."""
    step = tensor.element_size()
    extent = sum((e - 1) * s for e, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if tensor.numel() == 0:
        return []
    first, words = tensor.data_ptr(), (extent * step) // WORD_BYTES
    if words == 0:
        return []
    return sorted({first + WORD_BYTES * int(i) for i in np.linspace(0, words - 1, PLACES).round()})

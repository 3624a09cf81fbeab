"""A watch on weights that were packed: are they what they were then? In: tensors. Out: yes or no,
at a call.

A tensor that is written counts a version, and one that is replaced lies elsewhere. What changes
without either (`p.data.add_`, a numpy view, another process) is seen by its numbers: those at a
few places of every tensor are compared.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from autotune.types import Array

PLACES = 4
"""Places of a tensor that are compared."""


class WeightWatch:
    """Weights among the inputs of a graph, by their number, as they are now."""

    def __init__(self, weights: Mapping[int, torch.Tensor]) -> None:
        self._count = len(weights)
        self._taken = _taker(sorted(weights))
        tensors = [weights[i] for i in sorted(weights)]
        self._kept = tensors  # so that no other tensor comes to lie where they are
        self._version = version if any(t.is_inference() for t in tensors) else _counted
        self._versions = tuple(map(self._version, tensors))
        self._addresses = tuple(map(_address, tensors))
        self._probes = Probes([p for t in tensors for p in _places(t)])

    def changed(self, inputs: Sequence[Any]) -> bool:
        """Whether a weight is another one, or was written."""
        if not self._count:
            return False
        now, probes = self._taken(inputs), self._probes
        return (
            tuple(map(self._version, now)) != self._versions
            or tuple(map(_address, now)) != self._addresses
            or probes.memory.take(probes.places).tobytes() != probes.values
        )


class Probes:
    """Words of memory, and what was in them."""

    def __init__(self, addresses: Sequence[int]) -> None:
        """Addresses of whole words, in memory that is kept."""
        first, end = min(addresses, default=0), max(addresses, default=0) + _WORD
        # One array over all the memory between them, of which those words alone are read.
        span = (ctypes.c_uint8 * (end - first)).from_address(first) if addresses else bytes(_WORD)
        places = np.array(addresses, np.int64) - first
        if (places % _WORD).any():  # elements of 16 bits begin where no word does
            self.memory: Array = np.frombuffer(memoryview(span), np.uint8)
            self.places = (places[:, None] + np.arange(_WORD)).ravel()
        else:
            self.memory = np.frombuffer(memoryview(span), np.uint32)
            self.places = places // _WORD
        self.values = self._read()

    def _read(self) -> bytes:
        return self.memory.take(self.places).tobytes()


_WORD = 4
"""Bytes."""
_counted = operator.attrgetter("_version")
_address = torch.Tensor.data_ptr


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written; tensors of inference mode do not count that."""
    return 0 if tensor.is_inference() else tensor._version


def _taker(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
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
    first, words = tensor.data_ptr(), (extent * step) // 4
    if words == 0:
        return []
    return sorted({first + 4 * int(i) for i in np.linspace(0, words - 1, PLACES).round()})

"""Packed weights and kernels that the graphs of one model share. In: the weights of a graph. Out:
the parts of the model that they are of.

PyTorch cuts models into graphs, and records one more for other inputs (a decoder's first call and
its later ones): what these have in common is packed and built once.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence

import torch

from autotune.compiler.constants import NoRoomError, SharedConstants
from autotune.compiler.sized import RESERVED_BYTES, RESERVED_WEIGHTS, Kernel, KernelReuse
from autotune.measure.types import Built
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from autotune.torch.watch import version

Compiled = CompiledModel | SizedModel
CompileWithParts = Callable[[KernelReuse], Compiled]
_Key = tuple[Hashable, int, int]


class ModelParts:
    """Packed weights and built kernels of graphs that have a weight in common."""

    def __init__(self) -> None:
        self._constants = SharedConstants(0)
        self._reserved = 0
        self._kernels: dict[Kernel, Built] = {}
        self._readers: weakref.WeakSet[Compiled] = weakref.WeakSet()
        """Models whose weights lie in the block."""

    def compiled(self, compile_: CompileWithParts, weight_bytes: int) -> Compiled:
        """What `compile_` makes of a graph that has so many bytes of weights."""
        used = self._constants.used_bytes if len(self._readers) else self._reserved
        if used + 2 * weight_bytes > self._reserved:
            self._renew(weight_bytes)
        reuse = self._reuse()
        try:
            model = compile_(reuse)
        except NoRoomError:  # what is compiled already keeps the old block as long as it lives
            self._kernels.update(reuse.own)
            self._renew(max(weight_bytes, self._reserved))
            reuse = self._reuse()
            model = compile_(reuse)
        self._kernels.update(reuse.own)
        self._readers.add(model)
        return model

    def _renew(self, weight_bytes: int) -> None:
        self._reserved = RESERVED_WEIGHTS * weight_bytes + RESERVED_BYTES
        self._constants = SharedConstants(self._reserved)
        self._readers = weakref.WeakSet()

    def _reuse(self) -> KernelReuse:
        return KernelReuse(constants=self._constants, there=(self._kernels,))


def parts_of(weights: Sequence[torch.Tensor], options: Hashable) -> ModelParts | None:
    """The parts of the model that these are weights of, as graphs that are still there have them,
    or new ones; None without weights. `options`: what else kernels depend on."""
    every = _living_parts()
    keys: list[_Key] = [(options, t.data_ptr(), version(t)) for t in weights]
    if not keys:
        return None
    found = next((parts for key in keys if (parts := every.get(key)) is not None), None)
    parts = ModelParts() if found is None else found
    every.update(dict.fromkeys(keys, parts))
    return parts


@functools.cache
def _living_parts() -> weakref.WeakValueDictionary[_Key, ModelParts]:
    """By weight. Where another's comes to lie at the same place, two models share a block, which
    costs nothing but that it lives as long as both."""
    return weakref.WeakValueDictionary()

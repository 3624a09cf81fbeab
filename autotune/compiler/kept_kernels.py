"""Kernels worth building. In: what kernels of a task are predicted to take at any size. Out: the
few of them by which the task takes hardly longer, at sizes of its range, than by all.

Predicting costs a tenth of what a kernel's code does, and most gain little over the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from autotune.compiler.open_kernels import OpenKernel, TriedKernel, covers
from autotune.compiler.strip_lengths import drawn_values
from autotune.sizes import value_at

Column = npt.NDArray[np.float64]
WORTH = 3e-3
"""Least gain in the mean squared ratio to what all kernels would give, for one more (chosen)."""


def kept_kernels(tried: Sequence[TriedKernel]) -> list[TriedKernel]:
    """In their order; all of them where none does for all sizes."""
    everywhere = [n for n, kernel in enumerate(tried) if covers(kernel)]
    if not everywhere or len(tried) == 1:
        return list(tried)
    drawn = drawn_values([e for kernel in tried for e in (*kernel.extents, kernel.pieces)])
    costs = np.array([costs_at(kernel, drawn) for kernel in tried])
    ratios = (costs / costs.min(axis=0)) ** 2
    taken = [min(everywhere, key=lambda n: ratios[n].mean())]
    best = ratios[taken[0]]
    while True:
        loss = np.minimum(best, ratios).mean(axis=1)
        number = int(loss.argmin())
        if loss[number] > best.mean() - WORTH:
            return [tried[n] for n in sorted(taken)]
        taken.append(number)
        best = np.minimum(best, ratios[number])


def costs_at(kernel: OpenKernel | TriedKernel, drawn: Sequence[Mapping[str, int]]) -> Column:
    """Predicted seconds at sizes; inf where the kernel does not serve them."""
    arrays = {name: np.array([values[name] for values in drawn]) for name in drawn[0]}
    columns = cast(Mapping[str, int], arrays)
    fits = np.full(len(drawn), True)
    for extent, length in zip(kernel.extents, kernel.lengths, strict=True):
        fits &= value_at(extent, columns) >= length
    return np.where(fits, value_at(kernel.pieces, columns) * kernel.seconds, np.inf)

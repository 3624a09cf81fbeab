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
from autotune.compiler.strip_lengths import drawn_values, least_values
from autotune.sizes import value_at

Column = npt.NDArray[np.float64]
WORTH = 1e-4
"""Least gain in the mean squared ratio to what all kernels would give, for one more (chosen)."""
MOST = 1.05
"""Ratio that no size looked at is to be over, rare as it may be in its range (chosen)."""


def kept_kernels(tried: Sequence[TriedKernel]) -> list[TriedKernel]:
    """In their order; all of them where none does for all sizes."""
    everywhere = [n for n, kernel in enumerate(tried) if covers(kernel)]
    if not everywhere or len(tried) == 1:
        return list(tried)
    amounts = [e for kernel in tried for e in (*kernel.extents, kernel.pieces)]
    drawn = drawn_values(amounts)
    sizes = [*drawn, *least_values(amounts)]
    costs = np.array([costs_at(kernel, sizes) for kernel in tried])
    ratios = (costs / costs.min(axis=0)) ** 2
    taken = [min(everywhere, key=lambda n: ratios[n].mean())]
    best = ratios[taken[0]]
    while True:
        loss = np.minimum(best, ratios)[:, : len(drawn)].mean(axis=1)
        number = int(loss.argmin())
        if loss[number] > best[: len(drawn)].mean() - WORTH:
            worst = int(best.argmax())
            if best[worst] <= MOST**2:
                return [tried[n] for n in sorted(taken)]
            number = int(np.where(ratios[:, worst] <= MOST**2, loss, np.inf).argmin())
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

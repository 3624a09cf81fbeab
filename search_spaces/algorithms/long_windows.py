"""Minimal filtering of long windows: convolutions along a row, or a column, by 8 to 11 taps.

Winograd's forms evaluate polynomials at 8 points along both sides, and have none left for so many
taps. Along one side alone, 12 points lose as few digits as 8 do along two: F(4, 8) and F(4, 9)
take 11 and 12 products for 32 and 36, F(2, 10) and F(2, 11) 11 and 12 for 20 and 22. Speech has
such windows: of 9 taps in FastSpeech 2 (Ren et al. 2020), of 11 in HiFi-GAN (Kong et al. 2020).
"""

from __future__ import annotations

from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.winograd import LEAST_CHANNELS, Filtering, covered
from search_spaces.cpu.contraction.shape import Contraction

TAPS = {4: (8, 9), 2: (10, 11)}
"""Output points of a tile -> windows that it is for: with the points that this takes, at most 12,
a result is off by 2e-5 of the largest value."""


class LongFiltering(Filtering):
    """Tiles of so many points along the window."""

    reference = "Winograd 1980; Barabasz et al., Error Analysis of Toom-Cook Convolution, 2018"

    def __init__(self, side: int, code: int) -> None:
        super().__init__(f"long_window{side}", code, (side, side))

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return target.transforms_weights and self.filters(c) and covered(task, c, self.sides)

    def filters(self, c: Contraction) -> bool:
        if c.rows is None or c.item_bytes != 4 or not c.constant:
            return False
        across, taps = sorted(extent for _, extent in c.reduce[:2])
        if across > 1 or taps not in TAPS[self.sides[0]]:
            return False
        if (c.strides, c.dilation) != ((1, 1), (1, 1)):
            return False
        return min(c.reduce[2][1], c.channels[1]) >= LEAST_CHANNELS


for _code, _side in enumerate(TAPS, 10):
    ALGORITHMS.add(f"long_window{_side}", LongFiltering(_side, _code))

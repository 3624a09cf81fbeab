"""Tiles of output points that filtering cuts a convolution into, and blocks of them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.program.winograd import points_of
from search_spaces.cpu.contraction.shape import Contraction

FEW_TILES = 16
"""Tiles of an image, at most, where a block may be of several images (chosen): each panel of
weights would be loaded for too few results."""
LEAST_TILES, MOST_TILES = 4, 160
"""Tiles of a block of several images (chosen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The tiles of output points that a form cuts a convolution into."""

    height: int
    width: int
    """Columns of a tile: 1 along a dimension that the kernel does not span."""
    rows: int
    columns: int
    """Columns of tiles in an image."""
    count: int
    """Tiles of all images."""
    points: int
    """Multiplications of a tile per channel pair."""
    images: int

    @staticmethod
    def of(c: Contraction, sides: tuple[int, int]) -> Tiles:
        """`sides`: height and width of a tile where the kernel spans both dimensions."""
        kernel = [e for _, e in c.reduce[:2]]
        height, width = (m if k > 1 else 1 for m, k in zip(sides, kernel, strict=True))
        rows, columns = -(-c.row_count // height), -(-c.points[1] // width)
        (kh, kw), (down, along) = kernel, c.strides
        return Tiles(
            height=height, width=width, rows=rows, columns=columns,
            count=c.count * rows * columns, images=c.count,
            points=points_of(height, kh, down) * points_of(width, kw, along),
        )  # fmt: skip

    def blocks(self) -> tuple[int, ...]:
        """Sizes of blocks of tiles: whole rows of them, parts of one row, or several images where
        one has few."""
        parts = (d for d in range(4, self.columns) if self.columns % d == 0)
        whole = (self.columns * d for d in range(1, self.rows + 1) if self.rows % d == 0)
        each = self.rows * self.columns
        few = self.images if each <= FEW_TILES else 1
        several = (each * d for d in range(2, few + 1) if few % d == 0)
        return (*parts, *whole, *(b for b in several if LEAST_TILES <= b <= MOST_TILES))

    def block_shape(self, block: int) -> tuple[int, int, int]:
        """Images, and of each rows and columns of tiles, of a block of that size."""
        images = max(1, block // (self.rows * self.columns))
        rows = min(self.rows, max(1, block // self.columns))
        return images, rows, min(block, self.columns)

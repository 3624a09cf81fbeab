"""Strassen's algorithm: a product of two matrices of 2 x 2 blocks by seven products, not eight.

The order of the products is such that each uses at most one block of the weights for the first
time.

C[p, r] = sum over i of RESULT[i][p, r] * M[i], M[i] = (sum of DATA[i] * A) (sum of WEIGHTS[i] * B)
Source: V. Strassen, Gaussian elimination is not optimal, 1969.
"""

from __future__ import annotations

import numpy as np

from autotune.types import Array

PRODUCTS = 7
"""Products of quarters."""
Blocks = tuple[tuple[int, int], tuple[int, int]]

DATA: tuple[Blocks, ...] = (
    ((0, 0), (1, 1)),
    ((1, 1), (0, 0)),
    ((1, 0), (0, 1)),
    ((1, 0), (0, 0)),
    ((-1, 0), (1, 0)),
    ((0, 0), (0, 1)),
    ((0, 1), (0, -1)),
)
WEIGHTS: tuple[Blocks, ...] = (
    ((1, 0), (0, 0)),
    ((0, 0), (0, 1)),
    ((1, 0), (0, 1)),
    ((0, 1), (0, -1)),
    ((1, 1), (0, 0)),
    ((-1, 0), (1, 0)),
    ((0, 0), (1, 1)),
)
RESULT: tuple[Blocks, ...] = (
    ((0, 0), (1, -1)),
    ((-1, 1), (0, 0)),
    ((1, 0), (0, 1)),
    ((0, 1), (0, 1)),
    ((0, 0), (0, 1)),
    ((1, 0), (1, 0)),
    ((1, 0), (0, 0)),
)


def terms(matrices: tuple[Blocks, ...], product: int) -> list[tuple[int, int, int]]:
    """(row, column, sign) of the blocks in a sum, those added first."""
    found = [
        (p, q, matrices[product][p][q])
        for p in range(2)
        for q in range(2)
        if matrices[product][p][q]
    ]
    return sorted(found, key=lambda t: -t[2])


def first_uses(product: int) -> tuple[tuple[int, int], ...]:
    """Blocks of the weights that no product before this one uses."""
    before = {(q, r) for i in range(product) for q, r, _ in terms(WEIGHTS, i)}
    return tuple((q, r) for q, r, _ in terms(WEIGHTS, product) if (q, r) not in before)


def combined_weights(array: Array, reduce_dim: int, channel_dim: int) -> Array:
    """The seven sums of blocks of the weights, as a new first dimension; the blocks are halves of
    the two dimensions, of even extents."""
    blocks = [np.split(half, 2, axis=channel_dim) for half in np.split(array, 2, axis=reduce_dim)]
    sums = [sum(sign * blocks[q][r] for q, r, sign in terms(WEIGHTS, i)) for i in range(PRODUCTS)]
    return np.stack(sums).astype(array.dtype)

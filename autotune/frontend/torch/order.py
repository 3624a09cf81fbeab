"""The order in which a tensor's dimensions lie in memory. In: a tensor. Out: its dimensions, the
slowest first; their own order where there are gaps or overlaps."""

from __future__ import annotations

import torch


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The permutation that makes the tensor contiguous; none (0, 1, ...) where no permutation
    does."""
    rank = tensor.dim()
    plain = tuple(range(rank))
    shape, strides = tensor.shape, tensor.stride()
    if rank < 2 or tensor.is_contiguous():
        return plain
    order = sorted(plain, key=lambda d: (-int(strides[d]), -int(shape[d])))
    step = 1
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != step:
            return plain
        step *= int(shape[d])
    return tuple(order)

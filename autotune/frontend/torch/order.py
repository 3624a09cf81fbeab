"""The order in which a tensor's dimensions lie in memory. In: a tensor. Out: its dimensions, the
slowest first, in their own order where there are gaps or overlaps; strides where there are gaps.
"""

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


def strides_with_gaps(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor between whose elements lie others; None where there are none, or
    where elements share their memory."""
    if 0 in tensor.shape:
        return None
    dims = [(int(s), int(e)) for s, e in zip(tensor.stride(), tensor.shape, strict=True) if e > 1]
    end, gaps = 1, False
    for step, extent in sorted(dims):
        if step < end:
            return None
        gaps |= step > end
        end = step * extent
    return tuple(map(int, tensor.stride())) if gaps else None

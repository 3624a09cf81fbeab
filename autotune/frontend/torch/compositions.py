"""Operators written as others, which PyTorch does not decompose. In and out: what the operator
takes and gives."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

Number = bool | int | float


def batches_added(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`addbmm`: beta * x + alpha * the sum of a batch's products, which is one product. Integers
    take whole factors."""
    if not x.is_floating_point() and not x.is_complex():
        beta, alpha = int(beta), int(alpha)
    rows = a.transpose(0, 1).reshape(a.shape[1], -1)
    product = rows @ b.reshape(-1, b.shape[2])
    return torch.add(x * beta if beta != 1 else x, product, alpha=alpha)


def trilinear(  # noqa: PLR0917 (as PyTorch calls it)
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,  # noqa: ARG001 (how PyTorch's loops run)
) -> Tensor:
    """`_trilinear`: three tensors with further dimensions, multiplied and summed. Rows between two
    vectors and a matrix for each result (`nn.Bilinear`) are a product of matrices first."""
    ways = tuple(map(tuple, (expand1, expand2, expand3, sumdim)))
    if ways == ((1, 3), (0,), (1, 2), (2, 3)):
        made, left, right = b.shape
        rows = (a @ b.transpose(0, 1).reshape(left, made * right)).view(-1, made, right)
        return (rows * c.unsqueeze(1)).sum(-1)
    spread = [
        functools.reduce(torch.unsqueeze, sorted(dims), x)
        for x, dims in zip((a, b, c), ways, strict=False)
    ]
    product = functools.reduce(operator.mul, spread)
    return product.sum(ways[3]) if ways[3] else product

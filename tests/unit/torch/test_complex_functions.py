"""Functions, products and reductions of complex tensors give what PyTorch gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from tests.unit.torch.oracle import by_numpy


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.complex64, generator=draw)


Z, W = numbers(5, 4), numbers(5, 4, seed=1)
PLACES = torch.tensor([[0, 4, 1, 1]])
ENDS = torch.tensor([0, 4, -4, 4j, -4j, 3 + 4j, -3 - 4j, 1e20 + 1e20j, -1e-20 + 1e-20j])

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "roots": lambda z: (z.sqrt(), z.rsqrt(), z**0.5),
    "circular": lambda z: (z.sin(), z.cos(), z.tan()),
    "hyperbolic": lambda z: (z.sinh(), z.cosh(), z.tanh(), (40 * z).tanh()),
    "logarithms": lambda z: (z.log2(), z.log10()),
    "powers": lambda z, w: (z**2.5, z**5, z**-1, z**-2, z ** (1 + 2j), z**w, 2.0**z),
    "tests": lambda z: ((z / 0).isnan(), (z / 0).isinf(), z.isfinite()),
    "signs": lambda z: z.sgn(),
    "from a number": lambda z, w: (1 - z, 1j - z, torch.rsub(z, w, alpha=2)),
    "layers": lambda z, w: (functional.linear(z, w, w[:, 0]),
                            torch.addmm(z[:, :1], z, w.mT, beta=2, alpha=1 + 1j),
                            torch.baddbmm(z[None, :, :1], z[None], w.mT[None])),
    "sums": lambda z, w: (torch.addcmul(z, w, z, value=2), torch.lerp(z, w, 0.3)),
    "sizes": lambda z: (z.norm(), torch.linalg.vector_norm(z, dim=1), z.var(), z.std(0),
                        torch.linalg.vector_norm(z, 1), functional.normalize(z, dim=1)),
    "products": lambda z: (z.prod(), z.prod(0), z.prod(1, keepdim=True), z.cumprod(0)),
    "scattered": lambda z, w, p: (z.scatter(0, p, w), z.scatter_add(0, p, w),
                            z.scatter(0, p, 2)),
    "diagonals": lambda z, w, p: torch.diag_embed(z + w[p[0]][0]),
}  # fmt: skip


def assert_same(function: Callable[..., Any], *given: torch.Tensor) -> None:
    found, plan = by_numpy(function, given)
    assert not plan.refused
    for a, b in zip(found, pytree.tree_leaves(function(*given)), strict=True):
        assert a.dtype == b.dtype
        if a.dtype == torch.bool:
            assert torch.equal(a, b)
            continue
        finite = b.isfinite()
        scale = b[finite].abs().max().item() if finite.any() else 1.0
        most = 1e-6 * scale if math.isfinite(scale) else 1e-6
        torch.testing.assert_close(a, b, rtol=1e-5, atol=most, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(name: str) -> None:
    function = FUNCTIONS[name]
    assert_same(function, *(Z, W, PLACES)[: function.__code__.co_argcount])


def test_roots_of_zero_and_of_large_and_small_numbers() -> None:
    assert_same(torch.sqrt, ENDS)


def test_powers_of_zero_are_zero() -> None:
    assert_same(lambda z: (z**1.5, z ** (2 + 0j)), torch.zeros(3, dtype=torch.complex64))

"""Triangular systems give what PyTorch gives."""

from __future__ import annotations

import pytest
import torch

from tests.unit.torch.oracle import by_numpy


def solved(a: torch.Tensor, b: torch.Tensor, **how: bool) -> torch.Tensor:
    """By products of blocks; what is not of the triangle may be anything."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.linalg.solve_triangular(a, b, **how)
        return found

    results, plan = by_numpy(function, (a, b))
    assert not plan.refused
    result: torch.Tensor = results[0]
    return result


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_every_form(upper: bool, left: bool, unit: bool, size: int) -> None:
    draw = torch.Generator().manual_seed(size)
    a = torch.randn(2, 3, size, size, generator=draw)
    a = a + 4 * torch.eye(size) * a.diagonal(dim1=-2, dim2=-1).sign()[..., None]
    b = torch.randn(3, *((size, 5) if left else (5, size)), generator=draw)
    found = solved(a, b, upper=upper, left=left, unitriangular=unit)
    how = {"upper": upper, "left": left, "unitriangular": unit}
    exact = torch.linalg.solve_triangular(a.double(), b.double(), **how)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4 * exact.abs().max())


def test_a_matrix_whose_powers_are_huge() -> None:
    """Of ones below the diagonal: powers of it have numbers of 1e18, its inverse 1 and -1."""
    size = 64
    a = torch.full((1, size, size), torch.nan).triu() + torch.ones(size, size).tril()
    found = solved(a, torch.eye(size)[None], upper=False, unitriangular=True)
    exact = torch.eye(size) - torch.diag(torch.ones(size - 1), -1)
    torch.testing.assert_close(found[0], exact)

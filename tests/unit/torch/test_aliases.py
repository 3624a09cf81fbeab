"""Results of a graph that share memory share it when compiled, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


def parts(x: torch.Tensor) -> tuple[Any, ...]:
    """Views of two results, of parts of a third that is none itself, and others beside them."""
    made, other = x.exp(), (x @ x.t()).relu()
    first, second, third = other.chunk(3, 0)
    return made, made[0], made.t(), first, second * 2, third.t(), made[1:] + 1, other.sum()


def halves(x: torch.Tensor) -> tuple[Any, ...]:
    made = x * 2
    return made, made[:, 1:], made.sum()


def repeated(x: torch.Tensor) -> tuple[Any, ...]:
    """Results that have one element in several places, of parts that are no results themselves."""
    column, row = x[:, :1].exp(), (x @ x.t()).sum(0)
    return column.expand(-1, 5), row.expand(3, -1).t(), x.relu()


def written(results: tuple[Any, ...]) -> list[Any]:
    """The results after each was written to in turn."""
    seen = []
    for number, result in enumerate(results):
        result.add_(number + 1)
        seen.append([r.clone() for r in results])
    return seen


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [(parts, torch.float32), (halves, torch.bfloat16), (halves, torch.complex64)],
    ids=["parts", "halves", "complex"],
)
def test_who_writes_to_a_result_writes_to_its_views(
    function: Callable[[torch.Tensor], Any], dtype: torch.dtype, dynamic: bool
) -> None:
    torch._dynamo.reset()
    fast = torch.compile(function, backend="autotune", options=PLAIN, dynamic=dynamic)
    with torch.no_grad():
        for rows in (6, 9) if dynamic else (6, 6):
            x = torch.randn(rows, 6).to(dtype)
            found, expected = fast(x), function(x)
            assert [f.stride() for f in found] == [e.stride() for e in expected]
            torch.testing.assert_close(written(found), written(expected), rtol=1e-4, atol=1e-4)


def of_an_input(x: torch.Tensor) -> tuple[Any, ...]:
    """Views of the input, with and without places of their own, and something beside them."""
    return x.chunk(2)[1], x.expand(2, *x.shape), x[1:].t(), x.repeat(2, 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_views_of_an_input_are_views_of_it(dynamic: bool, step: int) -> None:
    torch._dynamo.reset()
    fast = torch.compile(of_an_input, backend="autotune", options=PLAIN, dynamic=dynamic)
    with torch.no_grad():
        for rows in (6, 9) if dynamic else (6, 6):
            x = torch.randn(rows, 4 * step)[:, ::step]
            for found, wanted in zip(fast(x), of_an_input(x), strict=True):
                assert found.stride() == wanted.stride()
                torch.testing.assert_close(found, wanted)
            assert [f.data_ptr() for f in fast(x)[:3]] == [
                v.data_ptr() for v in of_an_input(x)[:3]
            ]


def test_an_input_that_repeats_an_element_is_flattened_in_place() -> None:
    torch._dynamo.reset()
    fast = torch.compile(
        lambda x: (x.reshape(-1), x * 2), backend="autotune", options=PLAIN, dynamic=True
    )
    with torch.no_grad():
        x = torch.randn(1).expand(3)
        flat, _ = fast(x)
    assert flat.stride() == (0,)
    assert flat.data_ptr() == x.data_ptr()


def test_gradients_through_views_of_results_that_were_written() -> None:
    fast = torch.compile(halves, backend="autotune", options=PLAIN)

    def gradient(called: Callable[[torch.Tensor], Any]) -> Any:
        x = torch.ones(3, 3, requires_grad=True)
        whole, part, _ = called(x)
        part.mul_(3)
        return torch.autograd.grad(whole.sum(), x)

    for _ in range(2):
        torch.testing.assert_close(gradient(fast), gradient(halves))


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_that_are_repeated_lie_in_one_place(dynamic: bool) -> None:
    fast = torch.compile(repeated, backend="autotune", options=PLAIN, dynamic=dynamic)
    for rows in (6, 9) if dynamic else (6, 6):
        x = torch.randn(rows, 6)
        x.requires_grad_(not dynamic)
        found, expected = fast(x), repeated(x)
        assert [f.stride() for f in found] == [e.stride() for e in expected]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

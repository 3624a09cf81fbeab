"""Indices that are tensors of one number: what is read and written by them is ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from autotune.torch import explain

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}
READ: list[Callable[[Any, Any], Any]] = [
    lambda k, p: k[:, p] + 1,
    lambda k, p: k[p] * 2,
    lambda k, p: k[..., p].exp(),
    lambda k, p: k[1:, None, p, :2] + k[0, :, p].sum(),
    lambda k, p: k[:, p, ..., None] - 1,
]


def written(k: Any, p: Any, x: Any) -> Any:
    k[:, p] = x
    k[..., p] = 3.0
    k[p, :, 1:] = x[0, 1:]
    return (k * 2).sum(1)


def viewed(k: Any, p: Any) -> Any:
    part = k[:, p]
    part.mul_(2)
    return part + 1, k


def compiled(function: Any, dynamic: bool | None = None) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="autotune", options=PLAIN, dynamic=dynamic)


@pytest.mark.parametrize("number", range(len(READ)))
def test_what_is_read_at_a_place(number: int) -> None:
    fast = compiled(READ[number])
    for place in (0, 2, -1):
        k, p = torch.randn(4, 5, 3), torch.tensor(place)
        torch.testing.assert_close(fast(k, p), READ[number](k, p))
    torch._dynamo.reset()
    assert explain(READ[number], torch.randn(4, 5, 3), torch.tensor(1)).whole


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_written_at_a_place(dynamic: bool) -> None:
    fast = compiled(written, dynamic)
    for place in (0, 2, -1):
        one, p, x = torch.randn(4, 5, 3), torch.tensor(place), torch.randn(4, 3)
        other = one.clone()
        torch.testing.assert_close(fast(one, p, x), written(other, p, x))
        torch.testing.assert_close(one, other)


def test_what_is_written_to_a_view_of_a_place() -> None:
    fast, p = compiled(viewed), torch.tensor(2)
    one = torch.randn(4, 5, 3)
    other = one.clone()
    torch.testing.assert_close(fast(one, p), viewed(other, p))
    torch.testing.assert_close(one, other)

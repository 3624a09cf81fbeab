"""Random small modules give what eager gives: importers by numpy, the whole backend for some."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (as PyTorch's users write it)

from benchmarks.pytorch.torch_random import MODES, flaws
from tests.unit.torch.oracle import by_numpy

Tensors = list[torch.Tensor]
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
STEPS = 7


def _unary(rng: random.Random) -> Step:
    """A function of one tensor of rank 3, which stays of rank 3, and of weights [5, 5]."""
    dim, other = rng.sample(range(3), 2)
    kept, start = rng.random() < 0.5, rng.randrange(2)
    steps: list[Step] = [
        lambda x, _: x.transpose(dim, other),
        lambda x, _: x.flip(dim).contiguous(),
        lambda x, _: x.roll(1, dim),
        lambda x, _: x.softmax(dim),
        lambda x, _: x - x.amax(dim, keepdim=True),
        lambda x, _: x.mean(dim, keepdim=True) + (x if kept else x.mean()),
        lambda x, _: x.cumsum(dim) / x.shape[dim],
        lambda x, _: torch.cat([x, x.abs()], dim).narrow(dim, start, x.shape[dim]),
        lambda x, _: torch.where(x > 0, x, -0.1 * x),
        lambda x, _: F.gelu(x) if kept else F.silu(x),
        lambda x, _: F.layer_norm(x, x.shape[-1:]),
        lambda x, _: F.pad(x, (1, 0, 0, 1))[..., :-1][:, 1:],
        lambda x, _: torch.unflatten(x.flatten(1), 1, x.shape[1:]),
        lambda x, _: x.clamp(-1, 1).sort(dim).values,
        lambda x, _: (x * 3).round().to(torch.int64).float() / 3,
        lambda x, _: x.index_select(dim, torch.arange(x.shape[dim] - 1, -1, -1)),
        lambda x, _: x.masked_fill(x < -0.5, 0.25),
        lambda x, w: F.linear(x, w[: x.shape[-1], : x.shape[-1]]) / 3,
        lambda x, _: x @ x.transpose(1, 2) @ x / x.numel(),
        lambda x, _: x.unsqueeze(dim).expand([-1] * dim + [2] + [-1] * (3 - dim)).sum(dim),
        lambda x, _: x.std(dim, keepdim=True) * x if x.shape[dim] > 1 else x,
    ]
    return rng.choice(steps)


def _module(seed: int) -> Callable[..., Tensors]:
    """A chain of steps with shortcuts, which gives its last value and one from within."""
    rng = random.Random(seed)
    steps, shortcuts = [_unary(rng) for _ in range(STEPS)], [rng.random() < 0.3] * STEPS
    inner = rng.randrange(STEPS)

    def forward(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Tensors:
        found = [x]
        for step, shortcut in zip(steps, shortcuts, strict=True):
            made = step(found[-1], w)
            if shortcut and made.shape == found[0].shape:
                made = made + found[0] * y.mean()
            found.append(made)
        return [found[-1], found[inner]]

    return forward


def _inputs(seed: int) -> Tensors:
    rng, maker = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = [rng.choice([1, 2, 3]), rng.choice([2, 3, 4]), rng.choice([3, 4, 5])]
    shapes = (shape, [2], [5, 5])
    return [torch.randn(s, generator=maker) for s in shapes]


def _agree(found: Tensors, expected: Tensors) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=5e-5)


@pytest.mark.parametrize("seed", range(40))
def test_importers_of_a_random_module(seed: int) -> None:
    module, inputs = _module(seed), _inputs(seed)
    found, how = by_numpy(module, inputs)
    assert not how.refused
    _agree(found, module(*inputs))


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_random_module_compiled(seed: int) -> None:
    torch._dynamo.reset()
    module, inputs = _module(seed), _inputs(seed)
    options: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}
    with torch.no_grad():
        fast = torch.compile(module, backend="autotune", options=options)
        for _ in range(2):
            _agree(fast(*inputs), module(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_random_functions_of_tensors_that_lie_anyhow(mode: str) -> None:
    """Views, writes in place, strided, empty and 0-d arguments; more by
    `python benchmarks/pytorch/torch_random.py`."""
    found = [flaws(seed, mode) for seed in range(10)]
    assert [f for f in found if f] == []
    assert sum(f is not None for f in found) > 5

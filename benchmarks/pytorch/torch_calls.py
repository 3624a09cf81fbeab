"""What a call through `torch.compile` costs over the recorder's own, for graphs of little work.

In: nothing. Out: microseconds a call, by this backend and by one that gives a ready result; the
difference is ours, with the work of the graph in it. Alone on a core: others' work is in it, too.

Usage: python benchmarks/pytorch/torch_calls.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

ROUNDS, CALLS = 12, 300
OPTIONS: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


def graphs() -> Mapping[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """Functions, and what each is called with."""
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(8)])
    return {
        "relu(a + b)": (lambda a, b: torch.relu(a + b), (torch.randn(8), torch.randn(8))),
        "a layer of 8 x 8": (nn.Linear(8, 8).eval(), (torch.randn(1, 8),)),
        "eight of them": (layers.eval(), (torch.randn(1, 8),)),
    }


def ready(module: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """A backend that works nothing out."""
    made = module(*inputs)
    return lambda *_: made


def call_us(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> float:
    """The fastest of some rounds."""
    times = []
    with torch.no_grad():
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(CALLS):
                function(*given)
            times.append(time.perf_counter() - start)
    return min(times) / CALLS * 1e6


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'graph':<18}{'ours':>8}{'recorder':>10}{'over it':>9}  us")
    for name, (function, given) in graphs().items():
        torch._dynamo.reset()
        ours = call_us(torch.compile(function, backend="autotune", options=OPTIONS), given)
        torch._dynamo.reset()
        alone = call_us(torch.compile(function, backend=ready), given)
        print(f"{name:<18}{ours:>8.1f}{alone:>10.1f}{ours - alone:>9.1f}")


if __name__ == "__main__":
    main()

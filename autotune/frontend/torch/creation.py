"""ATen importers: tensors made of numbers."""

from __future__ import annotations

import math

import numpy as np

from autotune.frontend.torch.context import AtenCall, aten


@aten("full", "full_like", "new_full")
def full(n: AtenCall) -> str:
    return _filled(n, n.arg("fill_value"))


@aten("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_permuted",
      "empty_strided", "new_empty_strided")  # fmt: skip
def zeros(n: AtenCall) -> str:
    """Memory of which nothing is known is zeros, too."""
    return _filled(n, 0)


@aten("ones", "ones_like", "new_ones")
def ones(n: AtenCall) -> str:
    return _filled(n, 1)


@aten("fill")
def fill(n: AtenCall) -> str:
    return n.expanded(n.as_made("value"), n.made_shape)


@aten("scalar_tensor")
def scalar_tensor(n: AtenCall) -> str:
    return n.constant(n.arg("s"), n.made_dtype)


@aten("arange")
def arange(n: AtenCall) -> str:
    count = math.prod(n.made_shape)
    n.made(count)
    start = n.arg("start", 0) if n.has("start") else 0
    step = n.arg("step", 1) if n.has("step") else 1
    return n.constant(start + np.arange(count) * step, n.made_dtype)


@aten("linspace")
def linspace(n: AtenCall) -> str:
    n.made(*n.made_shape)
    start, end, steps = n.number("start"), n.number("end"), n.integer("steps")
    step = (end - start) / max(steps - 1, 1)
    places = np.arange(steps)
    halves = np.where(
        places < steps // 2, start + places * step, end - (steps - 1 - places) * step
    )
    return n.constant(halves if steps > 1 else [start] * steps, n.made_dtype)


@aten("eye")
def eye(n: AtenCall) -> str:
    n.made(*n.made_shape)
    rows, columns = n.made_shape
    return n.constant(np.eye(rows, columns), n.made_dtype)


@aten("tril_indices", "triu_indices")
def triangle(n: AtenCall) -> str:
    """Rows and columns of a triangle's places."""
    n.made(*n.made_shape)
    rows, columns, offset = (n.integer(name) for name in ("row", "col", "offset"))
    below = "tril" in str(n.target)
    places = (np.tril_indices if below else np.triu_indices)(rows, offset, columns)
    return n.constant(np.stack(places), n.made_dtype)


def _filled(n: AtenCall, number: bool | int | float) -> str:
    """A constant that takes no memory: one number, repeated."""
    return n.expanded(n.constant(number, n.made_dtype), n.made_shape)

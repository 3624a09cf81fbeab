"""Kernels of a task of open sizes read few copies of its weights, and cost hardly more for it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autotune.compiler import open_strips
from autotune.compiler.kept_kernels import costs_at
from autotune.compiler.open_kernels import TriedKernel
from autotune.compiler.open_sizes import OpenParts
from autotune.compiler.open_strips import strip_kernels
from autotune.compiler.strip_lengths import drawn_values
from autotune.frontend import open_model
from autotune.size_ranges import size_ranges
from autotune.target import load_target
from autotune.tasks.samples import open_extents
from tests.unit.compiler.open_models import FLOAT, model_of, weight

RANGES = {"N": (1, 4), "H": (7, 112)}


def kernels_of_convolution() -> tuple[list[TriedKernel], float]:
    """A convolution's kernels, and the mean over sizes of the least that is predicted."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    dims = ["N", 64, "H", "H"]
    model = open_model(model_of(nodes, {"x": (FLOAT, dims)}, dims, [weight("w", 64, 64, 3, 3)]))
    parts = OpenParts.of(model, size_ranges(RANGES, ("N", "H")), load_target("x86-64-v3"), None)
    (task,) = (t for t in parts.parts.weights() if t.op == "conv2d")
    kernels = strip_kernels(task, parts.machine_of(task), parts.sizes, [])
    drawn = drawn_values(open_extents(task))
    costs = np.array([costs_at(kernel, drawn) for kernel in kernels]).min(axis=0)
    return list(kernels), float(costs[np.isfinite(costs)].mean())


def test_kernels_share_copies_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, cost = kernels_of_convolution()
    monkeypatch.setattr(open_strips, "shared_choices", lambda *_: {})
    apart, least = kernels_of_convolution()
    assert len(shared) == len(apart) > 2
    assert len({kernel.packing for kernel in shared}) < len({kernel.packing for kernel in apart})
    assert cost < 1.05 * least

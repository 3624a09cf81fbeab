"""What reduces, normalizes or scales whole images of open sizes: one program, no plain loops,
equal to numpy in float64 from single elements on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from onnx import helper, numpy_helper

import autotune
from autotune.runtime.sized import SizedModel
from autotune.types import Array
from tests.unit.compiler.open_models import FLOAT, model_of

RANGES = {"N": (1, 9), "H": (1, 40), "W": (1, 40)}
SIZES = (1, 1, 1), (2, 3, 1), (9, 1, 7), (1, 40, 40), (5, 17, 23)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return cast(Array, e / e.sum(1, keepdims=True))


def normalized(x: Array) -> Array:
    mean, power = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    return cast(Array, (x - mean) / np.sqrt(power + 1e-2))


WANTED: dict[str, tuple[str, dict[str, Any], Callable[[Array], Array], list[Any]]] = {
    "largest": ("ReduceMax", {"axes": [2, 3], "keepdims": 0}, lambda x: x.max((2, 3)), ["N", 3]),
    "mean of all": (
        "ReduceMean", {"axes": [1, 2, 3], "keepdims": 0}, lambda x: x.mean((1, 2, 3)), ["N"]
    ),
    "sum": (
        "ReduceSumSquare", {"axes": [2, 3], "keepdims": 1},
        lambda x: (x * x).sum((2, 3), keepdims=True), ["N", 3, 1, 1],
    ),
    "softmax": ("Softmax", {"axis": 1}, softmax, ["N", 3, "H", "W"]),
    "norm": ("InstanceNormalization", {"epsilon": 1e-2}, normalized, ["N", 3, "H", "W"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WANTED)
def test_whole_images(name: str) -> None:
    op, attrs, wanted, made = WANTED[name]
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    named = {"s": ones, "b": zeros} if name == "norm" else {}
    weights = [numpy_helper.from_array(array, n) for n, array in named.items()]
    nodes = [helper.make_node(op, ["x", *named], ["y"], **attrs)]
    proto = model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, made, weights)
    model = autotune.compile(proto, ranges=RANGES, threads=1)
    assert isinstance(model, SizedModel)
    assert model.serves_all
    assert len(model.notes) == 1, model.notes  # none about plain loops
    for n, h, w in SIZES:
        x = np.random.default_rng(n + h).standard_normal((n, 3, h, w)).astype(np.float32)
        want = wanted(x.astype(np.float64))
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=2e-4, atol=2e-5)

"""Products of open sizes whose result has zeros around it, gone through as one run of places."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import autotune
from autotune.compiler import open_strips
from autotune.compiler.open_sizes import OpenParts
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.placement.types import KernelCall
from autotune.request import CompileRequest
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import size_ranges
from autotune.sizes import is_size
from autotune.tasks.apart import together
from autotune.tasks.joined import as_few
from tests.unit.compiler.open_models import FLOAT, model_of, weight

RANGES = {"N": (1, 3, 1), "H": (2, 40, 1), "W": (2, 40, 1)}
SIZES = ((1, 2, 2), (2, 5, 3), (3, 7, 13), (1, 40, 2), (3, 39, 40))


@functools.cache
def network() -> onnx.ModelProto:
    """Many channels from a few, which a filter then reads beyond their border."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"]),
        node("Conv", ["a", "w2", "b2"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "w3"], ["y"], pads=[1] * 4, group=160),
    ]
    weights = [
        weight("w1", 40, 8, 1, 1), weight("w2", 160, 40, 1, 1), weight("w3", 160, 1, 3, 3),
        onnx.numpy_helper.from_array(np.linspace(-1, 1, 160, dtype=np.float32), "b2"),
    ]  # fmt: skip
    return model_of(nodes, {"x": (FLOAT, ["N", 8, "H", "W"])}, [None] * 4, weights)


def calls() -> list[KernelCall]:
    opened = open_model(network(), None)
    assert not isinstance(opened, Graph)
    target = CompileRequest(model="net.onnx", threads=1).wanted_target()
    parts = OpenParts.of(opened, size_ranges(RANGES, opened.symbols), target, None).parts
    return [call for call in parts.calls if call.task.op == "conv2d"]


def test_only_what_has_gaps_in_its_result_alone_is_apart() -> None:
    """The first product has none, the filter reads neighbours."""
    found = [together(as_few(call.task)) for call in calls()]
    assert [task is not None for task in found] == [False, True, False]
    (task,) = (task for task in found if task is not None)
    (output,) = task.by_role("output")
    assert [is_size(extent) for extent in output.type.shape] == [False, False, True, False]


@pytest.mark.parametrize("threads", [1, 2])
def test_all_places_are_computed_and_the_zeros_stay(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little there is to do at a place."""
    monkeypatch.setattr(open_strips, "TABLE_SHARE", np.inf)
    model = autotune.compile(network(), ranges=RANGES, threads=threads)
    assert isinstance(model, SizedModel)
    assert model.serves_all
    peer = onnxruntime.InferenceSession(
        network().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, h, w in SIZES:
        x = np.random.default_rng(h).standard_normal((n, 8, h, w)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)


def test_a_program_has_a_table_of_places_as_long_as_the_output() -> None:
    product = as_few(calls()[1].task)
    found = together(product)
    assert found is not None
    (output,) = product.by_role("output")
    dense = dataclasses.replace(product, values=found.values)
    assert together(dense) is None
    n, h, w, _ = output.type.shape
    assert found.by_role("output")[0].type.shape[2] == n * h * w

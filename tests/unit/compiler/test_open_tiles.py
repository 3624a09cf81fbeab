"""Kernels of open sizes that take any number of tiles: right wherever they serve."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import autotune
from autotune.compiler import open_building, open_tiles
from autotune.compiler.open_kernels import TriedKernel
from autotune.compiler.open_sizes import OpenParts
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.machine import Machine
from autotune.request import CompileRequest
from autotune.size_ranges import size_ranges
from autotune.types import Task
from tests.unit.compiler.open_models import FLOAT, model_of, weight


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_over_all_tiles_equal_onnx_runtime(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made to look free here, so that each call takes one where it may."""
    made: list[TriedKernel] = []

    def free(task: Any, machine: Any, sizes: Any, others: Any, said: list[str]) -> Any:
        slow = [dataclasses.replace(kernel, seconds=1.0) for kernel in others]
        found = open_tiles.tile_kernels(task, machine, sizes, slow, said)
        made.extend(found)
        return [dataclasses.replace(kernel, seconds=1e-30) for kernel in found]

    monkeypatch.setattr(open_building, "tile_kernels", free)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4),
        helper.make_node("Add", ["a", "x"], ["y"]),
    ]
    weights = [weight("w", 32, 32, 3, 3), weight("b", 32)]
    proto = model_of(nodes, {"x": (FLOAT, ["N", 32, "H", "W"])}, ["N", 32, "h", "w"], weights)
    model = autotune.compile(
        proto, ranges={"N": (1, 3), "H": (1, 30), "W": (1, 30)}, threads=threads
    )
    assert "one program serves all of them" in model.notes[0]
    assert made
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, h, w in ((1, 1, 1), (1, 1, 9), (3, 2, 2), (2, 7, 7), (1, 30, 3), (3, 29, 30)):
        x = np.random.default_rng(h).standard_normal((n, 32, h, w)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(("channels", "bound"), [(16, True), (512, False)])
def test_tiles_of_few_channels_stay_in_the_last_cache(channels: int, bound: bool) -> None:
    """What their stages hand on is much beside what they compute."""
    task = parts_of(channels)
    target = CompileRequest(model="net.onnx", threads=1).wanted_target()
    machine = Machine.of(target, None)
    kernels = [
        kernel
        for kernel in open_tiles._tried(task, machine, SAMPLE, [], [])
        if kernel.lengths[1:3] == (4, 4)
    ]
    assert kernels
    assert [kernel.lengths[-1] < 0 for kernel in kernels] == [bound] * len(kernels)


SAMPLE = {"N": 1, "H": 20, "W": 20}


def parts_of(channels: int) -> Task:
    """A convolution of so many channels."""
    weights = [weight("w", channels, channels, 3, 3), weight("v", channels, channels, 3, 3)]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w"], ["y"], pads=[1] * 4),
    ]
    shape = ["N", channels, "H", "W"]
    opened = open_model(model_of(nodes, {"x": (FLOAT, shape)}, [None] * 4, weights), None)
    assert not isinstance(opened, Graph)
    ranges = size_ranges({"N": (1, 4), "H": (4, 300), "W": (4, 300)}, opened.symbols)
    target = CompileRequest(model="net.onnx", threads=1).wanted_target()
    calls = OpenParts.of(opened, ranges, target, None).parts.calls
    return next(call.task for call in reversed(calls) if call.task.op == "conv2d")

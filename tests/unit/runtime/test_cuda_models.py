"""Whole models compiled for CUDA, run on an emulated GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.compiler.driver import compile_graph
from autotune.frontend import load_model
from autotune.frontend.zoo.base import Network
from autotune.graph.interp import run_graph
from autotune.runtime.executor import random_feeds
from autotune.target import load_target
from tests.emulator.device import emulated_cuda


def assert_right(model: str, target: str) -> None:
    """Every output is that of the graph's interpreter."""
    graph = load_model(model)
    with emulated_cuda():
        compiled = compile_graph(graph, load_target(target), processes=1)
        feeds = random_feeds(compiled.inputs, 0)
        got = compiled.run(feeds)
    assert compiled.notes == ()  # no schedule had to be replaced
    for name, want in run_graph(graph, feeds).items():
        assert np.max(np.abs(got[name] - want)) <= 1e-4 * np.max(np.abs(want))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_small_network(target: str) -> None:
    assert_right("zoo:tiny", target)


def test_parts_of_a_concat_may_begin_anywhere(tmp_path: Path) -> None:
    """Channels 0-5, 6-11 and 12-15 of one tensor, which lies behind a halo."""
    net = Network("odd")
    x = net.input("x", np.float32, (1, 8, 6, 6))
    parts = [net.op("Conv", x, net.weights((count, 8, 1, 1), fan_in=8)) for count in (6, 6, 4)]
    joined = net.op("Relu", net.op("Concat", *parts, axis=1))
    y = net.op("Conv", joined, net.weights((12, 16, 3, 3), fan_in=144), pads=[1] * 4)
    path = tmp_path / "odd.onnx"
    onnx.save(net.finish({"y": (y, (1, 12, 6, 6))}), path)
    assert_right(str(path), "sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_networks(name: str) -> None:
    assert_right(f"zoo:{name}", "sm_80")

"""Whole models compiled for CUDA, run on an emulated GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import cost_model
from autotune.codegen.base import DeviceCode
from autotune.compiler import driver
from autotune.compiler.driver import compile_graph
from autotune.compiler.prepare import prepare
from autotune.frontend import load_model
from autotune.frontend.zoo.base import Network
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.machine import Machine
from autotune.measure.build_task import build_task
from autotune.placement.partition import partition
from autotune.placement.unaligned import unaligned_params
from autotune.runtime.model import random_feeds
from autotune.stored import stored
from autotune.target import Target, load_target
from autotune.types import Task
from search_spaces.base import Rule
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.emulator.device import emulated_cuda


def assert_right(model: str, target: Target, limit: float = 1e-4) -> tuple[str, ...]:
    """Every output is that of the graph's interpreter. Gives the sources of schedules."""
    graph = load_model(model)
    with emulated_cuda():
        compiled = compile_graph(graph, target, processes=1)
        feeds = random_feeds(compiled.inputs, 0)
        got = compiled.run(feeds)
    sources = tuple(kernel.source for kernel in compiled.image.kernels)
    assert len(compiled.notes) == sources.count("plain")  # no other schedule had to be replaced
    for name, want in run_graph(graph, feeds).items():
        assert np.max(np.abs(got[name] - want)) <= limit * np.max(np.abs(want))
    return sources


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_small_network(target: str) -> None:
    assert_right("zoo:tiny", load_target(target))


@pytest.mark.parametrize(
    ("target", "precision", "counts"),
    [("sm_80", "float32", (6, 6, 4)), ("sm_80", "bf16", (5, 8, 3)), ("sm_90a", "f16", (7, 4, 5))],
)
def test_parts_of_a_concat_may_begin_anywhere(
    tmp_path: Path, target: str, precision: str, counts: tuple[int, ...]
) -> None:
    """Channels 0-5, 6-11 and 12-15 of one tensor, or the like, which lies behind a halo."""
    net = Network("odd")
    x = net.input("x", np.float32, (1, 8, 6, 6))
    parts = [net.op("Conv", x, net.weights((count, 8, 1, 1), fan_in=8)) for count in counts]
    joined = net.op("Relu", net.op("Concat", *parts, axis=1))
    y = net.op("Conv", joined, net.weights((12, 16, 3, 3), fan_in=144), pads=[1] * 4)
    path = tmp_path / "odd.onnx"
    onnx.save(net.finish({"y": (y, (1, 12, 6, 6))}), path)
    limit = 1e-4 if precision == "float32" else 2e-2
    assert_right(str(path), load_target(target).with_precision(precision), limit)


def part_of_a_row(path: Path) -> Graph:
    """Softmax of 128 elements, of which the first is the fourth of 140."""
    net = Network("part")
    x = net.input("x", np.float32, (1, 140))
    bounds = [net.constant(np.array([n], np.int64)) for n in (3, 131, 1)]
    part = net.op("Slice", net.op("Neg", x), *bounds)
    y = net.op("Softmax", part, axis=-1)
    onnx.save(net.finish({"y": (y, (1, 128))}), path)
    return load_model(str(path))


def test_a_part_of_a_row_is_known_to_begin_anywhere(tmp_path: Path) -> None:
    parts = partition(prepare(part_of_a_row(tmp_path / "part.onnx"), "float32").graph)
    cuda, opencl = load_target("sm_80"), load_target("opencl")
    (names,) = unaligned_params(parts, cuda).values()
    assert names == {"i0"}
    assert unaligned_params(parts, opencl) == {}


def test_a_part_of_a_row_is_read_without_vectors(tmp_path: Path) -> None:
    graph = part_of_a_row(tmp_path / "part.onnx")
    assert_right(str(tmp_path / "part.onnx"), load_target("sm_80"))
    parts, target = partition(prepare(graph, "float32").graph), load_target("sm_80")
    (task,) = unaligned_params(parts, target)
    rule = rule_for(task, target)
    schedule = rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))
    given = (frozenset(("i0",)), frozenset[str]())
    codes = [build_task(task, schedule, target, odd).code for odd in given]
    odd, even = (DeviceCode.decode(code).text.decode() for code in codes)
    assert ("ld.global.v4" in odd, "ld.global.v4" in even) == (False, True)


def test_vectors_at_odd_places_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no test above would show, were the emulator not to look."""
    part_of_a_row(tmp_path / "part.onnx")
    monkeypatch.setattr(driver, "unaligned_params", lambda *_: {})
    with pytest.raises(AssertionError, match="less aligned than its instruction needs"):
        assert_right(str(tmp_path / "part.onnx"), load_target("sm_80"))


def by_groups(task: Task, machine: Machine, rule: Rule) -> Config:
    """Products by groups of four warps where there are any, the least."""
    space = rule.space(task, machine.target)
    if rule.name != "gpu_contraction" or "wgmma" not in space.params[0].choices:
        return _DEFAULT(task, machine, rule)
    given = {"algorithm": "wgmma", "depth": 64, "layout": "swizzled", "stages": 2}
    config = Config(tuple((p.name, given.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    return config


_DEFAULT = cost_model.default


def test_rows_that_the_copy_engine_cannot_take_are_copied_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix whose rows are 256 bytes, the first of which lies at the 8th byte of a tensor."""
    net = Network("odd")
    size = 100 * 128
    x = net.op("Neg", net.input("x", np.float32, (1, size + 8)))
    bounds = [net.constant(np.array([n], np.int64)) for n in (4, size + 4, 1)]
    shape = net.constant(np.array([100, 128], np.int64))
    y = net.dense(net.op("Reshape", net.op("Slice", x, *bounds), shape), 128, 64)
    path = tmp_path / "odd.onnx"
    onnx.save(net.finish({"y": (y, (100, 64))}), path)
    monkeypatch.setattr(cost_model, "default", by_groups)
    target = load_target("sm_90a").with_precision("bf16")
    assert assert_right(str(path), target, 2e-2) == ("default", "plain")


def test_fetches_find_tensors_in_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers by `wgmma`, whose operands the copy engine fetches, replayed twice: what kernels
    keep in memory of their own is made anew."""
    net = Network("layers")
    x = net.input("x", np.float32, (100, 128))
    hidden = net.op("Relu", net.dense(x, 128, 192))
    path = tmp_path / "layers.onnx"
    onnx.save(net.finish({"y": (net.dense(hidden, 192, 64), (100, 64))}), path)
    monkeypatch.setattr(cost_model, "default", by_groups)
    graph = load_model(str(path))
    with emulated_cuda() as device:
        compiled = compile_graph(graph, load_target("sm_90a").with_precision("bf16"), processes=1)
        assert compiled.notes == ()
        for seed in (0, 1):
            feeds = random_feeds(compiled.inputs, seed)
            got, want = compiled.run(feeds)["y"], run_graph(graph, feeds)["y"]
            assert np.max(np.abs(got - want)) <= 2e-2 * np.max(np.abs(want))
    codes = [DeviceCode.decode(code) for code in compiled.image.objects if code]
    assert len(codes) == 2
    assert device.replays == [sum(len(code.launches) for code in codes)] * 2
    assert all(any(launch.maps for launch in code.launches) for code in codes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_networks(name: str) -> None:
    assert_right(f"zoo:{name}", load_target("sm_80"))


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_tensors_between_kernels_are_short(precision: str) -> None:
    """The input as well: arrays of float32, of float16 or of the bits are taken."""
    graph, target = load_model("zoo:tiny"), load_target("sm_80").with_precision(precision)
    limit = {"bf16": 2e-2, "f16": 2e-3}[precision]
    with emulated_cuda():
        compiled = compile_graph(graph, target, processes=1)
        feeds = random_feeds(compiled.inputs, 0)
        ((name, kind),) = compiled.inputs.items()
        given = [feeds[name], feeds[name].astype(np.float16), stored(feeds[name], kind.dtype)]
        got = [compiled.run({name: array})["y"] for array in given]
    assert compiled.notes == ()
    assert kind.dtype == target.precision
    want = run_graph(graph, feeds)["y"]
    for array in got:
        assert array.dtype == np.float32
        assert np.max(np.abs(array - want)) <= limit * np.max(np.abs(want))

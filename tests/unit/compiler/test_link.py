"""Linking: constants once per content, addresses that kernels agree on, outputs that are right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.compiler.build import Kernels
from autotune.compiler.choose import Candidate
from autotune.compiler.constants import ConstantBlock, SharedConstants
from autotune.compiler.link import link
from autotune.graph.feeds import random_feeds
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.measure.build_task import build_task
from autotune.placement.memory_plan import plan_memory
from autotune.placement.partition import partition
from autotune.program.ir import Pack
from autotune.runtime.image import ModelImage
from autotune.runtime.model import CompiledModel
from autotune.target import host_target
from tests.unit.compiler.graphs import mlp


def image_of(graph: Graph, threads: int = 1) -> ModelImage:
    """The graph with naive kernels."""
    parts, target = partition(graph), host_target(threads)
    tasks = tuple(parts.weights())
    kernels = Kernels(
        built={t: build_task(t, (), target) for t in tasks},
        chosen=dict.fromkeys(tasks, Candidate(schedule=(), source="default")),
        notes=(),
    )
    return link(parts, plan_memory(parts), kernels, target, versions=())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layers", [1, 4])
def test_a_linked_model_computes_the_graph(layers: int, threads: int) -> None:
    graph = mlp(layers)
    model = CompiledModel(image_of(graph, threads))
    feeds = random_feeds(model.inputs, seed=1)
    want = run_graph(graph, feeds)["y"]
    np.testing.assert_allclose(model.run(feeds)["y"], want, rtol=1e-4, atol=1e-4)


def test_timing_kernels_one_by_one_gives_the_same_result() -> None:
    graph = mlp(3)
    model = CompiledModel(image_of(graph))
    feeds = random_feeds(model.inputs, seed=1)
    before = model.run(feeds)["y"]
    times = model.bench(repeats=2, feeds=feeds)
    np.testing.assert_array_equal(model.run(feeds)["y"], before)
    assert len(times.kernels) == 3
    assert all(k.time_s > 0 for k in times.kernels)


def test_equal_tasks_share_one_object() -> None:
    image = image_of(mlp(4))
    assert len(image.kernels) == 4
    assert len(image.objects) == len({k.symbol for k in image.kernels}) + 1


def test_input_and_output_ports_are_the_models() -> None:
    image = image_of(mlp(2))
    assert [p.name for p in image.inputs] == ["x"]
    assert [(p.name, p.type.shape) for p in image.outputs] == [("y", (3, 8))]


def test_equal_constants_are_stored_once() -> None:
    block, ones = ConstantBlock(SharedConstants(1 << 10)), np.ones((4, 4), np.float32)
    assert block.add("a", ones) == block.add("b", ones.copy()) == block.add("a", ones)
    assert block.block().nbytes == 64


def test_constants_are_aligned_and_packed() -> None:
    block = ConstantBlock(SharedConstants(1 << 10))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    pack = Pack("c0", (3, 4), ((1, 2),), (1, 0, 2))
    first, second = block.add("a", array[:, :1]), block.add("b", array, pack)
    assert (first, second) == (0, 64)
    stored = block.block()[second : second + array.nbytes].view(np.float32)
    np.testing.assert_array_equal(stored, array.reshape(3, 2, 2).transpose(1, 0, 2).reshape(-1))


def test_one_constant_in_two_layouts_is_stored_twice() -> None:
    block, array = (
        ConstantBlock(SharedConstants(1 << 10)),
        np.arange(6, dtype=np.float32).reshape(2, 3),
    )
    pack = Pack("c0", (2, 3), (), (1, 0))
    assert block.add("a", array) != block.add("a", array, pack)


def test_an_image_runs_after_a_round_trip_through_its_manifest() -> None:
    image = image_of(mlp(2))
    again = ModelImage.from_manifest(image.manifest(), image.objects, image.constants)
    assert dataclasses.replace(again, constants=image.constants) == image
    feeds = random_feeds({p.name: p.type for p in image.inputs}, seed=2)
    np.testing.assert_array_equal(
        CompiledModel(again).run(feeds)["y"], CompiledModel(image).run(feeds)["y"]
    )

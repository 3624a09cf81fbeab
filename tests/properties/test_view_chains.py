"""Kernels of every kind between chains of views, against ONNX Runtime: compiled by LLVM, with
default and with random schedules; with --run-slow more of them, and some by C, OpenCL and on an
emulated GPU."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest

from autotune.compiler.driver import compile_graph
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.types import Record
from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.target import Target, host_target, load_target
from tests.emulator.device import emulated_cuda
from tests.properties.chained_kernels import KERNELS, chained_model
from tests.properties.test_compiled import RandomRecords
from tests.properties.test_onnx_graphs import compare, expected

EACH_KERNEL = pytest.mark.parametrize("kernel", sorted(KERNELS))
STRICT = dataclasses.replace(host_target(1), accuracy="strict")
MOVES = [18, 70, *range(200, 218)]
"""Seeds of models of chains alone."""
BYTES = [10006, 10014, 10031, 10035, 10037, 10039, 10049, 10141]
"""Seeds of models that read quantized inputs as floats, or that move them as bytes."""


class RecordsOfLayouts(RandomRecords):
    """A log of the tasks that a model has once the layouts of its values are chosen."""

    def __init__(self, graph: Graph, target: Target, seed: int) -> None:
        prepared = prepare(graph, target.precision, None, short=target.short_tensors).graph
        self._tasks = {t.key: t for t in arranged(prepared, target, None).weights()}
        self._target, self._rng = target, np.random.default_rng(seed)

    def best(self, task_key: str, target: Target | str) -> Record | None:
        """Nothing of the tasks that a model has in other layouts."""
        return super().best(task_key, target) if task_key in self._tasks else None


def check(seed: int, kernel: str, target: Target, drawn: bool = False, kernels: int = 1) -> None:
    """A model twice, since the arena of the second run holds the values of the first."""
    model, feeds = chained_model(seed, kernel, kernels)
    graph, wanted = import_model(model, {}), expected(model, feeds, as_written=True)
    with emulated_cuda() if target.kind == "cuda" else contextlib.nullcontext():
        log = RecordsOfLayouts(graph, target, seed) if drawn else None
        compiled = compile_graph(graph, target, log, processes=1)
        for _ in range(2):
            compare(compiled.run(feeds), wanted)


@EACH_KERNEL
def test_the_graph_and_its_passes(kernel: str) -> None:
    for seed in range(3):
        model, feeds = chained_model(seed, kernel)
        graph, wanted = import_model(model, {}), expected(model, feeds, as_written=True)
        compare(run_graph(graph, feeds), wanted)
        compare(run_graph(optimize(graph), feeds), wanted)


@EACH_KERNEL
def test_compiled(kernel: str) -> None:
    check(100, kernel, host_target(1))


@pytest.mark.parametrize("seed", MOVES)
def test_chains_alone(seed: int) -> None:
    check(seed, "copy", host_target(1))


@pytest.mark.parametrize("seed", BYTES)
def test_chains_and_bytes(seed: int) -> None:
    check(seed, "quantized", host_target(1), kernels=1 + seed % 3)


def test_a_concat_that_moves_takes_what_lies_in_it_along() -> None:
    """A reshape of an operand had no place any more once the concat was written transposed."""
    check(2641, "layer norm", host_target(1), kernels=3)


@pytest.mark.slow
@EACH_KERNEL
def test_strict_and_on_two_threads(kernel: str) -> None:
    check(101, kernel, STRICT, kernels=2)
    check(102, kernel, host_target(2), kernels=3)


@pytest.mark.slow
@EACH_KERNEL
def test_random_schedules(kernel: str) -> None:
    check(103, kernel, host_target(1), drawn=True, kernels=2)


def test_layouts_that_the_log_does_not_know_are_weighed_too() -> None:
    check(50060, "winograd", STRICT, drawn=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "opencl", "sm_80"])
@EACH_KERNEL
def test_other_backends(kernel: str, name: str) -> None:
    check(104, kernel, load_target(name))

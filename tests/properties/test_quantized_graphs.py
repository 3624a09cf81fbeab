"""Whole quantized networks, compiled, against ONNX Runtime, which takes every node as written.

A value that lies beside a tie may be one step off, and what follows with it: a step is a share of
the largest value, so outputs agree within a few of these, and on the whole much closer.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from autotune.compiler.driver import compile_graph
from autotune.frontend.onnx.importer import import_model
from autotune.target import host_target
from autotune.types import Array
from tests.properties.quantized_graphs import Quantized, quantized

FEW, MANY = range(3000, 3010), range(4000, 4040)
LARGEST, MEAN = 0.15, 0.02
"""Shares of the largest value."""


def expected(made: Quantized) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), options)
    (wanted,) = session.run(None, dict(made.feeds))
    return np.asarray(wanted)


def check(seed: int) -> None:
    made = quantized(seed)
    wanted = expected(made)
    graph = import_model(made.model, {})
    model = compile_graph(graph, host_target(1 + seed % 2), processes=1)
    (got,) = model.run(made.feeds).values()
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), made.how
    apart = np.abs(got.astype(np.float64) - wanted) / max(1e-9, float(np.abs(wanted).max()))
    assert apart.max() <= LARGEST, made.how
    assert apart.mean() <= MEAN, made.how


@pytest.mark.parametrize("seed", FEW)
def test_quantized_networks_compute_what_onnx_runtime_does(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [MANY[n::8] for n in range(8)], ids=str)
def test_many_quantized_networks_do(seeds: range) -> None:
    for seed in seeds:
        check(seed)

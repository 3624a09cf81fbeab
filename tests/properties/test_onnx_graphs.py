"""Random ONNX models through the importer, the passes and the compiler, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from autotune.compiler.driver import compile_graph
from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.graph.pipeline import optimize
from autotune.target import host_target
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.properties.onnx_graphs import random_model
from tests.unit.frontend.onnx_models import assert_close

IMPORTED, COMPILED = range(120), range(1000, 1008)
TOLERANCE = 1e-3


def expected(
    model: onnx.ModelProto, feeds: Mapping[str, Array], as_written: bool = False
) -> Sequence[Array]:
    """`as_written`: without ONNX Runtime's own rewriting, which makes bytes of more than a model
    says."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(a) for a in session.run(None, dict(feeds))]


def compare(got: Mapping[str, Array], wanted: Sequence[Array]) -> None:
    for (name, array), reference in zip(got.items(), wanted, strict=True):
        assert_close(array, reference, TOLERANCE, name)


@pytest.mark.parametrize("seeds", [IMPORTED[i::4] for i in range(4)], ids=str)
def test_import_and_passes(seeds: range) -> None:
    for seed in seeds:
        model, feeds = random_model(seed)
        graph = import_model(model, {})
        verify_graph(graph)
        wanted = expected(model, feeds)
        compare(run_graph(graph, feeds), wanted)
        compare(run_graph(optimize(graph), feeds), wanted)


@pytest.mark.parametrize("seed", COMPILED)
def test_compiled(seed: int) -> None:
    model, feeds = random_model(seed)
    compiled = compile_graph(import_model(model, {}), host_target(1), processes=1)
    compare(compiled.run(feeds), expected(model, feeds))

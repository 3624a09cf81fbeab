"""Small ONNX models for the frontend's tests, and their comparison with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array
from tests.graph_verify import verify_graph

# The lowest IR version that has the opset; onnxruntime takes them all.
IR_VERSIONS = {7: 3, 9: 4, 13: 7, 15: 8, 19: 9, 21: 10, 23: 11}


def node_model(
    op: str,
    inputs: Mapping[str, Array],
    constants: Sequence[Array | None] = (),
    *,
    opset: int = 17,
    outputs: int = 1,
    **attrs: Any,
) -> onnx.ModelProto:
    """A model of one node: `inputs` come from outside, `constants` after them are initializers."""
    names = [None if c is None else f"c{i}" for i, c in enumerate(constants)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(
        op, [*inputs, *(n or "" for n in names)], results, name="node", **attrs
    )
    tensors = [
        numpy_helper.from_array(c, n)
        for n, c in zip(names, constants, strict=True)
        if n is not None and c is not None
    ]
    return nodes_model([node], inputs, tensors, results, opset)


def nodes_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    tensors: Sequence[onnx.TensorProto],
    outputs: Sequence[str],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of some nodes; the outputs' types are left to whoever reads it."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    made = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(list(nodes), "test", infos, made, list(tensors))
    fused = [helper.make_opsetid(d, 1) for d in {n.domain for n in nodes} - {""}]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *fused])
    model.ir_version = next(v for o, v in reversed(IR_VERSIONS.items()) if opset >= o)
    return onnx.shape_inference.infer_shapes(model)


def imported(model: onnx.ModelProto) -> Graph:
    """The verified graph of a model."""
    graph = import_model(model, {})
    verify_graph(graph)
    return graph


def check(model: onnx.ModelProto, feeds: Mapping[str, Array], tolerance: float = 1e-5) -> Graph:
    """Compare all outputs with onnxruntime's; gives the graph for further looks."""
    graph = imported(model)
    got = run_graph(graph, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = session.run(None, dict(feeds))
    assert len(got) == len(expected)
    for (name, array), reference in zip(got.items(), expected, strict=True):
        assert_close(array, np.asarray(reference), tolerance, name)
        wide = array.dtype.kind == "f"
        assert wide == (reference.dtype.kind == "f")
        assert wide or array.dtype == reference.dtype
    return graph


def assert_close(got: Array, expected: Array, tolerance: float, what: str) -> None:
    """Within `tolerance` of the largest value; infinities and NaNs in the same places."""
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    scale = max(1.0, finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * scale,
        err_msg=what,
    )  # fmt: skip


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)

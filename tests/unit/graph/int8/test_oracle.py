"""Convolutions on bytes beside those of ONNX Runtime, for the same steps."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.build import GraphBuilder
from autotune.graph.int8.calibrate import Range
from autotune.graph.int8.lower import lower, weight_bytes
from autotune.graph.int8.plan import QuantizationPlan, Steps
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array, TensorType

DATA, RESULT = (Steps.of(Range(low=-2.5, high=3.0)), Steps.of(Range(low=-9.0, high=8.0)))


def ours(weights: Array, bias: Array, stride: int) -> Graph:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType(dtype="float32", shape=(1, 7, 6, weights.shape[2])))
    attrs = {"strides": (stride,) * 2, "pads": (1,) * 4, "dilations": (1, 1), "groups": 1}
    total = builder.op("conv2d", x, builder.constant(weights), **attrs)
    y = builder.op("add", total, builder.constant(bias))
    last = builder.op("conv2d", y, builder.constant(np.eye(bias.size, dtype="f4")[None, None]))
    graph = builder.finish([("y", last)])
    return lower(
        graph, QuantizationPlan(contractions=frozenset((total, last)), steps={x: DATA, y: RESULT})
    )


def theirs(weights: Array, bias: Array, stride: int, counts: Array) -> Array:
    """QLinearConv: bytes in NCHW to bytes."""
    whole, unit = weight_bytes(weights)
    constants = {
        "xs": np.float32(DATA.step), "xz": np.uint8(DATA.zero),
        "w": whole.transpose(3, 2, 0, 1), "ws": unit.astype("f4"),
        "wz": np.zeros(unit.size, np.int8), "ys": np.float32(RESULT.step),
        "yz": np.uint8(RESULT.zero), "b": np.rint(bias / (unit * DATA.step)).astype(np.int32),
    }  # fmt: skip
    node = helper.make_node(
        "QLinearConv", ["x", *constants], ["y"], pads=[1] * 4, strides=[stride] * 2
    )
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, counts.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (None,) * 4)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": counts})[0])


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_bytes_are_those_of_onnxruntime(channels: int, stride: int) -> None:
    rng = np.random.default_rng(channels + stride)
    weights = rng.standard_normal((3, 3, channels, 12)).astype("f4") * 0.3
    bias = rng.standard_normal(12).astype("f4")
    x = rng.standard_normal((1, 7, 6, channels)).astype("f4")
    seen: dict[str, Array] = {}
    graph = ours(weights, bias, stride)
    run_graph(graph, {"x": x}, "float32", lambda name, array: seen.update({name: array}))
    made = [n.output for n in graph.nodes if n.op == "to_uint8"]
    counts = seen[made[0]].transpose(0, 3, 1, 2)
    wanted = theirs(weights, bias, stride, np.ascontiguousarray(counts))
    got = seen[made[1]].transpose(0, 3, 1, 2)
    # Their bias is a whole number of steps.
    apart = np.abs(got.astype(int) - wanted.astype(int))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.05
    assert len(np.unique(wanted)) > 60

"""Loops that constants bound, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.frontend.onnx import control as onnx_control
from tests.unit.frontend.onnx_models import check, floats, ints, nodes_model
from tests.unit.frontend.test_onnx_errors import refused

FEEDS = {"x": floats(4, 3)}


def model(trips: int | None, last: int | None = None, scans: bool = True) -> onnx.ModelProto:
    """s = 2 s + x[min(trip, 3)], from zeros; it goes on while trip < `last`."""
    nodes = [
        helper.make_node("Min", ["trip", "three"], ["place"]),
        helper.make_node("Gather", ["x", "place"], ["row"]),
        helper.make_node("Mul", ["s", "two"], ["twice"]),
        helper.make_node("Add", ["twice", "row"], ["sum"]),
        helper.make_node("Identity", ["going"], ["on"])
        if last is None
        else helper.make_node("Less", ["trip", "last"], ["on"]),
    ]
    carried = [helper.make_tensor_value_info("s", TensorProto.FLOAT, [3])]
    counters = [
        helper.make_tensor_value_info("trip", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
    ]
    given = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        *[helper.make_tensor_value_info("sum", TensorProto.FLOAT, [3])] * (1 + scans),
    ]
    inner = [
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.array(3), "three"),
    ]
    body = helper.make_graph(nodes, "body", [*counters, *carried], given, inner)
    inputs = ["" if trips is None else "trips", "", "zeros"]
    outputs = ["end", "each"][: 1 + scans]
    loop = helper.make_node("Loop", inputs, outputs, name="loop", body=body)
    tensors = [numpy_helper.from_array(np.zeros(3, np.float32), "zeros")]
    if trips is not None:
        tensors.append(numpy_helper.from_array(ints(trips), "trips"))
    if last is not None:
        tensors.append(numpy_helper.from_array(np.array(last), "last"))
    return nodes_model([loop], FEEDS, tensors, outputs)


def test_count_of_trips() -> None:
    check(model(4), FEEDS)


def test_condition_that_the_body_ends() -> None:
    check(model(None, last=2), FEEDS)


def test_no_trip_gives_what_it_was_given() -> None:
    graph = nodes_model(
        [*model(0, scans=False).graph.node, helper.make_node("Add", ["x", "end"], ["y"])],
        FEEDS, list(model(0, scans=False).graph.initializer), ["y"],
    )  # fmt: skip
    check(graph, FEEDS)


def test_too_many_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_control, "UNROLLED_NODES", 20)
    refused(model(1_000_000), "loop.*more than 5 trips \\(25 nodes\\) are too many to unroll")


def test_loops_within_loops_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has few trips, but those of four are 10**4."""
    monkeypatch.setattr(onnx_control, "UNROLLED_NODES", 200)
    counters = [
        helper.make_tensor_value_info("trip", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
    ]
    node = helper.make_node("Neg", ["s"], ["t"])
    for level in range(4):
        s, t = (
            helper.make_tensor_value_info(f"{v}{'_' * level}", TensorProto.FLOAT, [3])
            for v in "st"
        )
        on = helper.make_tensor_value_info(f"on{level}", TensorProto.BOOL, [])
        first = helper.make_node("Identity", ["going"], [on.name])
        for value in counters:
            value.name += "_"
        first.input[0] = counters[1].name
        body = helper.make_graph([first, node], "body", [*counters, s], [on, t])
        names = [f"{v.name}_" for v in (s, t)]
        node = helper.make_node("Loop", ["ten", "", names[0]], names[1:], body=body)
    tensors = [numpy_helper.from_array(ints(10), "ten")]
    refused(nodes_model([node], {names[0]: floats(3)}, tensors, names[1:]), "too many to unroll")


def test_computed_count_of_trips() -> None:
    computed = model(4)
    del computed.graph.initializer[1]
    computed.graph.input.append(helper.make_tensor_value_info("trips", TensorProto.INT64, [1]))
    refused(computed, "'trips' must be a constant, but it is computed")

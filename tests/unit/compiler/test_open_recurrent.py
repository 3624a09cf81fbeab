"""Recurrent layers whose sequences and batches are open: one program, for every way that the
operators have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.frontend.symbolic import symbolic_model
from autotune.graph.at_sizes import graph_at
from autotune.graph.interp import run_graph
from autotune.runtime.sized import SizedModel
from autotune.sizes import symbol
from autotune.types import Array

FEATURES, HIDDEN = 3, 4
RANGES = {"T": (1, 7, 1), "B": (1, 2, 1)}
SIZES = ((5, 2), (1, 1), (7, 2), (2, 1), (6, 1))
"""Steps and sequences, in an order that jumps."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str, direction: str = "forward", *, state: bool = False, lengths: bool = False,
    layout: int = 0, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One layer with all of its outputs."""
    rng, ways = np.random.default_rng(0), 1 + (direction == "bidirectional")

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.standard_normal(shape).astype(np.float32) * 0.4
        return numpy_helper.from_array(array, name)

    def put(name: str, *shape: object, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    rows = GATES[op] * HIDDEN
    given = [put("x", *(("B", "T") if layout else ("T", "B")), FEATURES)]
    names = ["x", "w", "r", "b" if state else "", "lengths" if lengths else ""]
    if lengths:
        given.append(put("lengths", "B", kind=TensorProto.INT32))
    states = ["h", "c"][: 1 + (op == "LSTM")]
    if state:
        begin = ("B", ways, HIDDEN) if layout else (ways, "B", HIDDEN)
        given += [put(name, *begin) for name in states]
        names += states
    outputs = ["y", *(f"last {name}" for name in states)]
    node = helper.make_node(
        op, names, outputs, hidden_size=HIDDEN, direction=direction, layout=layout, **attrs
    )
    made = [weights("w", ways, rows, FEATURES), weights("r", ways, rows, HIDDEN)]
    made += [weights("b", ways, 2 * rows)] if state else []
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "layer", given, outs, made)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def feeds_at(model: onnx.ModelProto, steps: int, batch: int) -> dict[str, Array]:
    rng, sizes = np.random.default_rng(steps), {"T": steps, "B": batch}
    feeds: dict[str, Array] = {}
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        if info.name == "lengths":
            feeds[info.name] = rng.integers(1, steps + 1, batch).astype(np.int32)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def opened(model: onnx.ModelProto, **options: Any) -> SizedModel:
    made = autotune.compile(model, ranges=RANGES, **options)
    assert isinstance(made, SizedModel)
    assert made.serves_all, made.notes
    return made


def check(model: onnx.ModelProto, judge: onnx.ModelProto | None = None) -> None:
    """`judge`: the same layer with steps first, where `model` has sequences first."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession((judge or model).SerializeToString(), options)
    compiled = opened(model)
    for steps, batch in SIZES:
        feeds = feeds_at(model, steps, batch)
        got = compiled.run(feeds)
        given = {n: a.swapaxes(0, 1) if judge and a.ndim == 3 else a for n, a in feeds.items()}
        y, *last = session.run(None, given)
        if judge:
            y, last = y.transpose(2, 0, 1, 3), [end.swapaxes(0, 1) for end in last]
        for name, want in zip(got, (y, *last), strict=True):
            np.testing.assert_allclose(got[name], want, atol=1e-5, err_msg=f"{name} {steps}")


@pytest.mark.parametrize(
    ("op", "direction", "attrs"),
    [
        ("LSTM", "bidirectional", {"state": True, "lengths": True}),
        ("GRU", "reverse", {"linear_before_reset": 1}),
        *(
            pytest.param(op, direction, attrs, marks=pytest.mark.slow)
            for op, direction, attrs in (
                ("LSTM", "reverse", {"lengths": True}),
                ("GRU", "bidirectional", {"state": True, "lengths": True}),
                ("GRU", "forward", {}),
                ("RNN", "reverse", {}),
                ("RNN", "bidirectional", {"state": True}),
            )
        ),
    ],
)
def test_a_layer_is_one_program(op: str, direction: str, attrs: dict[str, Any]) -> None:
    check(layer(op, direction, **attrs))


@pytest.mark.parametrize("op", ["GRU", pytest.param("LSTM", marks=pytest.mark.slow)])
def test_sequences_may_come_first(op: str) -> None:
    """The rows that a step writes do not lie as the state does that it begins with."""
    check(layer(op, state=True, layout=1), layer(op, state=True))


def test_steps_in_numpy_are_those_of_the_fixed_layer() -> None:
    """The op's own reference, of a graph that was imported for open sizes."""
    model = layer("LSTM", "bidirectional", state=True, lengths=True)
    symbolic = symbolic_model(model, {})
    assert symbolic is not None
    graph = symbolic.open_graph({name: symbol(name, 1, 9) for name in RANGES})
    assert [node.op for node in graph.nodes].count("recur") == 2
    feeds = feeds_at(model, 4, 3)
    fixed = symbolic.graph({"T": 4, "B": 3})
    got, want = (run_graph(g, feeds)["y"] for g in (graph_at(graph, {"T": 4, "B": 3}), fixed))
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_lengths_of_sequences_in_a_model_of_fixed_sizes() -> None:
    model = layer("GRU", "bidirectional", lengths=True, state=True)
    feeds = feeds_at(model, 3, 2)
    (want, *_) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    fixed = autotune.compile(model, shapes={name: a.shape for name, a in feeds.items()})
    np.testing.assert_allclose(fixed.run(feeds)["y"], want, atol=1e-5)


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_sequence_without_steps_ends_in_zeros(op: str) -> None:
    """As ONNX Runtime has it, whatever the sequence begins with; sizes are open or not."""
    model = layer(op, lengths=True, state=True)
    feeds = feeds_at(model, 3, 2) | {"lengths": np.array([0, 2], np.int32)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    fixed = {name: array.shape for name, array in feeds.items()}
    for compiled in (opened(model), autotune.compile(model, shapes=fixed)):
        for got, want in zip(compiled.run(feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)

"""Stages and loops of open sizes: what ran at a few sizes is compiled for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.fallback import compiling
from autotune.fallback.model import StagedModel
from autotune.runtime import trips

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
node, info = helper.make_node, helper.make_tensor_value_info
RNG = np.random.default_rng(8)


def model(
    nodes: Sequence[onnx.NodeProto],
    x: Sequence[int | str],
    outputs: Mapping[str, int],
    tensors: Mapping[str, Any],
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()]
    made = [info(name, kind, None) for name, kind in outputs.items()]
    whole = helper.make_graph(list(nodes), "open", [info("x", FLOAT, x)], made, held)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled_after(
    proto: onnx.ModelProto,
    shapes: Sequence[Sequence[int]],
    later: Sequence[Sequence[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Graphs that are compiled at `later` shapes; outputs at all shapes are ONNX Runtime's."""
    made, whole = list[str](), compiling.compile_graph

    def counted(*given: Any, **options: Any) -> Any:
        made.append("")
        return whole(*given, **options)

    monkeypatch.setattr(compiling, "compile_graph", counted)
    ours = autotune.compile(proto, machine="nominal", fallback=False)
    assert isinstance(ours, StagedModel)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    before = 0
    for shape in (*shapes, *later):
        before = before if shape in later else len(made)
        feeds = {"x": RNG.standard_normal(shape, np.float32)}
        for got, want in zip(ours.run(feeds).values(), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert made
    return len(made) - before


def test_images_behind_a_stride_before_boxes_that_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Images smaller than the filter are left out of the program of the first stage."""
    nodes = [
        node("Conv", ["x", "w"], ["y"], strides=[4, 4]),
        node("NonZero", ["y"], ["places"]), node("Shape", ["places"], ["how_many"]),
    ]  # fmt: skip
    weights = RNG.standard_normal((2, 3, 4, 4), np.float32)
    proto = model(nodes, [1, 3, "H", "W"], {"places": INT, "how_many": INT}, {"w": weights})
    first = [(1, 3, 8, 12), (1, 3, 13, 21)]
    assert compiled_after(proto, first, [(1, 3, 30, 9), (1, 3, 16, 40)], monkeypatch) == 0


@pytest.mark.slow  # some ten parts are compiled
@pytest.mark.parametrize("kind", ["Scan", "Loop"])
def test_loops_whose_trips_a_size_counts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are unrolled for no size, and a body of any batch runs without Python in between."""
    step = [node("MatMul", ["s", "w"], ["p"]), node("Add", ["p", "r"], ["q"])]
    step += [node("Tanh", ["q"], ["t"]), node("Neg", ["t"], ["u"])]
    states = [helper.make_empty_tensor_value_info(n) for n in "sr"]
    results = [helper.make_empty_tensor_value_info(n) for n in "tu"]
    nodes = [node("ReduceMax", ["x"], ["h"], axes=[1], keepdims=0)]
    if kind == "Scan":
        body = helper.make_graph(step, "body", states, results)
        nodes += [
            node("Scan", ["h", "x"], ["end", "all"], body=body, num_scan_inputs=1,
                 scan_input_axes=[1], scan_output_axes=[1])
        ]  # fmt: skip
    else:
        number, on, still = info("i", INT, ()), *(info(n, TensorProto.BOOL, ()) for n in "cd")
        row = [node("Gather", ["x", "i"], ["r"], axis=1), node("Identity", ["c"], ["d"])]
        body = helper.make_graph([*row, *step], "body", [number, on, states[0]], [still, *results])
        nodes += [
            node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["length"]),
            node("Loop", ["length", "", "h"], ["end", "all"], body=body),
        ]  # fmt: skip
    weights = {"w": RNG.standard_normal((4, 4), np.float32), "one": np.int64(1)}
    proto = model(nodes, ["B", "T", 4], {"end": FLOAT, "all": FLOAT}, weights)
    native, run = list[int](), trips.Trips.run
    monkeypatch.setattr(trips.Trips, "run", lambda *given: native.append(given[-1]) or run(*given))
    later = [(1, 9, 4), (5, 2, 4), (3, 20, 4)]
    assert compiled_after(proto, [(2, 3, 4), (3, 5, 4), (4, 6, 4)], later, monkeypatch) == 0
    assert native[-1] in (19, 20)  # the first one may be looked at


def test_values_that_decide_lengths_and_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows as many as durations say: no model is for single durations."""
    nodes = [
        node("Relu", ["x"], ["r"]), node("Ceil", ["r"], ["c"]),
        node("ReduceSum", ["c"], ["total"], keepdims=0), node("Cast", ["total"], ["end"], to=INT),
        node("Range", ["zero", "end", "one"], ["places"]),
        node("Cast", ["places"], ["at"], to=FLOAT), node("Sin", ["at"], ["y"]),
    ]  # fmt: skip
    tensors = {"zero": np.int64(0), "one": np.int64(1)}
    proto = model(nodes, ["T"], {"y": FLOAT}, tensors)
    first = [(20,)] * 4 + [(31,), (9,)]
    assert compiled_after(proto, first, [(24,), (40,), (11,)], monkeypatch) == 0


def test_lengths_that_were_alike_and_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two square images, then others: height and width were one symbol."""
    nodes = [node("Mul", ["x", "x"], ["y"]), node("NonZero", ["y"], ["places"])]
    proto = model(nodes, ["H", "W"], {"y": FLOAT, "places": INT}, {})
    first = [(8, 8), (12, 12), (6, 9)]
    assert compiled_after(proto, first, [(30, 7), (5, 5), (9, 16)], monkeypatch) == 0


def test_shapes_and_numbers_of_other_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage behind one that counts works out for itself what follows from the input's shape."""
    nodes = [
        node("Constant", [], ["two"], value_ints=[2]), node("Shape", ["x"], ["s"], start=1),
        node("Mul", ["s", "two"], ["twice"]), node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["found"], start=1), node("Concat", ["x", "x"], ["b"], axis=1),
        node("Add", ["found", "zero"], ["n"]), node("Cast", ["n"], ["number"], to=FLOAT),
        node("Mul", ["b", "number"], ["z"]), node("Reshape", ["z", "twice"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, [1, "T"], {"y": FLOAT}, {"zero": np.array([0], np.int64)})
    first = [(1, 8), (1, 12)]
    assert compiled_after(proto, first, [(1, 30), (1, 7)], monkeypatch) == 0

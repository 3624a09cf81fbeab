"""Operators along an open axis: one program, with ONNX Runtime as the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.runtime.sized import SizedModel
from autotune.types import Array

RANGES = {"N": (1, 2, 1), "T": (3, 20, 1)}
SIZES = ((2, 9), (1, 3), (2, 20), (1, 4), (2, 10))
"""Of N and T, in an order that jumps."""
POOL = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}


def check(op: str, shape: list[Any], given: dict[str, Any], **attrs: Any) -> None:
    """`given`: constant inputs behind x; values stay apart and have some that are equal."""
    outputs = ["y", "places"][: 1 + (op == "TopK")]
    kinds = {"places": TensorProto.INT64, "y": TensorProto.FLOAT}
    kinds["y"] = TensorProto.INT64 if op.startswith("Arg") else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *given], outputs, **attrs)],
        "axis",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, kinds[name], None) for name in outputs],
        [numpy_helper.from_array(np.array(v), name) for name, v in given.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    used = {name: allowed for name, allowed in RANGES.items() if name in shape}
    compiled = autotune.compile(model, ranges=used)
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for count, extent in SIZES:
        sizes = [{"N": count, "T": extent}.get(d, d) for d in shape]
        x = drawn(sizes)
        got = compiled.run({"x": x})
        for name, want in zip(outputs, session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got[name], want, atol=1e-5, err_msg=f"{name} {sizes}")


@pytest.mark.parametrize(
    ("mode", "padding", "aligned"),
    [("bilinear", "zeros", 0), ("nearest", "border", 1), ("bilinear", "reflection", 1)],
)
def test_images_seen_on_a_grid(mode: str, padding: str, aligned: int) -> None:
    """Image, grid and batch are open; one row of an image is a mirror of itself."""
    how = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    inputs = {"x": ["N", 2, "H", "W"], "grid": ["N", "P", 3, 2]}
    graph = helper.make_graph(
        [helper.make_node("GridSample", [*inputs], ["y"], **how)],
        "grid",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    ranges = {"N": (1, 2, 1), "H": (1, 6, 1), "W": (1, 6, 1), "P": (1, 4, 1)}
    compiled = autotune.compile(model, ranges=ranges)
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(0)
    for sizes in ((2, 4, 6, 3), (1, 1, 5, 4), (2, 6, 2, 1)):
        at = dict(zip("NHWP", sizes, strict=True))
        feeds = {
            name: rng.uniform(-1.3, 1.3, [at.get(str(d), d) for d in shape]).astype(np.float32)
            for name, shape in inputs.items()
        }
        (want,) = session.run(None, feeds)
        np.testing.assert_allclose(compiled.run(feeds)["y"], want, atol=1e-5, err_msg=str(at))


def drawn(shape: list[int]) -> Array:
    values = np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(np.float32)
    values.flat[1::7] = -np.inf
    return values


@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_in_order(largest: int) -> None:
    check("TopK", ["N", "T"], {"k": [3]}, axis=1, largest=largest)


@pytest.mark.parametrize(
    ("op", "shape", "given", "attrs"),
    [
        ("ArgMax", ["N", "T", 4], {}, {"axis": 1}),
        ("Hardmax", ["N", "T", 4], {}, {"axis": 1}),
        ("CumSum", ["N", "T", 4], {"axis": 1}, {"reverse": 1, "exclusive": 1}),
        ("MaxPool", [1, 2, "T"], {}, POOL),
        ("MaxPool", [1, 2, "T"], {}, {**POOL, "pads": [1, 1]}),
    ],
)
def test_along_an_open_axis(
    op: str, shape: list[Any], given: dict[str, Any], attrs: dict[str, Any]
) -> None:
    check(op, shape, given, **attrs)


def test_nothing_is_written_behind_a_row_of_one() -> None:
    """What the elements behind the first one are added to is not there."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "rows",
        [info("x", TensorProto.FLOAT, ["N", "T", 4])],
        [info("y", TensorProto.FLOAT, ["N", "T", 4])],
        [numpy_helper.from_array(np.array(1), "axis")],
    )
    opset = [helper.make_opsetid("", 17)]
    compiled = autotune.compile(helper.make_model(graph, opset_imports=opset, ir_version=8))
    for count, extent in ((1, 1), (3, 1), (2, 2), (2, 5)):
        x = np.arange(count * extent * 4, dtype=np.float32).reshape(count, extent, 4)
        around = np.full(x.size + 64, 7.25, np.float32)
        compiled.run({"x": x}, out={"y": around[: x.size].reshape(x.shape)})
        np.testing.assert_array_equal(around[: x.size].reshape(x.shape), x.cumsum(axis=1))
        np.testing.assert_array_equal(around[x.size :], 7.25)


def test_sizes_are_results_of_windows_that_short_lengths_have_none_of() -> None:
    """How long the result is, and twice that, are outputs, too."""
    node, info = helper.make_node, helper.make_tensor_value_info
    weights = np.random.default_rng(4).standard_normal((5, 2, 150)).astype(np.float32)
    graph = helper.make_graph(
        [
            node("Conv", ["x", "w"], ["y"], strides=[2]), node("Shape", ["y"], ["shape"]),
            node("Add", ["shape", "shape"], ["twice"]),
        ],
        "sizes",
        [info("x", TensorProto.FLOAT, [1, 2, "T"])],
        [info("y", TensorProto.FLOAT, None)]
        + [info(name, TensorProto.INT64, [3]) for name in ("shape", "twice")],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    compiled = autotune.compile(model, ranges={"T": (150, 900)})
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for extent in (150, 400, 899):
        x = drawn([1, 2, extent])
        got = compiled.run({"x": x}).values()
        for one, want in zip(got, session.run(None, {"x": x}), strict=True):
            assert one.dtype == want.dtype
            np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-4)

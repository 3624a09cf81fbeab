"""Convolutions and pools of random shapes, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.graph.pipeline import optimize
from tests.graph_verify import verify_graph
from tests.unit.frontend.onnx_models import check, floats, node_model

SIZES = st.integers(1, 9)
AUTO = st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])


@st.composite
def windows(draw: st.DrawFn, dims: int, *, dilated: bool = True) -> dict[str, object]:
    """Attributes of a sliding window, and the image it slides over under `size`."""
    kernel = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    strides = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    auto = draw(AUTO)
    # With SAME, onnxruntime refuses dilations, and crops (where the authors of SAME do nothing)
    # when strides are larger than kernels.
    largest = 1 if auto.startswith("SAME") or not dilated else 2
    if auto.startswith("SAME"):
        strides = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
    dilations = draw(st.lists(st.integers(1, largest), min_size=dims, max_size=dims))
    attrs: dict[str, object] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "auto_pad": auto,
        "size": draw(st.lists(SIZES, min_size=dims, max_size=dims)),
    }
    pads = [0] * (2 * dims)
    if auto == "NOTSET":
        pads = [draw(st.integers(0, kernel[i % dims] - 1)) for i in range(2 * dims)]
        attrs["pads"] = pads
    sizes = attrs["size"]
    assert isinstance(sizes, list)
    if not auto.startswith("SAME"):
        for i, size in enumerate(sizes):
            # A dilated window must not lie in the padding alone: its maximum is anyone's guess.
            padding = pads[i] + pads[i + dims] if dilations[i] == 1 else 0
            assume(size + padding > (kernel[i] - 1) * dilations[i])
    return attrs


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 4]), st.integers(1, 2))
def test_conv(data: st.DataObject, dims: int, groups: int, batch: int) -> None:
    attrs = data.draw(windows(dims))
    size = attrs.pop("size")
    inputs, outputs = 4, groups * data.draw(st.integers(1, 2))
    weights = floats(outputs, inputs // groups, *attrs["kernel_shape"], seed=1)  # type: ignore[misc]
    feeds = {"x": floats(batch, inputs, *size)}  # type: ignore[misc]
    bias = floats(outputs, seed=2) if data.draw(st.booleans()) else None
    model = node_model("Conv", feeds, (weights, bias), group=groups, **attrs)
    verify_graph(optimize(check(model, feeds)))


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 2, 3]), st.integers(0, 1))
def test_max_pool(data: st.DataObject, dims: int, ceil: int) -> None:
    attrs = data.draw(windows(dims))
    size = attrs.pop("size")
    feeds = {"x": floats(2, 3, *size)}  # type: ignore[misc]
    check(node_model("MaxPool", feeds, ceil_mode=ceil, **attrs), feeds)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 2, 3]), st.integers(0, 1), st.integers(0, 1))
def test_average_pool(data: st.DataObject, dims: int, ceil: int, padded: int) -> None:
    attrs = data.draw(windows(dims, dilated=False))
    size = attrs.pop("size")
    del attrs["dilations"]
    feeds = {"x": floats(2, 3, *size)}  # type: ignore[misc]
    options = {"ceil_mode": ceil, "count_include_pad": padded}
    check(node_model("AveragePool", feeds, opset=19, **options, **attrs), feeds)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]))
def test_conv_transpose(data: st.DataObject, dims: int, groups: int) -> None:
    kernel, strides, size = (
        data.draw(st.lists(st.integers(1, high), min_size=dims, max_size=dims))
        for high in (4, 3, 4)
    )
    dilations = data.draw(st.lists(st.integers(1, 2), min_size=dims, max_size=dims))
    more = [data.draw(st.integers(0, s - 1)) for s in strides]
    pads = [
        data.draw(st.integers(0, (kernel[i % dims] + more[i % dims] - 1) // 2))
        for i in range(2 * dims)
    ]
    feeds = {"x": floats(2, 4, *size)}
    model = node_model(
        "ConvTranspose", feeds, (floats(4, 3, *kernel, seed=1), floats(3 * groups, seed=2)),
        strides=strides, dilations=dilations, output_padding=more, pads=pads, group=groups,
    )  # fmt: skip
    verify_graph(optimize(check(model, feeds)))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("size", [(5,), (3, 4), (2, 3, 4)])
def test_global_pool(op: str, size: tuple[int, ...]) -> None:
    feeds = {"x": floats(2, 3, *size)}
    check(node_model(op, feeds), feeds)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    feeds = {"x": floats(2, 7, 3, 4)}
    check(node_model("LRN", feeds, size=size, alpha=0.1, beta=0.6, bias=1.5), feeds)


def test_image_operators_are_nhwc_inside() -> None:
    feeds = {"x": floats(1, 4, 5, 6)}
    graph = check(node_model("Conv", feeds, (floats(8, 4, 3, 3, seed=1),)), feeds)
    conv = next(n for n in graph.nodes if n.op == "conv2d")
    assert graph.types[conv.inputs[0]].shape == (1, 5, 6, 4)
    assert graph.constants[conv.inputs[1]].shape == (3, 3, 4, 8)
    assert graph.types[conv.output].shape == (1, 3, 4, 8)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "int8", "uint16"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 2.5, 1)])
def test_integers_resized_are_mixed_as_floats(kind: str, mode: str, scales: Any) -> None:
    """Weights are no integers: between equal values lie values like them."""
    x = np.full((1, 2, 4, 4), 8, kind)
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    model = node_model("Resize", {"x": x}, [None, np.array(scales, np.float32)], **attrs)
    (got,) = run_graph(import_model(model, {}), {"x": x}).values()
    assert got.dtype == x.dtype
    assert np.abs(got.astype(int) - 8).max() <= 1

"""A run gives the same whatever arrays it reads from and writes to: any strides, byte orders and
alignments, outputs over inputs; and numbers become arrays as they would one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import FeedError
from autotune.graph.feeds import as_array
from autotune.runtime.model import CompiledModel
from autotune.types import Array

MEMORY_BYTES = 1600
WEIGHTS = np.random.default_rng(0).integers(-3, 4, (8, 4)).astype(np.float32)
SHAPES = {"x": (3, 8), "z": (3, 8), "y": (3, 4)}


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    """z = x + 1 and y = x @ w: who writes z over x too early spoils y, and the other way round."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "one"], ["z"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "net",
        [info("x", TensorProto.FLOAT, SHAPES["x"])],
        [info(name, TensorProto.FLOAT, SHAPES[name]) for name in ("z", "y")],
        [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(np.float32([1]), "one")],
    )
    return autotune.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, int]) -> tuple[Any, ...]:
    """Type, byte offset and byte strides of an array without overlaps in itself, anywhere in a
    block of memory."""
    rows, columns = shape
    if draw(st.booleans()):  # the model itself reads and writes these
        return "<f4", 4 * draw(st.integers(0, 30)), (4 * columns, 4)
    step = 4 * draw(st.sampled_from((1, 1, 1, 2)))
    if draw(st.booleans()):
        strides = [columns * step + 4 * draw(st.integers(0, 2)), step]
    else:
        strides = [step, rows * step]
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 4
    first = draw(st.integers(0, 200)) * draw(st.sampled_from((4, 4, 1)))
    offset = min(first, MEMORY_BYTES - reach)
    for d in range(2):
        if draw(st.sampled_from((False, False, True))):
            offset += (shape[d] - 1) * strides[d]
            strides[d] = -strides[d]
    return draw(st.sampled_from(("<f4", "<f4", ">f4"))), offset, tuple(strides)


def array_of(view: tuple[Any, ...], shape: tuple[int, int], memory: Array) -> Array:
    kind, offset, strides = view
    return np.ndarray(shape, kind, memory, offset, strides)


@settings(max_examples=300)
@given(
    feed=views(SHAPES["x"]),
    outs=st.fixed_dictionaries({}, optional={n: views(SHAPES[n]) for n in ("z", "y")}),
    seed=st.integers(0, 99),
)
def test_results_do_not_depend_on_where_arrays_lie(
    model: CompiledModel, feed: tuple[Any, ...], outs: dict[str, tuple[Any, ...]], seed: int
) -> None:
    memory = np.zeros(MEMORY_BYTES, np.uint8)
    x = array_of(feed, SHAPES["x"], memory)
    x[...] = np.random.default_rng(seed).integers(-9, 9, SHAPES["x"])
    exact = x.astype(np.float64)
    want = {"z": exact + 1, "y": exact @ WEIGHTS}
    out = {name: array_of(view, SHAPES[name], memory) for name, view in outs.items()}
    if len(out) == 2 and np.shares_memory(out["z"], out["y"]):
        with pytest.raises(FeedError, match="lie in the same memory"):
            model.run({"x": x}, out=out)
        return
    got = model.run({"x": x}, out=out)
    for name, array in got.items():
        np.testing.assert_array_equal(array, want[name])
        assert name not in out or array is out[name]


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from((0, 1, -1, 127, 128, -128, 255, 256, 2**31, 2**63 - 1, 2**63, 2**64)),
    st.floats(allow_nan=True, allow_infinity=True),
)
INTEGERS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1),
            "int64": (-(2**63), 2**63 - 1)}  # fmt: skip


def fits(value: Any, dtype: str) -> bool:
    """Whether a Python number may stand for an element: of the same kind, and within its range."""
    if dtype == "bool":
        return isinstance(value, bool)
    if dtype in INTEGERS:
        least, most = INTEGERS[dtype]
        return isinstance(value, int) and least <= value <= most
    if isinstance(value, int):
        return -(2**63) <= value < 2**64 and (dtype != "float16" or abs(value) < 65520)
    with np.errstate(over="ignore"):
        return not math.isfinite(value) or bool(np.isfinite(np.dtype(dtype).type(value)))


@settings(max_examples=400)
@given(
    value=NUMBERS, dtype=st.sampled_from(("float32", "float64", "float16", "bool", *INTEGERS)),
    nested=st.booleans(),
)  # fmt: skip
def test_a_number_is_taken_where_it_stays_what_it_is(value: Any, dtype: str, nested: bool) -> None:
    given_value = [[value]] if nested else value
    if not fits(value, dtype):
        with pytest.raises(FeedError, match=r"^input x: "):
            as_array(given_value, dtype, "input x")
        return
    array = as_array(given_value, dtype, "input x")
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.full((1, 1) if nested else (), value, dtype))

"""float16 at a model's ends: read and written by kernels, as the model declares it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.prepare import prepare
from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.types import Array

HALF = TensorProto.FLOAT16


def network(rows: int | str = 3) -> bytes:
    """y = relu(x w), and x itself doubled; all of float16."""
    rng = np.random.default_rng(5)
    w = rng.standard_normal((24, 40)).astype(np.float16)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
        helper.make_node("Add", ["x", "x"], ["twice"]),
    ]
    graph = helper.make_graph(
        nodes, "halves", [helper.make_tensor_value_info("x", HALF, [rows, 24])],
        [helper.make_tensor_value_info("y", HALF, [rows, 40]),
         helper.make_tensor_value_info("twice", HALF, [rows, 24])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data: bytes = made.SerializeToString()
    return data


def halves(rows: int = 3) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float16)


def wanted(x: Array) -> dict[str, Array]:
    graph = prepare(import_model(onnx.load_from_string(network(len(x))), {}), "float32").graph
    found = run_graph(graph, {"x": x.astype(np.float32)})
    return {name: np.asarray(v).astype(np.float16) for name, v in found.items()}


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_no_array_is_converted_outside(target: str) -> None:
    model = autotune.compile(network(), target=target)
    assert [port.type.dtype for port in model.image.inputs + model.image.outputs] == [
        "float16"
    ] * 3
    assert not any(port.declared for port in model.image.outputs)
    x = halves()
    got = model.run({"x": x})
    for name, array in wanted(x).items():
        assert got[name].dtype == np.float16
        np.testing.assert_allclose(got[name], array, rtol=2e-3, atol=1e-3)
    again = model.run({"x": x.astype(np.float32)})  # rounded as it is taken
    np.testing.assert_array_equal(again["y"], got["y"])
    into = {"twice": np.empty((3, 24), np.float16)}
    model.run({"x": x}, out=into, outputs=["twice"])
    np.testing.assert_array_equal(into["twice"], x * 2)


def test_the_ends_of_the_type() -> None:
    model = autotune.compile(network(1))
    x = np.zeros((1, 24), np.float16)
    x[0, :6] = (np.inf, -np.inf, np.nan, 65504, 6e-8, -6e-8)
    with np.errstate(over="ignore"):
        expected = x + x
    np.testing.assert_array_equal(model.run({"x": x}, outputs=["twice"])["twice"], expected)


def test_of_open_sizes() -> None:
    model = autotune.compile(network("N"), ranges={"N": (1, 64)})
    for rows in (1, 7, 64):
        x = halves(rows)
        got = model.run({"x": x})
        assert got["y"].dtype == np.float16
        np.testing.assert_allclose(got["y"], wanted(x)["y"], rtol=2e-3, atol=1e-3)
        np.testing.assert_array_equal(got["twice"], x * 2)


def test_casts_at_the_end_round_once(tmp_path: Path) -> None:
    """What rounds already is part of the conversion; the result is that of numpy's."""
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=HALF)], "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", HALF, [4096])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model = autotune.compile(made.SerializeToString())
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4096, dtype=np.uint32)
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(model.run({"x": x})["y"], x.astype(np.float16))
    assert [kernel.op for kernel in model.image.kernels] == ["to_float16"]
    path = tmp_path / "cast.model"
    model.save(path)
    assert autotune.load(path).run({"x": x})["y"].dtype == np.float16

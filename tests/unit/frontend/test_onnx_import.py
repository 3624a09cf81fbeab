"""What the import makes of a model: folding, scalars, shapes, names, external data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.errors import ModelError
from autotune.frontend import load_model
from autotune.frontend.onnx.importer import import_model, import_onnx
from autotune.graph.interp import run_graph
from tests.unit.frontend.onnx_models import (
    assert_close,
    check,
    floats,
    imported,
    ints,
    node_model,
    nodes_model,
)


def symbolic(*dims: int | str | None, name: str = "x") -> onnx.ModelProto:
    """y = Relu(x) with an input of such dimensions."""
    model = node_model("Relu", {name: floats(1, 1)})
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        if isinstance(dim, int):
            shape.dim.add(dim_value=dim)
        else:
            shape.dim.add(dim_param=dim or "")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    return model


def test_shape_arithmetic_is_folded() -> None:
    feeds = {"x": floats(2, 3, 4)}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "zeros"], ["b"]),
        helper.make_node("Concat", ["b", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    arrays = {"zero": np.array(0), "zeros": ints(0), "rest": ints(-1)}
    tensors = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = check(nodes_model(nodes, feeds, tensors, ["y"]), feeds)
    assert [n.op for n in graph.nodes] == ["reshape"]
    assert not graph.constants


def test_constants_of_one_element_become_scalars() -> None:
    feeds = {"x": floats(2, 3)}
    graph = check(node_model("Mul", feeds, (np.full((1,), 2.5, np.float32),)), feeds)
    assert [n.op for n in graph.nodes] == ["scalar", "mul"]
    assert graph.nodes[0].attributes == {"value": 2.5, "dtype": "float32"}


def test_scalar_keeps_the_rank_of_its_constant() -> None:
    feeds = {"x": floats(3)}
    check(node_model("Add", feeds, (np.ones((1, 1, 1), np.float32),)), feeds)


def test_weights_are_not_copied_by_the_import() -> None:
    feeds = {"x": ints(1, 2)}
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"], axis=0)]
    table = numpy_helper.from_array(floats(9, 4), "table")
    graph = check(nodes_model(nodes, feeds, [table], ["y"]), feeds)
    assert list(graph.constants) == ["table"]


def test_folding_does_not_blow_constants_up() -> None:
    feeds = {"x": floats(1, 512, 512)}
    nodes = [
        helper.make_node("Expand", ["row", "shape"], ["big"]),
        helper.make_node("Add", ["x", "big"], ["y"]),
    ]
    tensors = [
        numpy_helper.from_array(floats(512), "row"),
        numpy_helper.from_array(ints(1, 512, 512), "shape"),
    ]
    graph = check(nodes_model(nodes, feeds, tensors, ["y"]), feeds)
    assert [a.size for a in graph.constants.values()] == [512]


def test_int64_stays_int64() -> None:
    feeds = {"x": ints(1, 2, 3)}
    graph = check(node_model("Mul", feeds, (ints(7),)), feeds)
    assert {t.dtype for t in graph.types.values()} == {"int64"}


def test_an_output_that_is_an_input_is_copied() -> None:
    graph = check(node_model("Identity", {"x": floats(3)}), {"x": floats(3)})
    assert [n.op for n in graph.nodes] == ["copy"]


@pytest.mark.parametrize("op", ["Atan", "Asin", "Acos", "Asinh", "Atanh", "Sinh", "Tan"])
def test_angles_near_and_far(op: str) -> None:
    most = {"Asin": 1.0, "Acos": 1.0, "Atanh": 0.99, "Tan": 1.5, "Sinh": 5.0}.get(op, 1e4)
    x = np.array([0, 1e-4, 0.1, 0.41, 0.42, 0.7, 1.0], np.float32) * np.float32(most)
    both = np.concatenate([-x, x])
    check(node_model(op, {"x": both}), {"x": both}, 1e-6)


def test_whole_powers() -> None:
    x = ints(-5, 0, 7)
    graph = check(node_model("Pow", {"x": x}, [ints(3)]), {"x": x})
    assert {n.op for n in graph.nodes} <= {"expand", "mul"}
    check(node_model("Pow", {"x": x}, [np.array([0, 2, 9])]), {"x": x})
    check(node_model("Pow", {"x": ints(1, 2, 7)}, [np.float32([2.5])]), {"x": ints(1, 2, 7)})
    bytes_ = {"x": np.array([4, 9, 12], np.uint8)}
    got = run_graph(imported(node_model("Pow", bytes_, [np.float32([0.5])])), bytes_)["y0"]
    np.testing.assert_array_equal(got, [2, 3, 3])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_least_of_integers(dtype: str) -> None:
    low = np.iinfo(dtype).min
    feeds = {"x": np.array([[1, low, 0, low], [low, 3, 2, 1]], dtype)}
    check(node_model("ArgMin", feeds, axis=1, opset=13), feeds)
    check(node_model("ArgMin", feeds, axis=1, opset=13, select_last_index=1), feeds)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_least_of_wide_integers_without_a_sign(dtype: str) -> None:
    """ONNX Runtime has none of these."""
    top = np.iinfo(dtype).max
    feeds = {"x": np.array([[3, top, 1, top - 1], [top, top // 2 + 1, 9, top]], dtype)}
    graph = imported(node_model("ArgMin", feeds, axis=1, opset=13))
    np.testing.assert_array_equal(run_graph(graph, feeds)["y0"], [[2], [2]])


@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers(operator: str) -> None:
    feeds = {"x": np.array([[3, 4, 11], [60, 25, 8]], np.int32)}
    check(node_model(operator, feeds, axes=[1], opset=11), feeds)


def test_backward_from_before_the_first_element() -> None:
    feeds = {"x": floats(2, 5)}
    parameters = (ints(-4), ints(-(2**31)), ints(0), ints(-2))
    check(node_model("Slice", feeds, parameters), feeds)


def test_identities_take_their_own_type() -> None:
    graph = imported(node_model("EyeLike", {"x": floats(3, 4)}, dtype=onnx.TensorProto.INT64))
    assert graph.types[graph.outputs[0][1]].dtype == "int64"


def test_scales_of_rms_norms_may_vary_outside_the_norm() -> None:
    scale = floats(1, 3, 8)
    (y,) = run_graph(
        imported(node_model("RMSNormalization", {"x": floats(2, 3, 8)}, [scale], opset=23)),
        {"x": floats(2, 3, 8)},
    ).values()  # fmt: skip
    x = floats(2, 3, 8)
    assert_close(y, x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale, 1e-5, "y")


def test_one_constant_index_is_a_slice() -> None:
    feeds = {"x": floats(2, 5, 3)}
    graph = check(node_model("Gather", feeds, (np.array(-1),), axis=1), feeds)
    assert [n.op for n in graph.nodes] == ["slice", "reshape"]


def test_constant_indices_in_even_steps_are_a_slice() -> None:
    feeds = {"x": floats(1, 24, 7)}
    graph = check(node_model("Gather", feeds, (np.array([4, 20]),), axis=1), feeds)
    assert [n.op for n in graph.nodes] == ["slice"]


def test_nodes_carry_the_names_of_the_model() -> None:
    graph = imported(node_model("Relu", {"x": floats(3)}))
    assert [n.name for n in graph.nodes] == ["node"]


def test_symbolic_dimensions_take_the_given_shape() -> None:
    graph = import_model(symbolic("batch", 3, None), {"x": (2, 3, 8)})
    assert graph.inputs[0][1].shape == (2, 3, 8)


def test_a_symbol_fixed_at_one_input_is_fixed_at_all() -> None:
    model = node_model("Add", {"a": floats(1), "b": floats(1)})
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    graph = import_model(model, {"a": (7,)})
    assert [t.shape for _, t in graph.inputs] == [(7,), (7,)]


def test_symbolic_dimension_without_a_shape() -> None:
    with pytest.raises(ModelError, match=r"'x' has symbolic dimensions.*--shape x=1x3x1"):
        import_model(symbolic("batch", 3, None), {})


def test_shape_of_an_unknown_input() -> None:
    with pytest.raises(ModelError, match=r"given for 'z'.*inputs are 'x'"):
        import_model(symbolic("batch", 3), {"x": (1, 3), "z": (1,)})


@pytest.mark.parametrize("shape", [(1, 4), (1, 3, 1), (0, 3)])
def test_shape_that_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="input 'x'"):
        import_model(symbolic("batch", 3), {"x": shape})


def test_external_data(tmp_path: Path) -> None:
    weights = floats(64, 64)
    model = node_model("MatMul", {"x": floats(2, 64)}, (weights,))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = import_onnx(path)
    got = run_graph(graph, {"x": floats(2, 64)})["y0"]
    np.testing.assert_allclose(got, floats(2, 64).astype(np.float64) @ weights, rtol=1e-6)


def test_external_data_of_a_model_in_memory(tmp_path: Path) -> None:
    model = node_model("MatMul", {"x": floats(2, 64)}, (floats(64, 64),))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(ModelError, match="'c0': the data lie in another file"):
        import_onnx(path.read_bytes())


def test_missing_external_data(tmp_path: Path) -> None:
    model = node_model("MatMul", {"x": floats(2, 64)}, (floats(64, 64),))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="external data"):
        load_model(str(path))

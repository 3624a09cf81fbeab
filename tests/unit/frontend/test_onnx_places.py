"""Elements picked and put by places, sorting, running sums, branches: against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import ModelError
from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from tests.unit.frontend.onnx_models import check, floats, ints, node_model, nodes_model

FEEDS = {"x": floats(3, 4, 5)}
PLACES = np.random.default_rng(0).integers(-3, 3, (3, 4, 5))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cum_sum(axis: int, exclusive: int, reverse: int) -> None:
    attrs = {"exclusive": exclusive, "reverse": reverse}
    check(node_model("CumSum", FEEDS, [np.array(axis)], **attrs), FEEDS)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_of_long_rows(reverse: int, exclusive: int) -> None:
    feeds = {"x": floats(2, 3000)}
    attrs = {"reverse": reverse, "exclusive": exclusive}
    graph = check(node_model("CumSum", feeds, [np.array(1)], **attrs), feeds)
    assert not any(a.size > 3000 for a in graph.constants.values())


def test_rows_turned_around() -> None:
    feeds = {"x": floats(4, 3, 2), "lengths": ints(4, 1, 3)}
    check(node_model("ReverseSequence", feeds), feeds)
    other = {"x": floats(3, 4), "lengths": ints(4, 1, 3)}
    check(node_model("ReverseSequence", other, time_axis=1, batch_axis=0), other)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_top_k(axis: int, largest: int, k: int) -> None:
    attrs = {"axis": axis, "largest": largest}
    check(node_model("TopK", FEEDS, [ints(k)], outputs=2, **attrs), FEEDS)


def test_of_equal_elements_the_first_leads() -> None:
    feeds = {"x": np.round(floats(3, 9))}
    check(node_model("TopK", feeds, [ints(4)], outputs=2), feeds)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("rows", "extent"), [(2, 300), (2, 311), (1, 311)])
def test_long_rows_are_sorted_in_pieces(rows: int, extent: int, largest: int) -> None:
    """Of equal elements the first leads, wherever pieces end."""
    feeds = {"x": np.round(4 * floats(rows, extent))}
    graph = check(node_model("TopK", feeds, [ints(7)], outputs=2, largest=largest), feeds)
    sorted_ = [graph.types[n.inputs[0]].size for n in graph.nodes if n.op == "top_k"]
    assert len(sorted_) == 2
    assert sum(sorted_) < rows * extent / 2


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("largest", [0, 1])
def test_whole_numbers_are_sorted_exactly(dtype: type, largest: int) -> None:
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max, info.max - 1, info.min + 1, 3, 3], dtype)
    feeds = {"x": np.tile(ends, (2, 5))}
    check(node_model("TopK", feeds, [ints(9)], outputs=2, largest=largest), feeds)


@pytest.mark.parametrize("largest", [0, 1])
def test_zeros_are_equal_and_nans_the_largest(largest: int) -> None:
    x = np.array([[0.0, -0.0, np.inf, 1e-42, -np.nan, -np.inf, -1e-42, np.nan]], np.float32)
    graph = import_model(node_model("TopK", {"x": x}, [ints(8)], outputs=2, largest=largest), {})
    _, places = run_graph(graph, {"x": x}).values()
    upwards = [5, 6, 0, 1, 3, 2, 4, 7]
    downwards = [4, 7, 2, 3, 0, 1, 6, 5]
    assert places[0].tolist() == (downwards if largest else upwards)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(axis: int) -> None:
    check(node_model("GatherElements", FEEDS, [PLACES], axis=axis), FEEDS)
    feeds = FEEDS | {"indices": PLACES}
    check(node_model("GatherElements", feeds, axis=axis), feeds)


def test_gather_nd() -> None:
    check(node_model("GatherND", FEEDS, [np.array([[0, 1], [2, -1]])]), FEEDS)
    feeds = FEEDS | {"indices": np.array([[[0], [-1]]])}
    check(node_model("GatherND", feeds), feeds)


def test_the_last_update_of_a_place_stays() -> None:
    places = np.array([[0, 1], [2, -1], [0, 1]])
    check(node_model("ScatterND", FEEDS, [places, floats(3, 5, seed=1)]), FEEDS)


def test_scatter_elements() -> None:
    places = np.array([[[0, 1, 2, 3, -1]]])
    check(node_model("ScatterElements", FEEDS, [places, floats(1, 1, 5)], axis=2), FEEDS)


REDUCTIONS = ("none", "add", "mul", "max", "min")


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_rows_are_put_at_computed_places(reduction: str) -> None:
    places = np.array([[0, 1], [2, -1], [1, 1]])
    feeds = FEEDS | {"indices": places, "updates": floats(3, 5, seed=1)}
    check(node_model("ScatterND", feeds, reduction=reduction), feeds)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_are_put_at_computed_places(axis: int, reduction: str) -> None:
    # Of one place updated twice, onnxruntime takes either where nothing joins them.
    places = np.argsort(floats(3, 4, 5, seed=2), axis=axis) if reduction == "none" else PLACES
    feeds = FEEDS | {"indices": places, "updates": floats(3, 4, 5, seed=1)}
    check(node_model("ScatterElements", feeds, axis=axis, reduction=reduction), feeds)


def test_repeated_constant_places_add_up() -> None:
    places = np.array([[[0, 1, 1, 3, -1]]] * 3).repeat(4, axis=1)
    updates = floats(3, 4, 5, seed=1)
    check(node_model("ScatterElements", FEEDS, [places, updates], axis=2, reduction="add"), FEEDS)


def test_some_columns_alone_are_put_at_computed_places() -> None:
    places = np.array([[[0, 2]], [[-1, 1]]])
    feeds = FEEDS | {"indices": places, "updates": floats(2, 1, 2, seed=1)}
    check(node_model("ScatterElements", feeds, axis=1, reduction="add"), feeds)


@pytest.mark.parametrize("constant", [True, False])
def test_repeated_places_are_one_column(constant: bool) -> None:
    """As PyTorch writes index_add and scatter_add of rows."""
    nodes = [
        helper.make_node("Expand", ["column", "shape"], ["indices"]),
        helper.make_node("ScatterElements", ["x", "indices", "u"], ["y"], reduction="add"),
    ]
    feeds = {"x": floats(4, 6), "u": floats(9, 6, seed=1)}
    column = np.array([0, 3, -1, 2, 2, 0, 1, -4, 3]).reshape(9, 1)
    tensors = [numpy_helper.from_array(ints(9, 6), "shape")]
    if constant:
        tensors.append(numpy_helper.from_array(column, "column"))
    else:
        feeds["column"] = column
    graph = check(nodes_model(nodes, feeds, tensors, ["y"]), feeds)
    (scatter,) = (node for node in graph.nodes if node.op == "scatter")
    assert graph.types[scatter.inputs[1]].shape == (9, 1)


def test_places_outside_are_an_error_where_they_are_known() -> None:
    feeds = {"x": floats(4, 6), "u": floats(1, 6)}
    model = node_model("ScatterND", {"x": feeds["x"]}, [np.array([[4]]), feeds["u"]])
    with pytest.raises(ModelError, match="outside"):
        import_model(model, {})


def test_places_computed_from_large_constants_are_constant() -> None:
    """Too large to be folded on the way; the first column is put again."""
    x = {"x": floats(300, 300)}
    nodes = [
        helper.make_node("Expand", ["ones", "shape"], ["wide"]),
        helper.make_node("Sub", ["wide", "wide"], ["indices"]),
        helper.make_node("ScatterElements", ["x", "indices", "x"], ["y"], axis=1),
    ]
    constants = {"ones": np.ones((1, 1), np.int64), "shape": ints(300, 300)}
    tensors = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = import_model(nodes_model(nodes, x, tensors, ["y"]), {})
    assert not any(n.op == "reduce_max" for n in graph.nodes)


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_over_a_constant_is_taken(condition: bool) -> None:
    def branch(op: str) -> object:
        made = helper.make_tensor_value_info(f"{op}_y", TensorProto.FLOAT, (3, 4, 5))
        return helper.make_graph([helper.make_node(op, ["x"], [f"{op}_y"])], op, [], [made])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    constant = numpy_helper.from_array(np.array(condition), "c")
    graph = check(nodes_model([node], FEEDS, [constant], ["y"]), FEEDS)
    assert [n.op for n in graph.nodes] == ["relu" if condition else "neg"]


@pytest.mark.parametrize("how", ["min", "max", "add", "mul"])
def test_truth_values_join(how: str) -> None:
    """add and max are "or", mul and min are "and"."""
    x, updates = np.array([True, False, True, False]), np.array([True, True, False, False])
    joined = x & updates if how in ("min", "mul") else x | updates
    places, nodes = (
        np.arange(4),
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction=how),
    )
    tensors = [numpy_helper.from_array(places, "i")]
    model = nodes_model([nodes], {"x": x, "u": updates}, tensors, ["y"], 18)
    (got,) = autotune.compile(model).run({"x": x, "u": updates}).values()
    np.testing.assert_array_equal(got, joined)


@pytest.mark.parametrize("number", [0.0, 2.0])
def test_the_places_of_a_number(number: float) -> None:
    """One coordinate, as ONNX Runtime has it."""
    with autotune.compile(node_model("NonZero", {}, [np.array(number, np.float32)])) as model:
        assert [array.tolist() for array in model.run({}).values()] == [[[0]] if number else [[]]]

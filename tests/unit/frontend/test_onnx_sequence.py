"""Sequences, branches that a run chooses, scans: against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.unit.frontend.onnx_models import check, floats, ints, nodes_model
from tests.unit.frontend.test_onnx_errors import malformed, refused

FEEDS = {"x": floats(7, 3)}


def constants(**arrays: Any) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]


@pytest.mark.parametrize("sizes", [np.array(3), ints(2, 4, 1), None])
@pytest.mark.parametrize("new", [0, 1])
def test_parts_are_joined_again(sizes: Any, new: int) -> None:
    given = ["x"] if sizes is None else ["x", "sizes"]
    first = ["a"] if new == 0 else ["a", "a"]
    nodes = [
        helper.make_node("SplitToSequence", given, ["s"], keepdims=int(sizes is not None)),
        helper.make_node("SequenceAt", ["s", "last"], ["a"]),
        helper.make_node("SequenceConstruct", first, ["t"]),
        helper.make_node("SequenceInsert", ["t", "a"], ["u"]),
        helper.make_node("ConcatFromSequence", ["u"], ["y"], axis=-1, new_axis=new),
        helper.make_node("SequenceLength", ["s"], ["n"]),
    ]
    more = {} if sizes is None else {"sizes": sizes}
    check(nodes_model(nodes, FEEDS, constants(last=-1, **more), ["y", "n"]), FEEDS)


def test_a_sequence_that_a_loop_collects() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "trip"], ["row"]),
            helper.make_node("SequenceInsert", ["s", "row", "front"], ["more"]),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", onnx.TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("more", onnx.TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["trips", "going", "none"], ["all"], body=body),
        helper.make_node("SequenceErase", ["all", "two"], ["some"]),
        helper.make_node("ConcatFromSequence", ["some"], ["y"], axis=0, new_axis=1),
    ]
    tensors = constants(trips=ints(5), going=True, front=0, two=2)
    check(nodes_model(nodes, FEEDS, tensors, ["y"]), FEEDS)


def test_a_sequence_where_a_tensor_is_wanted() -> None:
    made = helper.make_node("SequenceConstruct", ["x"], ["s"])
    relu = helper.make_node("Relu", ["s"], ["y"], name="relu")
    refused(
        nodes_model([made, relu], FEEDS, [], ["y"]), "'relu'.* uses 's', a sequence of tensors"
    )
    refused(nodes_model([made], FEEDS, [], ["s"]), "output 's' of the model uses 's', a sequence")


def test_a_tensor_where_a_sequence_is_wanted() -> None:
    length = helper.make_node("SequenceLength", ["x"], ["y"])
    malformed(nodes_model([length], FEEDS, [], ["y"]), "'x'. is a tensor, expected a sequence")


def test_a_position_outside() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "one"], ["y"]),
    ]
    malformed(nodes_model(nodes, FEEDS, constants(one=1), ["y"]), "position 1 is outside .* 1 val")


def branches(axis: int) -> onnx.ModelProto:
    """Relu(x) where x's sum is positive, else x from the second element of an axis on."""
    made = [
        helper.make_graph([node], node.op_type, [], [onnx.ValueInfoProto(name=node.output[0])])
        for node in (
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Slice", ["x", "one", "end", "axis"], ["b"]),
        )
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=made[0], else_branch=made[1]),
    ]
    tensors = constants(one=ints(axis), end=ints(9), axis=ints(axis), zero=np.float32(0))
    return nodes_model(nodes, FEEDS, tensors, ["y"])


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_branch_that_a_run_chooses(sign: int) -> None:
    check(branches(0), {"x": sign * np.abs(FEEDS["x"])})


def test_branches_of_two_shapes() -> None:
    refused(
        branches(1), r"'if'.* branches give float32\[7,3\] and float32\[7,2\]; types are static"
    )


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_scan(axis: int, backward: int) -> None:
    """s = s * e + 1; it gives s - e of every element e, in another order and axis."""
    nodes = [
        helper.make_node("Mul", ["s", "e"], ["p"]),
        helper.make_node("Add", ["p", "one"], ["t"]),
        helper.make_node("Sub", ["t", "e"], ["d"]),
    ]
    size = FEEDS["x"].shape[1 if axis == 0 else 0]
    kind = onnx.TensorProto.FLOAT
    given = [helper.make_tensor_value_info(v, kind, [size]) for v in ("s", "e")]
    results = [helper.make_tensor_value_info(v, kind, [size]) for v in ("t", "d")]
    body = helper.make_graph(nodes, "body", given, results, constants(one=np.float32(1)))
    scan = helper.make_node(
        "Scan", ["zeros", "x"], ["last", "each"], name="scan", body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[backward], scan_output_axes=[1],
        scan_output_directions=[1 - backward],
    )  # fmt: skip
    tensors = constants(zeros=np.zeros(size, np.float32))
    check(nodes_model([scan], FEEDS, tensors, ["last", "each"]), FEEDS)


def test_a_scan_of_the_first_form() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["e"], ["d"])], "body",
        [onnx.ValueInfoProto(name="e")], [onnx.ValueInfoProto(name="d")],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["", "x"], ["y"], name="scan", body=body, num_scan_inputs=1)
    refused(nodes_model([scan], FEEDS, [], ["y"], opset=8), "'scan'.*batches .opset 8. are not")


def test_numbers_that_a_run_draws() -> None:
    drawn = helper.make_node("RandomNormalLike", ["x"], ["y"], name="noise")
    refused(
        nodes_model([drawn], FEEDS, [], ["y"]), "'noise'.* draws numbers.* an input of the model"
    )

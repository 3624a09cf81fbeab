"""Values that are defined never, twice, too late or without a name: one line that names them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from tests.unit.frontend.onnx_models import check, floats, node_model, nodes_model
from tests.unit.frontend.test_onnx_errors import malformed

FEEDS = {"x": floats(2, 3)}
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])


def chain(*nodes: tuple[str, str, str], weights: Sequence[str] = ()) -> onnx.ModelProto:
    """Nodes of one input and one output each: operator, input, output."""
    made = [helper.make_node(op, [x], [y], name=op.lower()) for op, x, y in nodes]
    return nodes_model(made, FEEDS, [numpy_helper.from_array(FEEDS["x"], w) for w in weights], "y")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            (("Relu", "x", "a"), ("Neg", "x", "a"), ("Abs", "a", "y")),
            r"'a' is defined by operator Relu \(node 'relu', .*by operator Neg \(node 'neg'",
        ),
        ((("Relu", "x", "x"), ("Neg", "x", "y")), "'x' is defined by the inputs and by .* 'relu'"),
        (
            (("Relu", "x", "w"), ("Neg", "w", "y")),
            "'w' is defined by the initial.* and by .*relu'",
        ),
        ((("Relu", "x", "a"),), "nothing defines output 'y' of the graph 'test'"),
        ((("Relu", "z", "y"),), r"node 'relu'.* 'z', which nothing before it defines; export"),
        (
            (("Relu", "b", "a"), ("Neg", "a", "b"), ("Abs", "b", "y")),
            r"Relu \(node 'relu', .* uses 'b', .* Neg \(node 'neg', .* a cycle, or nodes out of",
        ),
        ((("Relu", "y", "y"),), r"node 'relu'.* uses 'y', .*node 'relu'.* a cycle"),
    ],
    ids=["twice", "input", "initializer", "output", "undefined", "cycle", "itself"],
)
def test_every_value_has_one_definition_before_its_uses(
    nodes: Sequence[tuple[str, str, str]], message: str
) -> None:
    malformed(chain(*nodes, weights=["w"]), message)


def test_one_node_defines_a_value_twice() -> None:
    split = helper.make_node("Split", ["x"], ["y", "y"], name="split")
    malformed(nodes_model([split], FEEDS, [], "y"), "'y' is defined twice by .* 'split'")


def test_two_inputs_of_one_name() -> None:
    model = chain(("Relu", "x", "y"))
    model.graph.input.append(model.graph.input[0])
    malformed(model, "'x' is defined twice by the inputs")


def test_two_initializers_of_one_name() -> None:
    malformed(chain(("Relu", "w", "y"), weights=["w", "w"]), "'w' is defined twice by the init")


def test_names_that_are_empty() -> None:
    model = chain(("Relu", "x", "y"))
    model.graph.input.append(helper.make_tensor_value_info("", TensorProto.FLOAT, [1]))
    malformed(model, "one of the inputs has no name")
    malformed(chain(("Relu", "x", "y"), weights=[""]), "one of the initializers has no name")
    model = chain(("Relu", "x", "y"))
    model.graph.output[0].name = ""
    malformed(model, "nothing defines output ''")


@pytest.mark.parametrize("extents", [(2, 4), (2, 2), (6, 6)])
def test_an_initializer_of_a_wrong_size(extents: tuple[int, int]) -> None:
    model = chain(("Relu", "w", "y"), weights=["w"])
    model.graph.initializer[0].dims[:] = extents
    malformed(model, r"initializer 'w': the tensor's data do not fit its shape \(\d, \d\)")


def test_values_that_a_node_leaves_out_are_no_definitions() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["p", ""], kernel_shape=[1, 1])
    clip = helper.make_node("Clip", ["p", "", "most"], ["y"])
    most = numpy_helper.from_array(np.array(1, np.float32), "most")
    feeds = {"x": floats(1, 1, 2, 2)}
    check(nodes_model([pool, clip], feeds, [most], "y"), feeds)


def test_an_initializer_among_the_inputs_is_one_definition() -> None:
    model = node_model("Add", FEEDS, (FEEDS["x"],), opset=7)
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.FLOAT, [2, 3]))
    check(model, FEEDS)


def branches(then: tuple[str, str], other: tuple[str, str], use: str = "z") -> onnx.ModelProto:
    """z = If(true) of two branches of one Neg each, y = Relu of a value."""
    graphs = [
        helper.make_graph(
            [helper.make_node("Neg", [x], [y], name=name)], name, [], [onnx.ValueInfoProto(name=y)]
        )
        for name, (x, y) in (("then", then), ("other", other))
    ]
    taken = helper.make_node("If", ["c"], ["z"], then_branch=graphs[0], else_branch=graphs[1])
    relu = helper.make_node("Relu", [use], ["y"], name="relu")
    condition = numpy_helper.from_array(np.array(True), "c")
    return nodes_model([taken, relu], FEEDS, [condition], "y")


def test_branches_may_use_the_same_names() -> None:
    check(branches(("x", "a"), ("x", "a")), FEEDS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (branches(("x", "a"), ("x", "x")), "'x' is defined by the inputs and by .*node 'other'"),
        (branches(("a", "b"), ("x", "b")), "node 'then'.* uses 'a', which nothing before it"),
        (
            branches(("x", "a"), ("x", "a"), use="a"),
            "node 'relu'.* uses 'a', which nothing before",
        ),
    ],
    ids=["around", "undefined", "outside"],
)
def test_graphs_within_keep_the_rules_too(model: onnx.ModelProto, message: str) -> None:
    malformed(model, message)


def looped(given: Sequence[str], inputs: Sequence[str] = ("trip", "on", "x")) -> onnx.ModelProto:
    """y = x * (x + 1 + 1 + 1): a loop whose state is called x as well."""
    scalars = {"trips": np.array(3), "going": np.array(True), "one": np.ones(1, np.float32)}
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["still"]),
            helper.make_node("Add", ["x", "one"], ["s"]),
        ],
        "body",
        [onnx.ValueInfoProto(name=name) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in ("still", "s")],
    )
    nodes = [
        helper.make_node("Loop", given, ["z"], name="loop", body=body),
        helper.make_node("Mul", ["x", "z"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in scalars.items()]
    return nodes_model(nodes, FEEDS, tensors, "y")


def test_a_loop_s_names_are_its_own() -> None:
    graph = import_model(looped(["trips", "going", "x"]), {})
    (got,) = run_graph(graph, FEEDS).values()
    np.testing.assert_allclose(got, FEEDS["x"] * (FEEDS["x"] + 3), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            looped(["trips", "going", "x"], ["on", "x"]),
            r"node 'loop', .* its graphs do not fit it",
        ),
        (looped(["trips", "going"]), r"node 'loop', .* its graphs do not fit it"),
    ],
    ids=["inputs", "states"],
)
def test_graphs_within_that_do_not_fit_their_node(model: onnx.ModelProto, message: str) -> None:
    malformed(model, message)


@pytest.mark.parametrize(
    ("model", "name"),
    [(looped(["trips", "going", "x"]), "body"), (branches(("x", "a"), ("x", "a")), "then_branch")],
    ids=["Loop", "If"],
)
def test_a_graph_within_that_is_missing(model: onnx.ModelProto, name: str) -> None:
    del model.graph.node[0].attribute[:]
    malformed(model, f"operator .*: attribute {name} is missing; export the model again")


def calling(*bodies: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """y = F(x), with functions of such bodies that are all called F."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = chain(("Relu", "x", "y"))
    model.graph.node[0].CopyFrom(helper.make_node("F", ["x"], ["y"], domain="own"))
    model.opset_import.append(opsets[1])
    model.functions.extend(
        helper.make_function("own", "F", ["x"], ["y"], body, opsets) for body in bodies
    )
    return model


RELU = helper.make_node("Relu", ["x"], ["y"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (calling([helper.make_node("F", ["x"], ["y"], domain="own")]), "functions: .*recursive"),
        (calling([RELU], [RELU]), "functions: .*own::F"),
        (calling([RELU, RELU]), "'y' is defined twice by operator Relu"),
        (calling([helper.make_node("Relu", ["x"], ["z"])]), "nothing defines output 'y'"),
    ],
    ids=["recursive", "same", "twice", "none"],
)
def test_functions_keep_the_rules_too(model: onnx.ModelProto, message: str) -> None:
    malformed(model, message)

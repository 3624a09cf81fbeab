"""verify_graph finds every kind of broken graph."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.errors import VerifyError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph, Node
from autotune.types import TensorType
from tests.graph_verify import verify_graph


@pytest.fixture
def graph() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", TensorType(dtype="float32", shape=(2, 3)))
    w = b.constant(np.ones((3, 4), np.float32), "w")
    y = b.op("clip", b.op("matmul", x, w), min=0.0, max=6.0)
    return b.finish([("y", y)])


def broken(graph: Graph, message: str, **changes: object) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_graph(dataclasses.replace(graph, **changes))  # type: ignore[arg-type]


def test_good_graph(graph: Graph) -> None:
    assert verify_graph(graph) is None  # type: ignore[func-returns-value]


def test_nodes_out_of_order(graph: Graph) -> None:
    broken(graph, "topological order", nodes=tuple(reversed(graph.nodes)))


def test_node_defined_twice(graph: Graph) -> None:
    broken(graph, "'matmul_1' is defined twice", nodes=(graph.nodes[0], *graph.nodes))


def test_constant_named_as_an_input(graph: Graph) -> None:
    changes = {"x": np.ones((2, 3), np.float32), **graph.constants}
    broken(graph, "'x' is defined twice", constants=changes)


def test_unknown_op(graph: Graph) -> None:
    nodes = (dataclasses.replace(graph.nodes[0], op="magic"), graph.nodes[1])
    broken(graph, "no op 'magic'", nodes=nodes)


def test_wrong_type(graph: Graph) -> None:
    types = {**graph.types, "matmul_1": TensorType(dtype="float32", shape=(2, 5))}
    broken(graph, r"'matmul_1' has type float32\[2,5\]", types=types)


def test_missing_type(graph: Graph) -> None:
    types = {n: t for n, t in graph.types.items() if n != "clip_1"}
    broken(graph, "'clip_1' has type None", types=types)


def test_type_of_nothing(graph: Graph) -> None:
    types = {**graph.types, "ghost": graph.types["x"]}
    broken(graph, "ghost", types=types)


def test_constant_of_another_shape(graph: Graph) -> None:
    broken(graph, "'w' has type", constants={"w": np.ones((3, 5), np.float32)})


def test_operands_that_do_not_fit(graph: Graph) -> None:
    node = Node(op="matmul", inputs=("w", "x"), output="matmul_1")
    broken(graph, "node", nodes=(node, graph.nodes[1]))


def test_unsorted_attributes(graph: Graph) -> None:
    clip = dataclasses.replace(graph.nodes[1], attrs=(("min", 0.0), ("max", 6.0)))
    broken(graph, "sorted by name", nodes=(graph.nodes[0], clip))


def test_output_of_nothing(graph: Graph) -> None:
    broken(graph, "output 'y' is value 'ghost'", outputs=(("y", "ghost"),))


def test_no_outputs(graph: Graph) -> None:
    broken(graph, "no outputs", outputs=())


def test_two_outputs_of_one_name(graph: Graph) -> None:
    broken(graph, "must be unique", outputs=(("y", "clip_1"), ("y", "matmul_1")))

"""GraphBuilder: types, names, pruning."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ModelError
from autotune.graph.build import GraphBuilder
from autotune.types import TensorType
from tests.graph_verify import verify_graph

X = TensorType(dtype="float32", shape=(2, 3))


def test_types_are_inferred() -> None:
    b = GraphBuilder("g")
    y = b.op("matmul", b.input("x", X), b.constant(np.zeros((3, 5), np.float32)))
    assert b.types[y] == TensorType(dtype="float32", shape=(2, 5))


def test_what_no_output_needs_is_dropped() -> None:
    b = GraphBuilder("g")
    x = b.input("x", X)
    b.op("exp", b.constant(np.zeros(3, np.float32), "unused"))
    graph = b.finish([("y", b.op("relu", x))])
    assert [n.op for n in graph.nodes] == ["relu"]
    assert not graph.constants
    verify_graph(graph)


def test_unused_inputs_stay() -> None:
    b = GraphBuilder("g")
    x, _ = b.input("x", X), b.input("unused", X)
    graph = b.finish([("y", b.op("relu", x))])
    assert [n for n, _ in graph.inputs] == ["x", "unused"]
    verify_graph(graph)


def test_names_do_not_collide() -> None:
    b = GraphBuilder("g")
    x = b.input("relu_1", X)
    values = [x, b.constant(np.zeros(3, np.float32), "relu_2"), b.constant(np.zeros(3), "relu_2")]
    values += [b.op("relu", x), b.op("relu", x)]
    assert len(set(values)) == len(values)


def test_nodes_are_labelled() -> None:
    b = GraphBuilder("g")
    x = b.input("x", X)
    b.label = "layer1"
    assert b.finish([("y", b.op("relu", x))]).nodes[0].name == "layer1"


def test_constants_keep_rank_zero() -> None:
    b = GraphBuilder("g")
    value = b.constant(np.array(2.0, np.float32))
    assert b.shape(value) == b.constants[value].shape == ()


def test_constants_are_dense() -> None:
    """In another order of their dimensions, too: copying those would only take memory."""
    b, array = GraphBuilder("g"), np.zeros((3, 4), np.float32)
    assert b.constants[b.constant(array.T)].base is array
    for other in (array[:, ::2], array[::-1], np.broadcast_to(array, (2, 3, 4))):
        assert b.constants[b.constant(other)].flags.c_contiguous


def test_foreign_element_type() -> None:
    with pytest.raises(ModelError, match=r"'w' has element type float16.*convert"):
        GraphBuilder("g").constant(np.zeros(3, np.float16), "w")


def test_input_declared_twice() -> None:
    b = GraphBuilder("g")
    b.input("x", X)
    with pytest.raises(ModelError, match="'x' is declared twice"):
        b.input("x", X)


def test_operands_that_do_not_fit() -> None:
    b = GraphBuilder("g")
    with pytest.raises(ModelError, match="do not broadcast"):
        b.op("add", b.input("x", X), b.constant(np.zeros(4, np.float32)))

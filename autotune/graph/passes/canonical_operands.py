"""Constants of elementwise operators in one form, so that equal kernels get equal tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, kind_of
from autotune.shapes import broadcast_shapes
from autotune.sizes import is_size
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalOperands:
    """x + const[1,1] -> x + scalar; x + const[1,1,1,64] -> x + const[64]; a `scalar` read by an
    operator that needs a tensor becomes a constant. Ranks of results stay as they are."""

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        kept = {value for _, value in graph.outputs}
        for node in graph.nodes:
            if node.op == "scalar" and node.output in kept:
                new.replace(node.output, _tensor(new, node))
            elif node.op == "scalar":
                new.keep(node)
            elif kind_of(node.op) == "elementwise":
                _elementwise(new, node)
            else:
                _other(new, node)
        return new.finish()


def _elementwise(new: Rewriter, node: Node) -> None:
    inputs = list(new.inputs(node))
    type_ = new.graph.types[node.output]
    for position, value in enumerate(inputs):
        array = new.constants.get(value)
        others = [new.shape(v) for v in inputs[:position] + inputs[position + 1 :]]
        if array is None or not others:
            continue
        shape = () if array.size == 1 else _without_leading_units(array.shape)
        if shape != array.shape and broadcast_shapes((shape, *others)) == type_.shape:
            inputs[position] = _reformed(new, node, value, array.reshape(shape))
        elif array.shape == () and np.isfinite(array):
            inputs[position] = _reformed(new, node, value, array)
    if tuple(inputs) == new.inputs(node):
        new.keep(node)
    else:
        new.replace(node.output, new.emit(node.op, inputs, node, **node.attributes))


def _reformed(new: Rewriter, node: Node, value: str, array: Array) -> str:
    if array.shape == () and np.isfinite(array):
        return new.emit("scalar", [], node, value=array.item(), dtype=array.dtype.name)
    return new.constant(array, value)


def _other(new: Rewriter, node: Node) -> None:
    for value in node.inputs:
        if (source := new.producer(new.new(value), "scalar")) is not None:
            new.replace(value, _tensor(new, source))
    new.keep(node)


def _without_leading_units(shape: tuple[int, ...]) -> tuple[int, ...]:
    first = next((d for d, e in enumerate(shape) if e != 1), len(shape))
    return shape[first:]


def _tensor(new: Rewriter, scalar: Node) -> str:
    """A scalar as a tensor: a constant, or what a run writes there of a size."""
    attrs = scalar.attributes
    if is_size(attrs["value"]):
        size = new.emit("scalar", [], scalar, **attrs)
        return new.emit("expand", [size], scalar, shape=())
    return new.constant(np.asarray(attrs["value"], str(attrs["dtype"])), scalar.output)

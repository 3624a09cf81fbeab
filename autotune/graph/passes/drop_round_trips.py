"""Bytes that become numbers and the same bytes again stay what they are.

A value that a model quantizes lies as bytes between kernels; where the model wants these bytes
too, they are there already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.types import Array

_TO_BYTES = ("to_uint8", "to_int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRoundTrips:
    """to_uint8(round(to_float32(b) + c) + d) -> b for bytes b, where c and d are whole numbers
    that cancel."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _source, *_TO_BYTES)


def _source(new: Rewriter, node: Node) -> str | None:
    """The bytes that a conversion gives back."""
    (value,) = new.inputs(node)
    moved: Array = np.zeros(())
    while (producer := new.producer(value)) is not None:
        if producer.op == "to_float32":
            (source,) = producer.inputs
            same = new.types[source].dtype == node.op.removeprefix("to_")
            alike = new.shape(source) == new.graph.types[node.output].shape
            return source if same and alike and not np.any(moved) else None
        if producer.op == "add":
            arrays = [new.known(i) for i in producer.inputs]
            at = next((n for n, a in enumerate(arrays) if a is not None), None)
            array = None if at is None else arrays[at]
            if at is None or array is None or np.any(array != np.rint(array)):
                return None
            moved, value = moved + array.astype(np.float64), producer.inputs[1 - at]
        elif producer.op == "round":
            (value,) = producer.inputs
        else:
            return None
    return None

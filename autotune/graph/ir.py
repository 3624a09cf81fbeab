"""The graph IR: operators over named values. What frontends produce and passes rewrite.

    graph := inputs (name: type), constants (name: array), nodes in topological order, output names
    node  := output = op(inputs) {attrs}

Ops are those of `autotune.ops` (NHWC activations). Every op has one output. Values are named
uniquely; `types` holds the type of every input, constant and node output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.types import Array, Attr, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator application; `name` is the model's own node name, for messages."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: tuple[tuple[str, Attr], ...] = ()
    name: str = ""

    @property
    def attributes(self) -> dict[str, Attr]:
        return dict(self.attrs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model. `outputs` are (public name, value name) pairs; `inputs` keep the model's names."""

    name: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    types: Mapping[str, TensorType]
    declared: tuple[tuple[str, str], ...] = ()
    """Inputs and outputs that callers have in other types than the graph: numpy's names."""

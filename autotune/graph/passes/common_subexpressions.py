"""Compute equal things once: the same op over the same values with the same attributes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import COMMUTATIVE, Rewriter
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCommonSubexpressions:
    """a = relu(x); b = relu(x) -> b is a. Constants of up to `constant_bytes` are shared too."""

    constant_bytes: int = 1 << 20

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        constants: dict[str, str] = {}
        for name, array in graph.constants.items():
            if array.nbytes <= self.constant_bytes:
                new.replace(name, constants.setdefault(_digest(array), name))
        seen: dict[tuple[object, ...], str] = {}
        for node in graph.nodes:
            key = _key(node, new.inputs(node))
            if key in seen:
                new.replace(node.output, seen[key])
            else:
                seen[key] = new.keep(node)
        return new.finish()


def _key(node: Node, inputs: tuple[str, ...]) -> tuple[object, ...]:
    operands = tuple(sorted(inputs)) if node.op in COMMUTATIVE else inputs
    # repr keeps 1, 1.0 and True apart, which compare equal.
    return node.op, operands, repr(node.attrs)


def _digest(array: Array) -> str:
    head = f"{array.dtype.name}{array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()

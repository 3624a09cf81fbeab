"""Compute what depends on constants alone, now instead of at every run. Tensors without elements
are constants, whoever makes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.ops import OPS
from autotune.sizes import any_size
from autotune.types import Array, TensorType, held_as


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldConstants:
    """mul(const, const) -> const, in the constants' own precision.

    A result up to `small_bytes` is always folded; a larger one only where it is no larger than its
    operands, or at most `growth` times as large and below `limit_bytes`: weights must not blow up.
    """

    small_bytes: int = 1 << 20
    growth: int = 4
    limit_bytes: int = 64 << 20

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, self._folded)

    def _folded(self, new: Rewriter, node: Node) -> str | None:
        arrays = [a for i in new.inputs(node) if (a := _known(new, i)) is not None]
        type_ = new.graph.types[node.output]
        if type_.size == 0:
            return new.constant(_nothing(type_), node.output)
        if node.op == "scalar" or len(arrays) < len(node.inputs) or any_size(type_.shape):
            return None
        if not self._worthwhile(type_.nbytes, arrays):
            return None
        result = np.asarray(OPS.get(node.op).reference(arrays, node.attributes))
        return new.constant(result.astype(type_.dtype, copy=False), node.output)

    def _worthwhile(self, result_bytes: int, arrays: list[Array]) -> bool:
        operand_bytes = sum(a.nbytes for a in arrays)
        if result_bytes <= max(self.small_bytes, operand_bytes):
            return True
        return result_bytes <= min(self.limit_bytes, self.growth * operand_bytes)


def _known(new: Rewriter, value: str) -> Array | None:
    return new.known(value) if new.types[value].size else _nothing(new.types[value])


def _nothing(type_: TensorType) -> Array:
    return np.empty(type_.shape, held_as(type_.dtype))

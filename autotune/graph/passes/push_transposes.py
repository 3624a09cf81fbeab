"""Layout: move transposes toward the outputs until they meet their inverse and vanish.

Frontends put every image operator between two transposes (NCHW to NHWC and back). A transpose is
not emitted where it stands: its output is remembered as (base value, permutation), operators that
work in any order of dimensions are applied to the base, and only an operator that cannot be gets
the transpose in front of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._dimensions import Perm, any_order, in_order, inverse, remaining
from autotune.graph.rewriter import Rewriter, ints
from autotune.shapes import factor_groups, only_moves_units, typical
from autotune.sizes import surely_at_most

WIDE_PLANE = 8
"""Columns from which on windows over one channel fill vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTransposes:
    """conv -> to NCHW -> relu -> to NHWC -> conv becomes conv -> relu -> conv."""

    def run(self, graph: Graph) -> Graph:
        pushing = _Pushing(graph)
        for node in graph.nodes:
            pushing.visit(node)
        return pushing.finish()


@dataclass(frozen=True, slots=True)
class _Lazy:
    """The value transpose(base, perm): its dimension i is dimension perm[i] of base."""

    base: str
    perm: Perm


def _identity(rank: int) -> Perm:
    return tuple(range(rank))


class _Pushing:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new = Rewriter(graph)
        self.lazy: dict[str, _Lazy] = {}
        self.emitted: dict[tuple[str, Perm], str] = {}
        self.handlers: dict[str, Callable[[Node], bool]] = {
            "transpose": self._transpose,
            "max_pool2d": self._pool,
            "avg_pool2d": self._pool,
            "matmul": self._matmul,
            "reshape": self._reshape,
        }

    def visit(self, node: Node) -> None:
        """Handlers return False, having done nothing, where the op needs the order it has."""
        handler = self.handlers.get(node.op)
        if handler is None and any_order(node):
            handler = self._carried
        if handler is None or not self._any_pending(node) or not handler(node):
            self._settle(node)

    def finish(self) -> Graph:
        for _, value in self.graph.outputs:
            if value in self.lazy:
                node = next(n for n in self.graph.nodes if n.output == value)
                self.new.replace(value, self._arranged(self.lazy.pop(value), node))
        return self.new.finish()

    # ------------------------------------------------------------------------------ the machinery

    def _any_pending(self, node: Node) -> bool:
        return node.op == "transpose" or any(i in self.lazy for i in node.inputs)

    def _get(self, old: str) -> _Lazy:
        if old in self.lazy:
            return self.lazy[old]
        return _Lazy(self.new.new(old), _identity(len(self.graph.types[old].shape)))

    def _put(self, node: Node, base: str, perm: Perm) -> bool:
        if perm == _identity(len(perm)):
            self.new.replace(node.output, base)
        else:
            self.lazy[node.output] = _Lazy(base, perm)
        return True

    def _settle(self, node: Node) -> None:
        """Keep the node, with the transposes of its inputs emitted."""
        for value in node.inputs:
            if value in self.lazy:
                self.new.replace(value, self._arranged(self.lazy.pop(value), node))
        self.new.keep(node)

    def _arranged(self, value: _Lazy, like: Node) -> str:
        """A new value equal to transpose(base, perm); a constant is permuted here and now."""
        base, perm = value.base, value.perm
        if perm == _identity(len(perm)):
            return base
        if (base, perm) not in self.emitted:
            self.emitted[base, perm] = self._transposed(base, perm, like)
        return self.emitted[base, perm]

    def _transposed(self, base: str, perm: Perm, like: Node) -> str:
        if base in self.new.constants:
            return self.new.constant(np.transpose(self.new.constants[base], perm), base)
        shape = self.new.shape(base)
        if only_moves_units(shape, perm):
            return self.new.emit("reshape", [base], like, shape=tuple(shape[p] for p in perm))
        if (wide := self.new.producer(base, "expand")) is not None:
            (small,) = wide.inputs
            if len(self.new.shape(small)) == len(perm):  # turned before it is repeated
                source = self._arranged(_Lazy(small, perm), like)
                turned = tuple(shape[p] for p in perm)
                return self.new.emit("expand", [source], like, shape=turned)
        return self.new.emit("transpose", [base], like, perm=perm)

    def _under(self, old: str, perm: Perm, like: Node) -> str:
        """The operand arranged so that transpose(operand, perm) is what the model means."""
        value = self._get(old)
        shape = self.graph.types[old].shape
        if not shape:
            return value.base
        if len(shape) < len(perm):
            plain = self._arranged(value, like)
            wide = (1,) * (len(perm) - len(shape)) + shape
            if plain in self.new.constants:
                value = _Lazy(
                    self.new.constant(self.new.constants[plain].reshape(wide), plain),
                    _identity(len(perm)),
                )
            else:
                base = self.new.emit("reshape", [plain], like, shape=wide)
                value = _Lazy(base, _identity(len(perm)))
        return self._arranged(_Lazy(value.base, tuple(value.perm[j] for j in inverse(perm))), like)

    def _prevailing(self, node: Node, rank: int) -> Perm:
        """The permutation under which most of the operands' elements already lie."""
        votes: Counter[Perm] = Counter()
        for old in node.inputs:
            type_ = self.graph.types[old]
            if len(type_.shape) == rank and old not in self.graph.constants:
                # On a tie the pending order wins: pushing on may let it cancel.
                votes[self._get(old).perm] += 2 * typical(type_.size) + (old in self.lazy)
        return votes.most_common(1)[0][0] if votes else _identity(rank)

    # ---------------------------------------------------------------------------------- operators

    def _transpose(self, node: Node) -> bool:
        value = self._get(node.inputs[0])
        return self._put(node, value.base, tuple(value.perm[p] for p in ints(node, "perm")))

    def _carried(self, node: Node) -> bool:
        """The same operator over operands in the order that most of them lie in."""
        rank = max(len(self.graph.types[value].shape) for value in (*node.inputs, node.output))
        perm = self._prevailing(node, rank)
        if perm == _identity(rank):
            return False
        operands = [self._under(i, perm, node) for i in node.inputs]
        base = self.new.emit(node.op, operands, node, **in_order(node, perm))
        return self._put(node, base, remaining(node, perm))

    def _pool(self, node: Node) -> bool:
        """Pool images whose rows and columns lie innermost as images of one channel."""
        value = self._get(node.inputs[0])
        _, height, width, _ = self.graph.types[node.inputs[0]].shape
        _, rows, columns, _ = self.graph.types[node.output].shape
        apart = any(d != 1 for d in node.attributes.get("dilations", (1, 1)))  # type: ignore[union-attr]
        wide = surely_at_most(WIDE_PLANE, columns)
        if value.perm not in ((0, 2, 3, 1), (1, 2, 3, 0)) or not wide or apart:
            return False
        images = self.new.shape(value.base)[:2]
        planes = self.new.emit(
            "reshape", [value.base], node, shape=(images[0] * images[1], height, width, 1)
        )
        pooled = self.new.emit(node.op, [planes], node, **node.attributes)
        shape = (*images, rows, columns)
        return self._put(node, self.new.emit("reshape", [pooled], node, shape=shape), value.perm)

    def _matmul(self, node: Node) -> bool:
        """Where the right operand's rows lie contiguously, read it transposed instead."""
        left, right = node.inputs
        perm = self._get(right).perm
        rank = len(perm)
        if rank < 2 or perm[-2] != rank - 1:
            return False
        swapped = _Lazy(self._get(right).base, (*perm[:-2], perm[-1], perm[-2]))
        operands = [self._arranged(self._get(left), node), self._arranged(swapped, node)]
        flag = not node.attributes.get("transpose_b", False)
        value = self.new.emit("matmul", operands, node, transpose_b=flag)
        return self._put(node, value, _identity(len(self.new.shape(value))))

    def _reshape(self, node: Node) -> bool:
        """Reshape the base, group of dimensions by group; dimensions that are merged must lie side
        by side in the base, and a transpose that brings them together is all that is emitted."""
        value = self._get(node.inputs[0])
        before, after = self.graph.types[node.inputs[0]].shape, ints(node, "shape")
        if math.prod(before) == 0:
            return False
        groups = factor_groups(before, after)
        groups.sort(key=lambda g: value.perm[g[0][-1]])
        wanted = [value.perm[i] for ins, _ in groups for i in ins]
        units = [d for d in range(len(before)) if d not in wanted]
        base = value.base
        if wanted != sorted(wanted):
            base = self._arranged(_Lazy(base, (*units, *wanted)), node)
        order = _with_units([o for _, outs in groups for o in outs], len(after))
        shape = tuple(after[o] for o in order)
        if self.new.shape(base) != shape:
            base = self.new.emit("reshape", [base], node, shape=shape)
        return self._put(node, base, inverse(tuple(order)))


def _with_units(order: list[int], rank: int) -> list[int]:
    """`order` completed by the dimensions it lacks: each goes behind its predecessor."""
    if order == sorted(order):
        return list(range(rank))
    for dim in range(rank):
        if dim not in order:
            order.insert(order.index(dim - 1) + 1 if dim else 0, dim)
    return order

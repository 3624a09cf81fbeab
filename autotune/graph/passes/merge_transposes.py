"""One transpose in place of two around a reshape that only merges dimensions.

Blocks of depth that become space, and the end of a transposed convolution, are moved next to their
neighbours, merged, and moved to the front: all of it is one way to go through the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.push_transposes import factor_groups
from autotune.graph.rewriter import Rewriter, ints, rewritten


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTransposes:
    """transpose(reshape(transpose(x))) -> reshape(transpose(x)), where every dimension between the
    two is a product of dimensions before."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _merged, "transpose")


def _merged(new: Rewriter, node: Node) -> str | None:
    reshape = new.producer(new.inputs(node)[0])
    if reshape is None or reshape.op != "reshape" or not new.used_once(reshape.output):
        return None
    first = new.producer(reshape.inputs[0])
    if first is None or first.op != "transpose" or not new.used_once(first.output):
        return None
    before, after = new.shape(first.output), new.shape(reshape.output)
    if math.prod(before) == 0:
        return None
    groups = factor_groups(before, after)
    if any(len(outs) > 1 for _, outs in groups):
        return None
    parts = {outs[0]: ins for ins, outs in groups}
    wanted = [d for out in ints(node, "perm") for d in parts.get(out, ())]
    units = [d for d in range(len(before)) if d not in wanted]
    perm = tuple(ints(first, "perm")[d] for d in (*units, *wanted))
    moved = new.emit("transpose", [first.inputs[0]], node, perm=perm)
    shape = tuple(after[p] for p in ints(node, "perm"))
    return new.emit("reshape", [moved], node, shape=shape)

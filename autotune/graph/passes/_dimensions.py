"""Attributes of operators that name dimensions: one statement for all passes that move these.

In: a node, and an order of its dimensions. Out: the attributes of the same operator over a value
in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph.ir import Node
from autotune.graph.rewriter import ints, kind_of
from autotune.types import Attr

Perm = tuple[int, ...]
AXIS, EACH, AROUND = "of a dimension, or of several", "one for each", "all before, all behind"
FACTS = {
    "concat": {"axis": AXIS},
    "softmax": {"axis": AXIS},
    "log_softmax": {"axis": AXIS},
    "argmax": {"axis": AXIS},
    **{f"reduce_{what}": {"axes": AXIS} for what in ("sum", "mean", "max", "min", "prod")},
    "slice": {"starts": EACH, "stops": EACH, "steps": EACH},
    "resize": {"out_shape": EACH},
    "expand": {"shape": EACH},
    "pad": {"pads": AROUND},
    "border": {"pads": AROUND},
}
"""Operators that work alike in any order of dimensions -> what their attributes hold. So do all
elementwise ones, of which no other has such attributes."""
ASKS_WHERE = ("causal",)
"""Elementwise operators that look at where an element is."""


def any_order(node: Node) -> bool:
    """Whether the operator works alike in any order of its operands' dimensions."""
    elementwise = kind_of(node.op) == "elementwise" and node.op not in ASKS_WHERE
    return bool(node.inputs) and (node.op in FACTS or elementwise)


def inverse(perm: Perm) -> Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def axes_of(node: Node, rank: int) -> list[int]:
    """Dimensions that a node works along."""
    kinds = FACTS.get(node.op, {})
    named = [node.attributes[name] for name, kind in kinds.items() if kind is AXIS]
    return [int(a) % rank for n in named for a in (n if isinstance(n, tuple) else (n,))]


def in_order(node: Node, perm: Perm) -> dict[str, Attr]:
    """Attributes for operands of which the node's are transposes by `perm`."""
    attrs, back, rank = node.attributes, inverse(perm), len(perm)
    for name, kind in FACTS.get(node.op, {}).items():
        if kind is AXIS:
            turned = tuple(sorted(perm[a] for a in axes_of(node, rank)))
            attrs[name] = turned if isinstance(attrs[name], tuple) else turned[0]
        else:
            held = ints(node, name)
            parts = (held[:rank], held[rank:]) if kind is AROUND else (held,)
            attrs[name] = tuple(part[j] for part in parts for j in back)
    return attrs


def remaining(node: Node, perm: Perm) -> Perm:
    """The order of a node's result: its dimension i is dimension perm[i] of the same operator over
    operands in that order, which a reduction has fewer of."""
    if node.attributes.get("keepdims", True):
        return perm
    gone = axes_of(node, len(perm))
    kept: Sequence[int] = [p for d, p in enumerate(perm) if d not in gone]
    return tuple(sorted(kept).index(p) for p in kept)

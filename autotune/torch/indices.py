"""Indices that are tensors of one number, `cache[:, place]`. In: a graph as Dynamo records it.
Out: the same with lists of one index each.

PyTorch reads the number of such a tensor to make a view, which no graph can hold, and runs the
whole graph itself; of a list the graph has a gather, or a scatter where it is written to.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_WRITERS = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem)


def listed_indices(module: fx.GraphModule) -> fx.GraphModule:
    """The module itself where there are no such indices."""
    nodes = [n for n in module.graph.nodes if _place(n) is not None]
    if any(map(_writes, module.graph.nodes)):
        # What is read by a list is no view: it does not follow what is written later.
        nodes = [n for n in nodes if n.target is operator.setitem]
    if not nodes:
        return module
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    for node in nodes:
        _relisted(graph, copies[node], node)
    return fx.GraphModule(module, graph)


def _relisted(graph: fx.Graph, node: fx.Node, known: fx.Node) -> None:
    """Replace the index of a node; `known`: the same node with what it reads, as recorded."""
    place = _place(known)
    assert place is not None
    behind = _behind(known, place)
    whole, given, *value = node.args
    parts = list(given) if isinstance(given, tuple | list) else [given]
    with graph.inserting_before(node):
        parts[place] = graph.call_method("reshape", (parts[place], (1,)))
        if value and _dims(known.args[2]) > behind:
            value = [graph.call_method("unsqueeze", (value[0], -behind - 1))]
    node.args = (whole, tuple(parts), *value)
    if not value:
        with graph.inserting_after(node):
            made = graph.call_method("select", (node, -behind - 1, 0))
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


def _place(node: fx.Node) -> int | None:
    """Where among a node's indices the only tensor is, of one whole number."""
    if node.target not in (operator.getitem, operator.setitem) or _dims(node.args[0]) == 0:
        return None
    tensors = [i for i, part in enumerate(_parts(node)) if _tensor(part) is not None]
    plain = all(
        p is None or p is Ellipsis or isinstance(p, slice | int | fx.Node) for p in _parts(node)
    )
    if len(tensors) != 1 or not plain:
        return None
    index = _tensor(_parts(node)[tensors[0]])
    whole = index is not None and index.dtype in (torch.int64, torch.int32)
    return tensors[0] if whole and index is not None and index.dim() == 0 else None


def _behind(node: fx.Node, place: int) -> int:
    """How many dimensions of the result lie behind that of the index."""
    parts = _parts(node)
    rest = _dims(node.args[0]) - sum(p is not None and p is not Ellipsis for p in parts)
    after = sum(p is None or isinstance(p, slice) for p in parts[place + 1 :])
    return after + (0 if Ellipsis in parts[:place] else rest)


def _parts(node: fx.Node) -> Sequence[Any]:
    given = node.args[1]
    return given if isinstance(given, tuple | list) else (given,)


def _tensor(part: Any) -> torch.Tensor | None:
    value = part.meta.get("example_value") if isinstance(part, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _dims(part: Any) -> int:
    found = _tensor(part)
    return 0 if found is None else found.dim()


def _writes(node: fx.Node) -> bool:
    """Whether a node writes to what it is given."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    written = node.op in ("call_method", "call_function") and in_place
    return written or node.target in _WRITERS or "out" in node.kwargs

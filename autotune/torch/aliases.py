"""Results of a graph that lie in the same memory, or have elements that do. In: a graph's results.
Out: the tensors that they are views of, and the nodes that make the views.

Who writes to one of them sees it in the others, as in eager: so what they have in common is a
result of ours, and PyTorch makes its views. Views of a graph's inputs it makes again from these:
where sizes are open, by the places and strides of what the graph gave.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from autotune.torch.split import GraphPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultViews:
    """Results that share memory with others, or among their own elements."""

    piece: GraphPiece
    """Makes them of what they are views of, its inputs."""
    several: bool
    """Whether some share memory with others."""

    def asked(self, results: Collection[fx.Node]) -> set[fx.Node]:
        """What is computed for these results before views are made."""
        made = {n for n in self.piece.inputs if n.op == "call_function"}
        return (set(results) - set(self.piece.outputs)) | made

    def without(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The nodes that are run for something else than the views."""
        idle: set[fx.Node] = set()
        made = set(self.piece.nodes)
        for node in reversed(nodes):
            if node in made and all(u in idle or u.op == "output" for u in node.users):
                idle.add(node)
        return [n for n in nodes if n not in idle]


def result_views(results: Sequence[Any]) -> ResultViews | None:
    """The views among a graph's results of what others of them are views of too, and those that
    repeat elements, or are of an input where sizes are open; None where there are none."""
    by_source: dict[fx.Node, list[fx.Node]] = {}
    for result in dict.fromkeys(r for r in results if isinstance(r, fx.Node)):
        by_source.setdefault(_source(result), []).append(result)
    shared = {
        source: [v for v in views if v is not source]
        for source, views in by_source.items()
        if _is_open_input(source)
        or (source.op == "call_function" and (len(views) > 1 or _repeats(views[0])))
    }
    shared = {source: views for source, views in shared.items() if views}
    if not shared:
        return None
    chains = {n for views in shared.values() for view in views for n in _chain(view)}
    nodes = [n for n in next(iter(shared)).graph.nodes if n in chains]
    piece = GraphPiece(
        native=False, nodes=tuple(nodes), inputs=tuple(shared),
        outputs=tuple(v for views in shared.values() for v in views),
    )  # fmt: skip
    several = any(s.op == "call_function" and len(by_source[s]) > 1 for s in shared)
    return ResultViews(piece=piece, several=several)


def _is_open_input(source: fx.Node) -> bool:
    """Whether it is an input some of whose sizes a call knows."""
    given = source.meta.get("val")
    if source.op != "placeholder" or not isinstance(given, torch.Tensor):
        return False
    numbers = (*given.shape, *given.stride(), given.storage_offset())
    return not all(isinstance(n, int) for n in numbers)


def _repeats(result: fx.Node) -> bool:
    """Whether a result has the same memory for several elements."""
    made = result.meta.get("val")
    if not isinstance(made, torch.Tensor):
        return False
    pairs = zip(made.shape, made.stride(), strict=True)
    return any(
        isinstance(s, int) and s == 0 and (not isinstance(e, int) or e > 1) for e, s in pairs
    )


def _chain(view: fx.Node) -> list[fx.Node]:
    """The nodes that make a view, from the last to the first."""
    nodes = []
    while is_view(view):
        nodes.append(view)
        view = view.all_input_nodes[0]
    return nodes


def _source(node: fx.Node) -> fx.Node:
    chain = _chain(node)
    return chain[-1].all_input_nodes[0] if chain else node


def is_view(node: fx.Node) -> bool:
    """Whether a node gives its first operand's memory, or one of several such parts of it."""
    if node.target is operator.getitem:
        return is_view(node.all_input_nodes[0])
    schema = getattr(node.target, "_schema", None)
    first = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return first is not None and not first.is_write

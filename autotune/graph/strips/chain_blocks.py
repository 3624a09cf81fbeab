"""Chains of image layers as the same for every image of a batch, and for every strip of rows.

In: a chain, a rewriter, rows of a strip. Out: the nodes, with `blocks` around what is repeated. A
strip of rows inside of an image is as high as the next one, and reads as many rows: all of them
are one block's work, whatever the image's height. Only the first and the last meet the border.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UndecidedError
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter
from autotune.graph.strips.image_chain import ImageChain, Rows
from autotune.ops.blocks import resized
from autotune.sizes import least, surely_at_most
from autotune.types import Attr, TensorType

OUT = "out"
"""The output of a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlocks:
    """Strips of `rows` rows of a chain's output: the first, `count` alike, and the last."""

    chain: ImageChain
    rows: int
    count: int
    steps: Mapping[str, tuple[int, int, int]]
    """Per image that the chain reads: first row, rows from strip to strip, and rows of a strip."""

    @staticmethod
    def of(chain: ImageChain, rows: int) -> RowBlocks | None:
        """None where strips do not divide the image, or inner ones meet its border."""
        height = chain.height
        try:
            if least(height // rows) < 2:
                return None
            count = height // rows - 2
            end = (count + 1) * rows
            chain.needed((0, rows)), chain.needed((end, height))
        except UndecidedError:
            return None
        one, two = (_reads(chain, (n * rows, (n + 1) * rows)) for n in (1, 2))
        if not _is_inside(chain, (rows, 2 * rows), (end - rows, end)):
            return None
        steps = {v: (low, two[v][0] - low, high - low) for v, (low, high) in one.items()}
        return RowBlocks(chain=chain, rows=rows, count=count, steps=steps)

    def emit(self, new: Rewriter) -> str:
        """The chain in strips; returns the result."""
        chain, rows = self.chain, self.rows
        end = (self.count + 1) * rows
        parts = [chain.emit(new, (0, rows), copied=True)]
        if self.count != 0:
            parts.append(self._inner(new))
        parts.append(chain.emit(new, (end, chain.height), copied=True))
        return new.emit("concat", parts, chain.nodes[-1], axis=1)

    def _inner(self, new: Rewriter) -> str:
        """The strips between the first and the last one."""
        held = {value: (low, low + length) for value, (low, _, length) in self.steps.items()}

        def strip(body: Rewriter) -> str:
            return self.chain.emit(body, (self.rows, 2 * self.rows), held, copied=True)

        return _blocks(self.chain, new, strip, self.steps, (1, self.count))


def _reads(chain: ImageChain, rows: Rows) -> dict[str, Rows]:
    """The rows of each image around the chain that such rows of its output are made of."""
    needed, found = chain.inside(rows), dict[str, Rows]()
    inside = {node.output for node in chain.nodes}
    for number, node in enumerate(chain.nodes):
        for value in node.inputs:
            if value in inside or not chain.moves(node, value):
                continue
            main = value == chain.main and number == 0
            low, high = needed[0 if main else number + 1]
            before = found.get(value, (low, high))
            found[value] = min(low, before[0]), max(high, before[1])
    return found


def _is_inside(chain: ImageChain, first: Rows, last: Rows) -> bool:
    """Whether strips from the first to the last one need no rows beyond the border."""
    values = [chain.main, *(node.output for node in chain.nodes)]
    ends = [chain.graph.types[value].shape[1] for value in values]
    from_first, to_last = chain.inside(first), chain.inside(last)
    return all(low >= 0 for low, _ in from_first) and all(
        surely_at_most(end, extent) for (_, end), extent in zip(to_last, ends, strict=True)
    )


def emit_images(
    chain: ImageChain, new: Rewriter, emit: Callable[[ImageChain, Rewriter], str]
) -> str:
    """The chain, image by image, as `emit` says for one; returns the result."""
    count = chain.graph.types[chain.output].shape[0]
    if count == 1:
        return emit(chain, new)
    one = dataclasses.replace(chain, graph=single(chain.graph, chain))
    batched = {
        value: (0, 1, 1)
        for node in chain.nodes
        for value in node.inputs
        if _is_batch(chain.graph.types[value], count)
    }
    inside = {node.output for node in chain.nodes}
    moving = {value: steps for value, steps in batched.items() if value not in inside}
    return _blocks(one, new, lambda body: emit(one, body), moving, (0, count))


def _is_batch(kind: TensorType, count: int) -> bool:
    return len(kind.shape) == 4 and kind.shape[0] == count


def single(graph: Graph, chain: ImageChain) -> Graph:
    """The graph with types of one image in the chain and what it reads."""
    count = graph.types[chain.output].shape[0]
    values = {value for node in chain.nodes for value in (*node.inputs, node.output)}
    types = {
        value: resized(graph.types[value], 0, 1)
        for value in values
        if value not in graph.constants and _is_batch(graph.types[value], count)
    }
    return dataclasses.replace(graph, types={**graph.types, **types})


def _blocks(
    chain: ImageChain,
    new: Rewriter,
    emit: Callable[[Rewriter], str],
    moving: Mapping[str, tuple[int, int, int]],
    along: tuple[int, int],
) -> str:
    """What `emit` makes of a block, for each of them. `moving`: first place, places from block to
    block, and those of a block, of what moves; `along`: the axis, and the number of blocks."""
    axis, count = along
    graph, inside = chain.graph, {node.output for node in chain.nodes}
    around = dict.fromkeys(i for node in chain.nodes for i in node.inputs if i not in inside)
    makers = {node.output: node for node in graph.nodes}
    numbers = [makers[i] for i in around if i in makers and makers[i].op == "scalar"]
    operands = [i for i in around if i not in {node.output for node in numbers}]
    fixed = [i for i in operands if i not in moving]
    given = {**{i: graph.types[i] for i in fixed if i not in graph.constants}}
    given |= {i: resized(graph.types[i], axis, moving[i][2]) for i in operands if i in moving}
    body = Rewriter(
        Graph(
            name="block",
            inputs=tuple(given.items()),
            outputs=((OUT, chain.output),),
            nodes=(*numbers, *chain.nodes),
            constants={i: graph.constants[i] for i in fixed if i in graph.constants},
            types={**graph.types, **given},
        )
    )
    for node in numbers:
        body.keep(node)
    body.replace(chain.output, emit(body))
    made = body.finish()
    order = [i for i in operands if i in moving] + fixed
    names = {i: f"m{n}" for n, i in enumerate(order[: len(moving)])}
    names |= {i: f"f{n}" for n, i in enumerate(order[len(moving) :])}
    names |= {node.output: f"b{n}" for n, node in enumerate(made.nodes)}
    starts, steps, lengths = zip(*(moving[i] for i in order[: len(moving)]), strict=True)
    return new.emit(
        "blocks", [new.new(i) for i in order], chain.nodes[-1],
        moving=len(moving), axis=axis, count=count, starts=starts, steps=steps, lengths=lengths,
        body=_as_attribute(made.nodes, names),
    )  # fmt: skip


def _as_attribute(nodes: Sequence[Node], names: Mapping[str, str]) -> Attr:
    """The nodes over the body's names; the last one gives the result."""
    return tuple(
        (node.op, tuple(names[i] for i in node.inputs), names[node.output], node.attrs)
        for node in nodes
    )

"""Chains of image layers and the rows they need. In: a graph. Out: chains that can run in strips.

A chain is a run of nodes over NHWC images, each the only reader of the one before: convolutions,
pools, and the elementwise nodes behind them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, ints, kind_of, use_counts
from autotune.ops import conv, pool
from autotune.ops.window import Window
from autotune.sizes import surely_at_most
from autotune.types import Attr, TensorType

Rows = tuple[int, int]
"""First row and end."""

_TILED_CHANNELS = 16
"""From this depth on, tiled algorithms beat direct convolution (assumed, as in
`search_spaces.algorithms.winograd`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChain:
    """Nodes in order; the first reads the chain's input."""

    graph: Graph
    nodes: tuple[Node, ...]

    @property
    def output(self) -> str:
        return self.nodes[-1].output

    @property
    def height(self) -> int:
        return self.graph.types[self.output].shape[1]

    @property
    def windowed(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if is_windowed(self.graph, n))

    def split(self, count: int) -> list[Rows]:
        """Output rows in `count` strips of one height, but for the last one."""
        step = -(-self.height // count)
        return [(at, min(at + step, self.height)) for at in range(0, self.height, step)]

    def needed(self, rows: Rows) -> list[Rows]:
        """The rows of each node's result, and before them those of the input, for output rows."""
        return self._back(rows, lambda window, first, end: _within(window.extent, first, end))

    def inside(self, rows: Rows) -> list[Rows]:
        """The same of rows that need none beyond the border, or else with those."""
        return self._back(rows, lambda _, first, end: (first, end))

    def _back(self, rows: Rows, limited: Callable[[Window, int, int], Rows]) -> list[Rows]:
        out = [rows]
        for node in reversed(self.nodes):
            if is_windowed(self.graph, node):
                window = row_window(self.graph, node)
                rows = limited(window, *_reach(window, rows))
            out.append(rows)
        return out[::-1]

    def emit(
        self,
        new: Rewriter,
        rows: Rows,
        held: Mapping[str, Rows] = MappingProxyType({}),
        *,
        copied: bool = False,
    ) -> str:
        """The nodes for these output rows, over new values; returns the result. `held`: of images
        that the new graph has only some rows of, which; such a strip meets no border.
        `copied`: zeros beside what a first window reads are to lie in memory."""
        needed = self.inside(rows) if held else self.needed(rows)
        whole = self.graph.types[self.main].shape[1]
        value, there = new.new(self.main), held.get(self.main, (0, whole))
        for number, node in enumerate(self.nodes):
            attrs = node.attributes
            if is_windowed(self.graph, node):
                first, end = _reach(row_window(self.graph, node), needed[number + 1])
                low, high = needed[number]
                _, left, _, right = ints(node, "pads")
                attrs["pads"] = (low - first, left, end - high, right)
            main = _sliced(new, value, node, there, needed[number])
            if copied and not number and is_windowed(self.graph, node):
                main = new.emit("copy", [main], node)
            inputs = [
                main
                if i == self._main(number)
                else self._side(new, i, node, held, needed[number + 1])
                for i in node.inputs
            ]
            value, there = new.emit(node.op, inputs, node, **attrs), needed[number + 1]
        return value

    @property
    def main(self) -> str:
        """The image that it is made of."""
        return self._main(0)

    def _main(self, number: int) -> str:
        """The input of a node that the rows flow through."""
        return self.nodes[number - 1].output if number else self.nodes[0].inputs[0]

    def _side(
        self, new: Rewriter, value: str, node: Node, held: Mapping[str, Rows], rows: Rows
    ) -> str:
        if not self.moves(node, value):
            return new.new(value)
        there = held.get(value, (0, self.graph.types[value].shape[1]))
        return _sliced(new, new.new(value), node, there, rows)

    def moves(self, node: Node, value: str) -> bool:
        """Whether rows of a node's result need other rows of what it reads."""
        shape = self.graph.types[value].shape
        if is_windowed(self.graph, node):
            return value == node.inputs[0]
        return len(shape) >= 3 and shape[-3] != 1

    # ------------------------------------------------------------------------------ what it costs

    def intermediates(self) -> list[int]:
        """Bytes of what each layer hands to the next."""
        ends = [i for i, n in enumerate(self.nodes) if i and is_windowed(self.graph, n)]
        return [self.graph.types[self.nodes[i - 1].output].nbytes for i in ends]

    def weight_bytes(self) -> int:
        return sum(self.graph.types[n.inputs[1]].nbytes for n in self.windowed if n.op == "conv2d")

    def held_bytes(self, needed: Sequence[Rows]) -> int:
        """The most that a layer reads and writes for such rows."""
        values = [self.main, *(n.output for n in self.nodes)]
        sizes = [
            self.graph.types[v].nbytes * (high - low) // self.graph.types[v].shape[1]
            for v, (low, high) in zip(values, needed, strict=True)
        ]
        return max(a + b for a, b in itertools.pairwise(sizes))

    def flops(self, needed: Sequence[Rows]) -> int:
        """Work for such rows."""
        total = 0
        for node, (low, high) in zip(self.nodes, needed[1:], strict=True):
            n, _, w, c = self.graph.types[node.output].shape
            depth = 1
            if node.op == "conv2d":
                depth = 2 * math.prod(self.graph.types[node.inputs[1]].shape[:3])
            total += n * (high - low) * w * c * depth
        return total

    def whole_tiles(self, strips: Sequence[Rows]) -> bool:
        """Whether tiled convolutions compute whole tiles in every strip but the last."""
        tiled = [i for i, node in enumerate(self.nodes) if is_tiled(self.graph, node)]
        spans = [self.needed(rows)[i + 1] for rows in strips[:-1] for i in tiled]
        return not any((end - first) % conv.TILE for first, end in spans)


def _reach(window: Window, rows: Rows) -> Rows:
    """Input rows, some of them perhaps in the padding, of these output rows."""
    last = (rows[1] - 1) * window.stride + (window.kernel - 1) * window.dilation
    return rows[0] * window.stride - window.before, last - window.before + 1


def _within(extent: int, first: int, end: int) -> Rows:
    """The part of these rows that an image has. UndecidedError where its size decides that."""
    low = first if surely_at_most(0, first) else max(0, first)
    return low, end if surely_at_most(end, extent) else min(extent, end)


def _sliced(new: Rewriter, value: str, like: Node, held: Rows, wanted: Rows) -> str:
    """The wanted rows of an image that holds others."""
    if wanted == held:
        return value
    n, _, w, c = new.shape(value)
    return new.emit(
        "slice", [value], like, starts=(0, wanted[0] - held[0], 0, 0),
        stops=(n, wanted[1] - held[0], w, c), steps=(1, 1, 1, 1),
    )  # fmt: skip


# --------------------------------------------------------------------------------------- finding


def image_chains(graph: Graph, large_bytes: int) -> Iterator[ImageChain]:
    """Chains of two layers or more that hand on more than `large_bytes` at least once; each node
    is in one chain at most. What a tiled algorithm computes is never computed twice: it loses more
    by that than strips gain."""
    uses = use_counts(graph)
    readers = {value: node for node in graph.nodes for value in node.inputs}
    taken: set[str] = set()
    for node in graph.nodes:
        if node.output in taken or not is_windowed(graph, node):
            continue
        nodes, large, tiled = [node], False, is_tiled(graph, node)
        while uses[nodes[-1].output] == 1 and nodes[-1].output in readers:
            value, reader = nodes[-1].output, readers[nodes[-1].output]
            if is_windowed(graph, reader) and reader.inputs[0] == value:
                window, nbytes = row_window(graph, reader), graph.types[value].nbytes
                apart = window.kernel <= window.stride
                small = nbytes <= large_bytes and not (
                    large and apart and 4 * nbytes > large_bytes
                )
                if small or (tiled and not apart):
                    break
                large, tiled = True, tiled or is_tiled(graph, reader)
            elif not _pointwise(graph, reader, value):
                break
            nodes.append(reader)
        if large:
            taken.update(n.output for n in nodes)
            yield ImageChain(graph=graph, nodes=tuple(nodes))


def is_windowed(graph: Graph, node: Node) -> bool:
    """Convolutions by constant weights, and pools whose edges need no counting; each of their
    results needs some row of the image."""
    counted = bool(node.attributes.get("count_include_pad", False))
    fits = (
        (node.op == "conv2d" and node.inputs[1] in graph.constants)
        or node.op == "max_pool2d"
        or (node.op == "avg_pool2d" and not counted)
    )
    return fits and row_window(graph, node).meets_image


def row_window(graph: Graph, node: Node) -> Window:
    """The node's windows along the rows."""
    weights = graph.types[node.inputs[1]] if node.op == "conv2d" else None
    return _row_window(graph.types[node.inputs[0]], weights, node.attrs)


@functools.lru_cache(maxsize=4096)  # strips ask for each again and again
def _row_window(
    image: TensorType, weights: TensorType | None, attrs: tuple[tuple[str, Attr], ...]
) -> Window:
    if weights is not None:
        return conv.windows(image, weights, dict(attrs))[0]
    return pool.windows(image, dict(attrs))[0]


def is_tiled(graph: Graph, node: Node) -> bool:
    """Whether a tiled algorithm is likely to be the fastest for it."""
    if node.op != "conv2d":
        return False
    image, weights = (graph.types[i] for i in node.inputs)
    reach = conv.tiled_reach(image, weights, node.attributes)
    return weights.shape[2] >= _TILED_CHANNELS and any(map(any, reach))


def _pointwise(graph: Graph, node: Node, value: str) -> bool:
    """Whether each row of the result comes from the same row of every image it reads."""
    shape = graph.types[node.output].shape
    if kind_of(node.op) != "elementwise" or node.op == "expand":
        return False
    if graph.types[value].shape != shape or list(node.inputs).count(value) != 1:
        return False
    shapes = [graph.types[i].shape for i in node.inputs]
    return all(len(s) < 3 or s[-3] == 1 or (len(s) == 4 and s[1] == shape[1]) for s in shapes)

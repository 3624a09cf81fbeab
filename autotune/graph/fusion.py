"""Fusion: groups of nodes that become one kernel. In: a graph after the passes. Out: disjoint
groups of nodes.

A group computes one value; nothing else it computes is read outside, and nothing is computed
twice (but for `scalar` nodes, which each group copies). Views belong to no group: placement
decides about them. Groups are claimed in order of weight:

    attention                   two products, what lies between them and the elementwise nodes
                                behind them
    contraction, pool, gather   with the elementwise nodes behind them
    row                         with the elementwise nodes before and behind them
    scatter                     with the elementwise nodes and gathers that make its updates
    the rest                    elementwise nodes that end in one value; any other node alone
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.ops import OPS
from autotune.sizes import is_size, surely_less
from autotune.types import SHORT_FLOATS

EPILOGUE_ANCHORS = ("contraction", "pool", "scatter", "gather", "row")
_FEW_ROWS, _FEW_KEYS = 16, 96
"""Queries and keys below which scores in memory cost less than rows in small blocks."""
_LARGEST = 150
"""Operations of an elementwise expression, written out: where values are read several times, each
step of a chain multiplies them, and a kernel takes seconds to build."""
_NARROW = frozenset({"int8", "uint8", *SHORT_FLOATS})
CONVERTED = _NARROW | {"float32", "int32"}
"""Types that an epilogue may convert between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of one kernel in topological order; `anchor` is the output of the heaviest one."""

    nodes: tuple[Node, ...]
    anchor: str
    output: str


def fuse(
    graph: Graph, kernels: frozenset[str] = frozenset(), *, attention: bool = True
) -> tuple[Group, ...]:
    """The groups, each after every group it reads from. `kernels`: outputs of view nodes that need
    a kernel of their own. `attention`: whether it may become one kernel."""
    fusion = _Fusion(graph)
    for index in range(len(graph.nodes)) if attention else ():
        if graph.nodes[index].op == "softmax":
            fusion.claim_attention(index)
    for wanted in EPILOGUE_ANCHORS:
        # From the last to the first: of two contractions that meet in a residual add, the later
        # one takes it, when the other's result is already there.
        for index in reversed(range(len(graph.nodes))):
            if fusion.family(index) == wanted and index not in fusion.owner:
                fusion.claim(index)
    fusion.absorb_side_branches()
    for index in reversed(range(len(graph.nodes))):
        if index in fusion.owner or fusion.family(index) == "scalar":
            continue
        if fusion.family(index) != "view" or graph.nodes[index].output in kernels:
            fusion.claim_rest(index)
    return fusion.ordered()


class _Fusion:
    """Nodes are known by their index in the graph; a group by its anchor's index."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.index = {node.output: i for i, node in enumerate(graph.nodes)}
        self.readers: list[list[int]] = [[] for _ in graph.nodes]
        self.ancestors: list[int] = []
        for i in range(len(graph.nodes)):
            mask = 0
            for source in self.sources(i):
                self.readers[source].append(i)
                mask |= self.ancestors[source] | 1 << source
            self.ancestors.append(mask)
        self.kept = {self.index[v] for _, v in graph.outputs if v in self.index}
        self.owner: dict[int, int] = {}
        self.groups: dict[int, list[int]] = {}

    def sources(self, index: int) -> list[int]:
        return [self.index[v] for v in self.graph.nodes[index].inputs if v in self.index]

    def family(self, index: int) -> str:
        """The op's kind; `scalar` for itself, and of gathers, of any kind, `gather`."""
        op = self.graph.nodes[index].op
        if op in ("gather", "gather_elements"):
            return "gather"
        return op if op == "scalar" else OPS.get(op).kind

    def shape(self, index: int) -> tuple[int, ...]:
        return self.graph.types[self.graph.nodes[index].output].shape

    # ------------------------------------------------------------------------------------ growing

    def claim(self, anchor: int) -> None:
        members = {anchor}
        if self.family(anchor) == "scatter":
            self._own(anchor, self._joined(anchor))
            return
        if self.family(anchor) == "row":
            shape = self.graph.types[self.graph.nodes[anchor].inputs[0]].shape
            members |= self._feeding(members, shape)
        self._own(anchor, self._with_epilogue(members, anchor))

    def _joined(self, scatter: int) -> set[int]:
        """A scatter with what makes its data and its updates, of their shape; not its places."""
        node, members = self.graph.nodes[scatter], {scatter}
        for name in (node.inputs[0], node.inputs[2]):
            shape, made = self.graph.types[name].shape, self.index.get(name)
            if made is None or name == node.inputs[1] or not self._free(made, members, shape):
                continue
            members.add(made)
            if self.family(made) == "elementwise":
                members |= self._feeding({made}, shape)
                for source in {s for m in members - {scatter} for s in self.sources(m)}:
                    gathered = self.family(source) == "gather"
                    if gathered and self._free(source, members, shape):
                        members.add(source)
        return members

    def _free(self, index: int, readers: set[int], shape: tuple[int, ...]) -> bool:
        """Whether a node may be computed where it is read: elementwise or a gather, by these
        readers alone."""
        movable = self.family(index) in ("elementwise", "gather") and self.shape(index) == shape
        alone = readers.issuperset(self.readers[index]) and index not in self.kept
        return movable and alone and index not in self.owner

    def claim_attention(self, softmax: int) -> None:
        """softmax(f(a b)) c over rows, f elementwise, where nothing but the result is read."""
        shape, guard = self.shape(softmax), self._guard(softmax)
        weights = guard[-1] if guard else softmax
        last = self._last_product(softmax, weights)
        if last is None or self.kept.intersection((softmax, *guard)):
            return
        members = {softmax, *self._feeding({softmax}, shape)}
        outside = {s for m in members for s in self.sources(m)} - members
        first = [s for s in outside if self._is_product(s, shape)]
        first = [s for s in first if members.issuperset(self.readers[s])]
        if len(first) != 1 or first[0] in self.kept:
            return
        members |= {first[0], last, *guard}
        mask = sum(1 << m for m in members)
        outside = {s for m in members for s in self.sources(m)} - members
        if not any(self.ancestors[s] & mask for s in outside):
            self._own(last, self._with_epilogue(members, last))

    def _guard(self, softmax: int) -> tuple[int, ...]:
        """The nodes of where(ne(s, s), 0, s) if nothing else reads the softmax: zeros for rows
        without any score."""
        nodes, readers = self.graph.nodes, sorted(set(self.readers[softmax]))
        if [nodes[r].op for r in readers] != ["ne", "where"]:
            return ()
        value, (test, choice) = nodes[softmax].output, (nodes[r] for r in readers)
        zero = self.index.get(choice.inputs[1])
        known = zero is not None and nodes[zero].op == "scalar"
        if zero is None or not known or nodes[zero].attributes["value"] != 0:
            return ()
        same = test.inputs == (value, value) and self.readers[readers[0]] == [readers[1]]
        exact = same and choice.inputs == (test.output, nodes[zero].output, value)
        return tuple(readers) if exact else ()

    def _last_product(self, softmax: int, weights: int) -> int | None:
        """The product that multiplies rows of a softmax over them; `weights` is what it reads."""
        node, readers = self.graph.nodes[softmax], self.readers[weights]
        axis, rank = node.attributes["axis"], len(self.shape(softmax))
        if axis not in (-1, rank - 1) or len(readers) != 1 or rank < 2:
            return None
        reader, value = self.graph.nodes[readers[0]], self.graph.nodes[weights].output
        rows = reader.op == "matmul" and reader.inputs[0] == value != reader.inputs[1]
        same = rows and self.shape(readers[0])[:-1] == self.shape(softmax)[:-1]
        return readers[0] if same else None

    def _is_product(self, index: int, shape: tuple[int, ...]) -> bool:
        """A float32 product that makes scores of this shape, enough of them, from two values."""
        node = self.graph.nodes[index]
        plain = node.op == "matmul" and node.inputs[0] != node.inputs[1]
        float32 = self.graph.types[node.output].dtype == "float32"
        rows, keys = shape[-2:]
        # Softmaxes and sums along open rows of scores have no fast kernels of their own.
        many = not surely_less(rows, _FEW_ROWS) and not surely_less(keys, _FEW_KEYS)
        enough = is_size(keys) or many
        return plain and float32 and enough and self.shape(index) == shape

    def claim_rest(self, root: int) -> None:
        members = {root}
        if self.family(root) == "elementwise":
            members |= self._feeding(members, self.shape(root))
        self._own(root, members)

    def absorb_side_branches(self) -> None:
        """Elementwise work that only feeds a group, in the shape of its output, joins it."""
        for anchor, members in list(self.groups.items()):
            shape = self.shape(anchor)
            if self.family(anchor) != "row" and len(members) > 1:
                self._own(anchor, set(members) | self._feeding(set(members), shape, {anchor}))

    def _own(self, anchor: int, members: Iterable[int]) -> None:
        self.groups[anchor] = sorted(members)
        for index in self.groups[anchor]:
            self.owner[index] = anchor

    def _with_epilogue(self, members: set[int], anchor: int) -> set[int]:
        """The largest extension by elementwise nodes behind the anchor with a single output."""
        best, grown = set(members), set(members)
        sizes = dict.fromkeys(members, 1)
        mask = sum(1 << m for m in members)
        waiting = {r for m in members for r in self.readers[m] if r > anchor}
        queue = sorted(waiting)
        while queue:
            index = heapq.heappop(queue)
            size = 1 + sum(sizes.get(s, 0) for s in self.sources(index))
            if size <= _LARGEST and self._extends(index, grown, mask, anchor):
                grown.add(index)
                sizes[index] = size
                mask |= 1 << index
                for reader in set(self.readers[index]) - waiting:
                    waiting.add(reader)
                    heapq.heappush(queue, reader)
                live = self._live(grown)
                if len(live) == 1 and self._same_form(live[0], anchor):
                    best = set(grown)
        return best

    def _extends(self, index: int, grown: set[int], mask: int, anchor: int) -> bool:
        if self.family(index) != "elementwise" or index in self.owner:
            return False
        sources = [s for s in self.sources(index) if self.family(s) != "scalar"]
        form = self._same_form(index, anchor) or self._decides(index, anchor)
        if not form or not any(s in grown for s in sources):
            return False
        if any(s in grown and self._widens(index, s) for s in sources):
            return False
        # An operand that depends on the group could only be computed after it: a cycle.
        outside = (s for s in sources if s not in grown)
        return not any(self.ancestors[s] & mask for s in outside)

    def _widens(self, index: int, source: int) -> bool:
        """Whether bytes, or short floats, that are computed become floats again: it is the short
        ones that are stored."""
        kinds = [self.graph.types[self.graph.nodes[i].output].dtype for i in (source, index)]
        return kinds[0] in _NARROW and kinds[1] not in _NARROW

    def _same_form(self, index: int, anchor: int) -> bool:
        """Whether two nodes have one shape and type, or one shape and types converted on the
        way."""
        nodes, types = self.graph.nodes, self.graph.types
        one, other = types[nodes[index].output], types[nodes[anchor].output]
        return one == other or (one.shape == other.shape and {one.dtype, other.dtype} <= CONVERTED)

    def _decides(self, index: int, anchor: int) -> bool:
        """Whether a node's truths, in the anchor's shape, may lie between it and what is chosen by
        them: PReLU's condition. They are never stored."""
        nodes, types = self.graph.nodes, self.graph.types
        one, other = types[nodes[index].output], types[nodes[anchor].output]
        return one.dtype == "bool" and one.shape == other.shape

    def _live(self, members: set[int]) -> list[int]:
        """Members whose value is read outside."""
        return [m for m in members if m in self.kept or not members.issuperset(self.readers[m])]

    def _feeding(
        self, members: set[int], shape: tuple[int, ...], barred: Iterable[int] = ()
    ) -> set[int]:
        """Free elementwise nodes of that shape that only (transitively) feed members, other than
        through the inputs of `barred` ones, as long as no expression gets too large."""
        found: set[int] = set()
        written = dict.fromkeys(members, 1)  # times that a node is in the expression
        size, barred = 0, set(barred)
        waiting = {s for m in members for s in self.sources(m)} - members
        queue = sorted(-s for s in waiting)
        while queue:
            index = -heapq.heappop(queue)
            readers = self.readers[index]
            times = sum(written.get(r, 0) for r in readers)
            if (
                0 < times <= _LARGEST - size
                and index not in self.owner
                and index not in members
                and index not in self.kept
                and self.family(index) == "elementwise"
                and self.shape(index) == shape
                and all((r in members or r in found) and r not in barred for r in readers)
            ):
                found.add(index)
                written[index] = times
                size += times
                for source in set(self.sources(index)) - waiting:
                    waiting.add(source)
                    heapq.heappush(queue, -source)
        return found

    # ------------------------------------------------------------------------------------- result

    def ordered(self) -> tuple[Group, ...]:
        """Groups by their last node: operands come from single outputs, which lie before."""
        return tuple(
            self._group(anchor) for anchor in sorted(self.groups, key=lambda a: self.groups[a][-1])
        )

    def _group(self, anchor: int) -> Group:
        members = self.groups[anchor]
        scalars = {s for m in members for s in self.sources(m) if self.family(s) == "scalar"}
        nodes = tuple(self.graph.nodes[i] for i in sorted([*members, *scalars]))
        output = self.graph.nodes[members[-1]].output
        return Group(nodes=nodes, anchor=self.graph.nodes[anchor].output, output=output)

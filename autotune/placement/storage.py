"""Storages and placements of values. In: a graph. Out: its storages, a placement per value, and
which views must be computed by a kernel after all.

A kernel's output has a storage of its own (a root) unless a later value hosts it: the operands of
a concat lie in the concat's storage, and what is only reshaped or transposed on its way to the
next kernel is written in that order at once. Other views lie in their operand's storage. Where
strides cannot say it, the view becomes a kernel, or a `copy` is inserted. `_Placing.halos` says
where zeros are kept around a value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autotune.errors import VerifyError
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import ints
from autotune.ops import OPS
from autotune.placement.halos import Halo, larger, read_halo, useful_halo
from autotune.placement.own_outputs import fresh_name, with_own_outputs
from autotune.placement.types import Placement, Storage
from autotune.placement.views import concat_part, reshaped, sliced, transposed, untransposed
from autotune.sizes import surely_at_most
from autotune.types import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """`graph` is the given one with `copy` nodes where needed; `kernels` names the outputs of view
    nodes that need a kernel; `placements` has every value that is not inside a kernel."""

    graph: Graph
    kernels: frozenset[str]
    placements: Mapping[str, Placement]
    storages: Mapping[str, Storage]


def place(
    graph: Graph,
    paddings: Mapping[str, int] = MappingProxyType({}),
    strides: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Placed:
    """Decide all placements. Every value of `graph.outputs` ends dense in an array of its own.
    `paddings`: elements to leave free after the channels of a value's points; `strides`: of inputs
    and, by their public names, outputs that are not dense."""
    graph = with_own_outputs(graph)
    named = (*graph.outputs, *((name, name) for name, _ in graph.inputs))
    placing = _Placing(graph, paddings, {v: strides[n] for n, v in named if n in strides})
    placing.place_outputs()
    placing.place_concats()
    placing.place_views()
    return placing.result()


class _Placing:
    """Links between values: `hosts[v] = (w, position)` where v lies inside w, the output of a view
    node that reads v at that position. A view's output without a host lies in its operand."""

    def __init__(
        self, graph: Graph, paddings: Mapping[str, int], strides: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.graph, self.strides, self.types = graph, strides, dict(graph.types)
        self.nodes = {node.output: node for node in graph.nodes}
        self.order = list(self.nodes)
        self.readers: dict[str, list[str]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self.readers.setdefault(value, []).append(node.output)
        self.outputs = {value for _, value in graph.outputs}
        self.hosts: dict[str, tuple[str, int]] = {}
        self.kernels: set[str] = set()
        self.unhaloed: set[str] = set()
        self.settled: set[str] = set()
        self.needs: dict[str, Halo] = {}
        for node in graph.nodes:
            for value in node.inputs:
                # The same before and after: readers of other strides then get equal storages.
                halo = tuple((max(h), max(h)) for h in read_halo(node, self.types, value))
                halo = larger(halo, useful_halo(node, self.types, value))
                if any(map(any, halo)):
                    self.needs[value] = larger(self.needs.get(value, halo), halo)
        for value, padding in paddings.items():
            apart: Halo = ((0, 0), (0, 0), (0, 0), (0, padding))
            self.needs[value] = larger(self.needs.get(value, apart), apart)
        self.halo: dict[str, Halo] = {}

    # ---------------------------------------------------------------------------------- the state

    def shape(self, value: str) -> tuple[int, ...]:
        return self.types[value].shape

    def is_view(self, value: str) -> bool:
        """The output of a view node that no kernel computes. A concat is none: it is a root."""
        node = self.nodes.get(value)
        return (
            node is not None
            and node.op != "concat"
            and OPS.get(node.op).kind == "view"
            and value not in self.kernels
        )

    def forward(self, value: str) -> str | None:
        """The operand in which a view lies; None for roots and where the operand lies in it."""
        if not self.is_view(value):
            return None
        source = self.nodes[value].inputs[0]
        return None if self.hosts.get(source, ("", 0))[0] == value else source

    def root(self, value: str) -> str:
        while True:
            outer = self.hosts[value][0] if value in self.hosts else self.forward(value)
            if outer is None:
                return value
            value = outer

    def locate(self, value: str) -> Placement | None:
        """Where the value lies by the links made so far; None where strides cannot say it."""
        shape = self.shape(value)
        if value in self.hosts:
            host, position = self.hosts[value]
            node, outer = self.nodes[host], self.locate(host)
            if outer is None:
                return None
            if node.op == "concat":
                axis = _axis(node, len(shape))
                start = sum(self.shape(i)[axis] for i in node.inputs[:position])
                return concat_part(outer, shape, axis, start)
            if node.op == "transpose":
                return untransposed(outer, shape, ints(node, "perm"))
            return reshaped(outer, self.shape(host), shape)
        source = self.forward(value)
        if source is None:
            layout = Layout.haloed(shape, self.halo.get(value, ((0, 0),) * len(shape)))
            if value in self.strides:
                layout = dataclasses.replace(layout, strides=self.strides[value])
            return Placement(storage=value, offset=layout.span(shape)[0], layout=layout)
        inner = self.locate(source)
        return inner and self._viewed(self.nodes[value], inner)

    def _viewed(self, node: Node, inner: Placement) -> Placement | None:
        before = self.shape(node.inputs[0])
        if node.op == "transpose":
            return transposed(inner, before, ints(node, "perm"))
        if node.op == "slice":
            result = self.shape(node.output)
            return sliced(inner, before, result, ints(node, "starts"), ints(node, "steps"))
        return reshaped(inner, before, self.shape(node.output))

    # ------------------------------------------------------------------------------------- hosting

    def claim(self, value: str, host: str, position: int = 0) -> bool:
        """Let `value` lie in `host`, with what it is a view of; False, changing nothing, where it
        lies elsewhere already or strides cannot say it."""
        if value not in self.nodes or value in self.hosts or value in self.outputs:
            return False
        via = self.nodes[host].op
        if via == "transpose" and self.readers[value] != [host]:
            return False
        source = self.nodes[value].inputs[0] if self.is_view(value) else None
        if source is not None and self.nodes[value].op == "slice":
            return False
        inside = self._placed_inside(value)
        self.hosts[value] = (host, position)
        placement = self.locate(value)
        kept = all(self.locate(v) is not None for v in inside)
        fits = (
            placement is not None
            and kept
            and (source is not None or via == "concat" or self._contiguous(value, placement))
        )
        if fits and (source is None or self.claim(source, value)):
            return True
        del self.hosts[value]
        return False

    def _placed_inside(self, value: str) -> list[str]:
        """What lies in a value by decisions made already: they must stand where it moves."""
        found: list[str] = []
        seen = [value]
        for outer in seen:
            views = [r for r in self.readers.get(outer, ()) if self.forward(r) == outer]
            operands = self.nodes[outer].inputs
            hosted = [i for i in operands if i in self.hosts and self.hosts[i][0] == outer]
            found += [*(v for v in views if v in self.settled), *hosted]
            seen += [v for v in (*views, *hosted) if v not in seen]
        return found

    def _contiguous(self, value: str, placement: Placement) -> bool:
        """True where the innermost dimension is written with stride 1: scattering costs more than
        a transposing kernel."""
        strides = zip(placement.layout.strides, self.shape(value), strict=True)
        steps = [stride for stride, extent in strides if not surely_at_most(extent, 1)]
        return not steps or steps[-1] == 1 or self._hosted_by_concat(value)

    def _hosted_by_concat(self, value: str) -> bool:
        while value in self.hosts:
            value = self.hosts[value][0]
            if self.nodes[value].op == "concat":
                return True
        return False

    def place_outputs(self) -> None:
        """A view that is an output hosts its operand, or becomes a kernel."""
        for _, value in self.graph.outputs:
            if self.is_view(value):
                node = self.nodes[value]
                if node.op == "slice" or not self.claim(node.inputs[0], value):
                    self.kernels.add(value)

    def place_concats(self) -> None:
        """Operands of concats are written in place; outer concats first, so that they nest."""
        for value in reversed(self.order.copy()):
            if self.nodes[value].op != "concat":
                continue
            for position, operand in enumerate(self.nodes[value].inputs):
                if self.claim(operand, value, position):
                    continue
                alone = self.readers[operand] == [value] and operand not in self.hosts
                if alone and self.is_view(operand) and operand not in self.outputs:
                    self.kernels.add(operand)
                    placed = operand
                else:
                    placed = self._insert_copy(value, position)
                if not self.claim(placed, value, position):
                    raise VerifyError(f"{placed} has no place in {value}; report the model")

    def _insert_copy(self, reader: str, position: int) -> str:
        """Have `reader` read a copy of that input; returns the copy."""
        node = self.nodes[reader]
        source = node.inputs[position]
        copy = fresh_name(f"{source}.copy", self.types)
        self.types[copy] = self.types[source]
        self.nodes[copy] = Node(op="copy", inputs=(source,), output=copy, name=f"copy of {source}")
        inputs = (*node.inputs[:position], copy, *node.inputs[position + 1 :])
        self.nodes[reader] = dataclasses.replace(node, inputs=inputs)
        self.order.insert(self.order.index(reader), copy)
        readers = self.readers[source]
        readers[readers.index(reader)] = copy
        self.readers[copy] = [reader]
        return copy

    # --------------------------------------------------------------------------------------- views

    def place_views(self) -> None:
        """Settle every remaining view, operands first."""
        self.halos()
        for value in self.order.copy():
            source = self.forward(value)
            if source is None:
                continue
            if source in self.graph.constants:
                self.kernels.add(value)
            elif self.nodes[value].op == "reshape":
                self._place_reshape(value, source)
            if self.forward(value) is not None and not self._readable(value):
                self.kernels.add(value)
            self.settled.add(value)
            self.halos()

    def _place_reshape(self, value: str, source: str) -> None:
        alone = self.readers[source] == [value]
        if self.locate(value) is not None:
            # The reader's padding asks for a halo, which only a root can have.
            if value in self.needs and alone:
                self.claim(source, value)
            return
        if alone and self.claim(source, value):
            return
        movable = self.is_view(source) and source not in self.hosts
        if movable and self.nodes[source].op != "reshape":
            # A transposing kernel is faster than one that reshapes element by element.
            self.kernels.add(source)
            self.halos()
            if self.locate(value) is not None:
                if value in self.needs and alone:
                    self.claim(source, value)
                return
            self.kernels.discard(source)
        self.kernels.add(value)

    def _readable(self, value: str) -> bool:
        """False where a contraction or pool, or a gather of rows, would read the view in steps."""
        placement = self.locate(value)
        if placement is None:
            return False
        steps = [
            1 if extent == 1 else stride
            for stride, extent in zip(placement.layout.strides, self.shape(value), strict=True)
        ]
        for reader in self.readers.get(value, ()):
            node = self.nodes[reader]
            picks = node.op == "gather" and self._picks_rows(node, value)
            if not steps or not (picks or OPS.get(node.op).kind in ("contraction", "pool")):
                continue
            either = node.op == "matmul" and node.inputs[0] != value
            if 1 not in (steps[-2:] if either else steps[-1:]):
                return False
        return True

    def _picks_rows(self, node: Node, value: str) -> bool:
        """Whether a gather takes whole rows of the value, and most of them."""
        last = node.inputs[0] == value and _axis(node, len(self.shape(value))) + 1 < len(
            self.shape(value)
        )
        return last and surely_at_most(self.types[value].size, 2 * self.types[node.output].size)

    # --------------------------------------------------------------------------------------- halos

    def halos(self) -> None:
        """Give every root of the arena the zeros that paddings of its readers, and of the readers
        of slices of it and of operands it hosts, want to read. Arrays of the caller get none."""
        wanted = dict(self.needs)
        changed = True
        while changed:
            changed = False
            for value, halo in list(wanted.items()):
                outer = self._halo_outer(value, halo)
                if outer is not None:
                    joined = larger(wanted.get(outer, halo), halo)
                    changed |= joined != wanted.get(outer)
                    wanted[outer] = joined
        barred = self.outputs | self.unhaloed
        self.halo = {
            value: halo
            for value, halo in wanted.items()
            if value in self.nodes and value not in barred and self.root(value) == value
        }

    def _halo_outer(self, value: str, halo: Halo) -> str | None:
        """The value around this one whose halo serves it too."""
        if value in self.hosts:
            host = self.hosts[value][0]
            node = self.nodes[host]
            if node.op != "concat" or any(halo[_axis(node, len(halo))]):
                return None
            return host
        source = self.forward(value)
        if source is None or self.nodes[value].op != "slice":
            return None
        whole = zip(self.shape(source), self.shape(value), halo, strict=True)
        return source if all(a == b or not any(h) for a, b, h in whole) else None

    # -------------------------------------------------------------------------------------- result

    def result(self) -> Placed:
        self._drop_obstructive_halos()
        nodes = tuple(self.nodes[v] for v in self.order)
        graph = dataclasses.replace(self.graph, nodes=nodes, types=self.types)
        placements = dict[str, Placement]()
        for value in graph.types:
            placement = self.locate(value)
            if placement is None:
                raise VerifyError(f"{value} has no placement; report the model")
            placements[value] = placement
        storages = {v: self._storage(v) for v in graph.types if self.root(v) == v}
        return Placed(
            graph=graph,
            kernels=frozenset(self.kernels),
            placements=placements,
            storages=storages,
        )

    def _drop_obstructive_halos(self) -> None:
        """A halo that a later decision brought must not break a view settled before it."""
        for value in self.order:
            if self.locate(value) is None:
                self.unhaloed.add(self.root(value))
                self.halos()

    def _storage(self, root: str) -> Storage:
        type_, halo = self.types[root], self.halo.get(root, ())
        padded = [e + sum(h) for e, h in zip(type_.shape, halo, strict=False)] or type_.shape
        return Storage(
            name=root,
            kind=self._kind(root),
            dtype=type_.dtype,
            elements=math.prod(padded),
            zeroed=bool(halo),
            sharing=f"{type_} {halo}" if halo else "",
            shape=type_.shape if halo else (),
            halo=halo,
        )

    def _kind(self, root: str) -> str:
        if root in self.graph.constants:
            return "constant"
        if root in self.outputs:
            return "output"
        return "arena" if root in self.nodes else "input"


def _axis(node: Node, rank: int) -> int:
    axis = node.attributes["axis"]
    assert isinstance(axis, int)
    return axis % rank

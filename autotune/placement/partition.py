"""A graph as kernel calls. In: a graph after the passes. Out: a `Partition`: canonical tasks, the
calls in execution order, and where every value lies. No call makes a value without elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autotune.graph.fusion import Group, fuse
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.canonical_operands import CanonicalOperands
from autotune.graph.rewriter import COMMUTATIVE
from autotune.placement.haloed_copies import with_haloed_copies
from autotune.placement.halos import Halo, larger, read_halo, useful_halo
from autotune.placement.layouts import Layouts, rearrange
from autotune.placement.storage import place
from autotune.placement.types import KernelCall, Partition, Placement
from autotune.placement.views import canonical_layout
from autotune.types import Layout, Role, Task, TaskNode, TaskValue, freeze_attrs


def partition(
    graph: Graph,
    *,
    attention: bool = True,
    layouts: Layouts = MappingProxyType({}),
    strides: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Partition:
    """Cut the graph into tasks and place its values. `attention`: whether it may be one task;
    `layouts`: of values that are not dense (`layout_choice` chooses them); `strides`: see
    `place`."""
    rearranged = rearrange(CanonicalOperands().run(graph), layouts)
    placed = place(rearranged.graph, rearranged.paddings, strides)
    copied = with_haloed_copies(rearranged.graph, placed.placements)
    if copied is not rearranged.graph:
        placed = place(copied, rearranged.paddings, strides)
    graph = placed.graph
    groups = fuse(graph, placed.kernels, attention=attention)
    made = [group for group in groups if graph.types[group.output].size]
    calls = tuple(_call(graph, group, placed.placements) for group in made)
    visible = {value for call in calls for _, value in call.args}
    visible.update(name for name, _ in graph.inputs)
    visible.update(value for _, value in graph.outputs)
    placements = {v: p for v, p in placed.placements.items() if v in visible}
    used = {p.storage for p in placements.values()}
    return Partition(
        graph=graph,
        calls=calls,
        placements=placements,
        storages={n: s for n, s in placed.storages.items() if n in used},
        layouts=layouts,
        origins=rearranged.origins,
    )


def _call(graph: Graph, group: Group, placements: Mapping[str, Placement]) -> KernelCall:
    naming = _Naming(graph=graph, group=group, placements=placements)
    order = _canonical_order(naming)
    nodes = tuple(naming.node(n) for n in order)
    anchor = next(i for i, n in enumerate(order) if n.output == group.anchor)
    task = Task(nodes=nodes, values=tuple(naming.values), anchor=anchor)
    names = dict.fromkeys(n.name for n in group.nodes if n.op != "scalar" and n.name)
    args = {name: value for value, name in naming.names.items()}
    return KernelCall(
        task=task,
        args=tuple((param.name, args[param.name]) for param in task.params),
        name="+".join(names),
    )


def _canonical_order(naming: _Naming) -> list[Node]:
    """Operands before their reader, from the output back: independent of the model's order."""
    order: list[Node] = []
    stack = [(naming.inside[naming.group.output], False)]
    done: set[str] = set()
    while stack:
        node, expanded = stack.pop()
        if node.output in done:
            continue
        if expanded:
            done.add(node.output)
            order.append(node)
            continue
        stack.append((node, True))
        operands = [naming.inside[i] for i in naming.operands(node) if i in naming.inside]
        stack.extend((n, False) for n in reversed(operands))
    return order


@dataclass(kw_only=True)
class _Naming:
    """Gives values of a group their canonical names, in order of first use."""

    graph: Graph
    group: Group
    placements: Mapping[str, Placement]
    inside: dict[str, Node] = field(init=False)
    names: dict[str, str] = field(default_factory=dict)
    values: list[TaskValue] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inside = {node.output: node for node in self.group.nodes}

    def operands(self, node: Node) -> tuple[str, ...]:
        """Inputs; of commutative nodes in the order: computed here, inputs, constants, scalars."""
        if node.op not in COMMUTATIVE:
            return node.inputs
        return tuple(sorted(node.inputs, key=self._rank))

    def node(self, node: Node) -> TaskNode:
        inputs = tuple(self._named(i) for i in self.operands(node))
        return TaskNode(
            op=node.op,
            inputs=inputs,
            outputs=(self._named(node.output),),
            attrs=freeze_attrs(node.attributes),
        )

    def _rank(self, value: str) -> int:
        if value in self.inside:
            return 3 if self.inside[value].op == "scalar" else 0
        return 2 if value in self.graph.constants else 1

    def _named(self, value: str) -> str:
        if value not in self.names:
            role = self._role(value)
            number = sum(v.role == role for v in self.values)
            self.names[value] = f"{'t' if role == 'local' else role[0]}{number}"
            type_ = self.graph.types[value]
            layout = self._layout(value, role)
            self.values.append(
                TaskValue(name=self.names[value], type=type_, role=role, layout=layout)
            )
        return self.names[value]

    def _role(self, value: str) -> Role:
        if value == self.group.output:
            return "output"
        if value in self.inside:
            return "local"
        return "constant" if value in self.graph.constants else "input"

    def _layout(self, value: str, role: Role) -> Layout:
        """The layout of an input or the output as placed, with no more halo than this kernel could
        read."""
        type_ = self.graph.types[value]
        if role not in ("input", "output"):
            return Layout.dense(type_.shape)
        layout = self.placements[value].layout
        halo: Halo = ((0, 0),) * len(type_.shape)
        for node in self.group.nodes if role == "input" else ():
            if value in node.inputs:
                for read in (read_halo, useful_halo):
                    wanted = read(node, self.graph.types, value)
                    halo = larger(halo, _covered(wanted, layout.halo))
        return canonical_layout(type_.shape, Layout(strides=layout.strides, halo=halo))


def _covered(read: Halo, there: Halo) -> Halo:
    """What is read, as far as it is there."""
    return tuple((min(r[0], t[0]), min(r[1], t[1])) for r, t in zip(read, there, strict=True))

"""Steps of sequences (`recur`) as calls that are made again and again. In: a partition. Out: the
same with the kernels of each step in place of the op that has none.

A step is a graph of its own, which goes through the passes and is cut into calls like any other.
What it shares with the graph around it are slots: pointers that move from trip to trip. The state
that it reads is where the step before it wrote, in the row of the result that was its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.errors import UndecidedError
from autotune.graph.ir import Graph, Node
from autotune.ops.recur import STATE, body_of, operand_names, step_types
from autotune.placement.partition import partition
from autotune.placement.types import KernelCall, MovingSlot, Partition, Placement, Repeat, Storage
from autotune.sizes import surely_at_most
from autotune.types import Attrs, TensorType

Prepare = Callable[[Graph], Graph]
NEW = "new"
"""The output of a step's graph."""


def with_steps(parts: Partition, prepare: Prepare) -> Partition:
    """`prepare`: has a step's graph go through the passes."""
    if not any(call.task.op == "recur" for call in parts.calls):
        return parts
    merged = _WithSteps(parts)
    for call in parts.calls:
        if call.task.op == "recur":
            merged.repeat(_Step.of(parts, call), prepare)
        else:
            merged.calls.append(call)
    return merged.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A call of `recur`: its operands by the body's names, but for constants."""

    name: str
    output: str
    attrs: Attrs
    values: Mapping[str, str]
    constants: Mapping[str, str]
    types: Mapping[str, TensorType]

    @staticmethod
    def of(parts: Partition, call: KernelCall) -> _Step:
        (node,), args, graph = call.task.nodes, dict(call.args), parts.graph
        attrs = dict(node.attrs)
        names = operand_names(len(node.inputs), attrs)
        values = [args[i] for i in node.inputs]
        known = dict(zip(names, values, strict=True))
        fixed = {n: v for n, v in known.items() if n[0] == "f" and v in graph.constants}
        return _Step(
            name=call.name,
            output=args[node.outputs[0]],
            attrs=attrs,
            values={n: v for n, v in known.items() if n not in fixed},
            constants=fixed,
            types=step_types([graph.types[v] for v in values], attrs),
        )

    def graph(self, around: Graph) -> Graph:
        nodes = tuple(
            Node(op=n.op, inputs=n.inputs, output=n.outputs[0], attrs=n.attrs, name=self.name)
            for n in body_of(self.attrs)
        )
        return Graph(
            name="step",
            inputs=tuple((name, self.types[name]) for name in self.values),
            outputs=((NEW, nodes[-1].output),),
            nodes=nodes,
            constants={name: around.constants[v] for name, v in self.constants.items()},
            types=self.types,
        )


@dataclass(slots=True)
class _WithSteps:
    """A partition in the making."""

    around: Partition
    calls: list[KernelCall] = field(default_factory=list)
    placements: dict[str, Placement] = field(init=False)
    storages: dict[str, Storage] = field(init=False)
    graph: Graph = field(init=False)
    repeats: list[Repeat] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graph = self.around.graph
        self.placements = dict(self.around.placements)
        self.storages = dict(self.around.storages)

    def repeat(self, step: _Step, prepare: Prepare) -> None:
        """The calls of a step, with names of their own. Raises UndecidedError where there may be
        none."""
        if not surely_at_most(1, self.graph.types[step.output].shape[0]):
            raise UndecidedError(f"{step.name}: the steps of a sequence may be none")
        step = self._alike(step)
        strides = {
            name: self._strides(value)[name[0] == "m" :] for name, value in step.values.items()
        }
        strides[NEW] = self._strides(step.output)[1:]
        inner = partition(prepare(step.graph(self.graph)), strides=strides)

        def own(value: str) -> str:
            return f"{step.output}/{value}"

        first = len(self.calls)
        for call in inner.calls:
            args = tuple((name, own(value)) for name, value in call.args)
            self.calls.append(dataclasses.replace(call, args=args, name=step.name))
        for value, place in inner.placements.items():
            self.placements[own(value)] = dataclasses.replace(place, storage=own(place.storage))
        for name, storage in inner.storages.items():
            kind = "slot" if storage.kind in ("input", "output") else storage.kind
            made = dataclasses.replace(storage, name=own(name), kind=kind)
            self.storages[own(name)] = made
        self.graph = _joined(self.graph, inner.graph, own)
        ((_, new),) = inner.graph.outputs
        slots = self._slots(step, {name: own(name) for name in step.values}, own(new))
        self.repeats.append(
            Repeat(
                first=first,
                last=len(self.calls) - 1,
                trips=self.graph.types[step.output].shape[0],
                slots=slots,
                values=(*step.values.values(), step.output),
            )
        )

    def _alike(self, step: _Step) -> _Step:
        """The first state in a copy where its rows do not lie as those of the result do, which are
        the states of later steps."""
        state, rows = step.values[STATE], self._strides(step.output)[1:]
        if self._strides(state) == rows:
            return step
        kind, copy = step.types[STATE], f"{step.output}/first"
        graph = Graph(
            name="first",
            inputs=((STATE, kind),),
            outputs=((NEW, NEW),),
            nodes=(Node(op="copy", inputs=(STATE,), output=NEW, name=step.name),),
            constants={},
            types={STATE: kind, NEW: kind},
        )
        made = partition(graph, strides={STATE: self._strides(state), NEW: rows})
        names = {STATE: state, NEW: copy}
        for call in made.calls:
            args = tuple((name, names[value]) for name, value in call.args)
            self.calls.append(dataclasses.replace(call, args=args))
        _, elements = made.placements[NEW].layout.span(kind.shape)
        self.placements[copy] = dataclasses.replace(made.placements[NEW], storage=copy)
        self.storages[copy] = dataclasses.replace(
            made.storages[NEW], name=copy, kind="arena", elements=elements
        )
        types = {**self.graph.types, copy: kind}
        self.graph = dataclasses.replace(self.graph, types=types)
        return dataclasses.replace(step, values={**step.values, STATE: copy})

    def _slots(self, step: _Step, own: Mapping[str, str], new: str) -> tuple[MovingSlot, ...]:
        """Pointers to what a step reads and writes."""
        trips = self.graph.types[step.output].shape[0]
        back = bool(step.attrs["reverse"])

        def moving(storage: str, value: str) -> MovingSlot:
            step = self._strides(value)[0]
            start = step * (trips - 1) if back else 0
            return MovingSlot(
                storage=storage, value=value, start=start, step=-step if back else step
            )

        out = [moving(new, step.output)]
        for name, value in step.values.items():
            if own[name] not in self.storages:
                continue  # no call of the step reads it
            if name[0] == "m":
                out.append(moving(own[name], value))
            else:
                follows = new if name == STATE else ""
                out.append(MovingSlot(storage=own[name], value=value, follows=follows))
        return tuple(out)

    def _strides(self, value: str) -> tuple[int, ...]:
        return self.placements[value].layout.strides

    def result(self) -> Partition:
        return dataclasses.replace(
            self.around,
            graph=self.graph,
            calls=tuple(self.calls),
            placements=self.placements,
            storages=self.storages,
            repeats=tuple(self.repeats),
        )


def _joined(graph: Graph, inner: Graph, own: Callable[[str], str]) -> Graph:
    """The graph with a step's constants and types, for those who look them up."""
    constants = {own(name): array for name, array in inner.constants.items()}
    types = {own(name): kind for name, kind in inner.types.items()}
    return dataclasses.replace(
        graph, constants={**graph.constants, **constants}, types={**graph.types, **types}
    )

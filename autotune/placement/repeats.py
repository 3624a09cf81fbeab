"""Steps of sequences (`recur`) and blocks (`blocks`) as calls that are made again and again. In: a
partition. Out: the same with the kernels of each step in place of the op that has none.

A step is a graph of its own, which goes through the passes and is cut into calls like any other,
which may again have steps in it. What it shares with the graph around it are slots: pointers that
move from trip to trip. The state that a step of a sequence reads is where the step before it
wrote, in the row of the result that was its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import UndecidedError
from autotune.graph.ir import Graph, Node
from autotune.ops import blocks, recur
from autotune.ops.body import body_of
from autotune.ops.recur import STATE
from autotune.placement.partition import partition
from autotune.placement.types import KernelCall, MovingSlot, Partition, Placement, Repeat, Storage
from autotune.sizes import surely_at_most
from autotune.types import Attrs, TensorType

Prepare = Callable[[Graph], Graph]
NEW = "new"
"""The output of a step's graph."""


def with_steps(parts: Partition, prepare: Prepare) -> Partition:
    """`prepare`: has the graph of a sequence's step go through the passes; blocks are parts of a
    graph that went through them."""
    if not any(call.task.op in _STEPS for call in parts.calls):
        return parts
    merged = _WithSteps(parts)
    for call in parts.calls:
        if call.task.op in _STEPS:
            merged.repeat(_STEPS[call.task.op](parts, call), prepare)
        else:
            merged.calls.append(call)
    return merged.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """How an operand or the result goes along an axis: its first place, and places a trip."""

    axis: int
    start: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A call of the op: its operands by the body's names, but for constants."""

    name: str
    output: str
    attrs: Attrs
    values: Mapping[str, str]
    constants: Mapping[str, str]
    types: Mapping[str, TensorType]
    trips: int
    moves: Mapping[str, _Moves]
    """Operands that move, and the result under the name NEW."""
    rows: bool
    """Whether what moves is a row, without the dimension that it moves along."""
    prepared: bool
    """Whether the passes have seen it."""

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


def _operands(
    parts: Partition, call: KernelCall, names: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """By the body's names, values and constants."""
    (node,), args = call.task.nodes, dict(call.args)
    known = dict(zip(names, (args[i] for i in node.inputs), strict=True))
    fixed = {n: v for n, v in known.items() if n[0] == "f" and v in parts.graph.constants}
    return {n: v for n, v in known.items() if n not in fixed}, fixed


def _sequence(parts: Partition, call: KernelCall) -> _Step:
    (node,), args = call.task.nodes, dict(call.args)
    attrs, types = dict(node.attrs), [parts.graph.types[args[i]] for i in node.inputs]
    values, constants = _operands(parts, call, recur.operand_names(len(types), attrs))
    output = args[node.outputs[0]]
    trips, back = parts.graph.types[output].shape[0], bool(attrs["reverse"])
    if not surely_at_most(1, trips):
        raise UndecidedError(f"{call.name}: the steps of a sequence may be none")
    moved = _Moves(axis=0, start=trips - 1 if back else 0, step=-1 if back else 1)
    return _Step(
        name=call.name,
        output=output,
        attrs=attrs,
        values=values,
        constants=constants,
        types=recur.step_types(types, attrs),
        trips=trips,
        moves=dict.fromkeys([NEW, *(n for n in values if n[0] == "m")], moved),
        rows=True,
        prepared=False,
    )


def _blocks(parts: Partition, call: KernelCall) -> _Step:
    (node,), args = call.task.nodes, dict(call.args)
    attrs, given = dict(node.attrs), [parts.graph.types[args[i]] for i in node.inputs]
    values, constants = _operands(parts, call, blocks.operand_names(len(given), attrs))
    types, axis = blocks.block_types(given, attrs), blocks.block_axis(attrs)
    moves = {
        f"m{n}": _Moves(axis=axis, start=start, step=step)
        for n, (start, step) in enumerate(
            zip(blocks.numbers(attrs, "starts"), blocks.numbers(attrs, "steps"), strict=True)
        )
    }
    made = types[body_of(attrs)[-1].outputs[0]]
    return _Step(
        name=call.name,
        output=args[node.outputs[0]],
        attrs=attrs,
        values=values,
        constants=constants,
        types=types,
        trips=blocks.block_count(attrs),
        moves={**moves, NEW: _Moves(axis=axis, start=0, step=made.shape[axis])},
        rows=False,
        prepared=True,
    )


_STEPS: Mapping[str, Callable[[Partition, KernelCall], _Step]] = {
    recur.Recur.name: _sequence,
    blocks.OverBlocks.name: _blocks,
}


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
        """The calls of a step, with names of their own. Raises UndecidedError where steps of a
        sequence may be none."""
        if STATE in step.values:
            step = self._alike(step)
        strides = {name: self._inside(step, name, value) for name, value in step.values.items()}
        strides[NEW] = self._inside(step, NEW, step.output)
        graph = step.graph(self.graph)
        cut = partition(graph if step.prepared else prepare(graph), strides=strides)
        inner = with_steps(cut, prepare)

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
                trips=step.trips,
                slots=slots,
                values=(*step.values.values(), step.output),
            )
        )
        self.repeats += [_renamed(repeat, first, own) for repeat in inner.repeats]

    def _inside(self, step: _Step, name: str, value: str) -> tuple[int, ...]:
        """Strides of an operand or the result as the step has it."""
        return self._strides(value)[step.rows and name in step.moves :]

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

        def moving(storage: str, value: str, moves: _Moves) -> MovingSlot:
            stride = self._strides(value)[moves.axis]
            return MovingSlot(
                storage=storage,
                value=value,
                start=stride * moves.start,
                step=stride * moves.step,
            )

        out = [moving(new, step.output, step.moves[NEW])]
        for name, value in step.values.items():
            if own[name] not in self.storages:
                continue  # no call of the step reads it
            if name in step.moves:
                out.append(moving(own[name], value, step.moves[name]))
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


def _renamed(repeat: Repeat, first: int, own: Callable[[str], str]) -> Repeat:
    """A repeat inside of another one's calls, which begin at `first`, with the names there."""
    slots = tuple(
        dataclasses.replace(
            slot,
            storage=own(slot.storage),
            value=own(slot.value),
            follows=own(slot.follows) if slot.follows else "",
        )
        for slot in repeat.slots
    )
    return dataclasses.replace(
        repeat,
        first=repeat.first + first,
        last=repeat.last + first,
        slots=slots,
        values=tuple(map(own, repeat.values)),
    )

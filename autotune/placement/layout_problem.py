"""The layout problem of a graph: its possible layouts, and its kernels in each. In: a graph, a
target. Out: a `LayoutProblem`.

Only values with more than one sensible layout are choices: those under windows whose rows would
evict each other from the inner cache, and images of few channels. Every kernel that touches one
of them is known in each combination of layouts, as the tasks that it consists of there: a copy
between two layouts belongs to the kernel that makes the value.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.placement.layouts import DENSE, Layouts, ValueLayout, takes_zeros
from autotune.placement.partition import partition
from autotune.placement.stride_padding import keeps_points, padding_of, read_again_bytes
from autotune.placement.types import KernelCall, Partition
from autotune.target import Target
from autotune.types import Task

_WIDTH, _MOST_CHANNELS, _LARGEST = 4, 8, 3
"""Channels of an image are filled up to a multiple of the first, if they are fewer than the
second, under windows up to the third."""

Combination = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelVariants:
    """One kernel call. `variants`: an option of each of `values` -> its tasks; combinations that
    cannot be had are missing."""

    name: str
    values: tuple[str, ...]
    variants: Mapping[Combination, tuple[Task, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutProblem:
    """`options`: value -> its layouts, dense first. `parts`: the graph cut with every value in its
    first layout (all dense), its second, ..."""

    options: Mapping[str, tuple[ValueLayout, ...]]
    kernels: tuple[KernelVariants, ...]
    parts: tuple[Partition, ...]

    @property
    def dense(self) -> Partition:
        return self.parts[0]

    def tasks(self) -> tuple[Task, ...]:
        """Every task of every variant, each once."""
        found = (t for k in self.kernels for tasks in k.variants.values() for t in tasks)
        return tuple(dict.fromkeys(found))

    def layouts(self, chosen: Mapping[str, int]) -> Layouts:
        """The layouts of chosen options, without dense ones."""
        return {v: self.options[v][o] for v, o in chosen.items() if o}


def problem_of(graph: Graph, target: Target) -> LayoutProblem:
    """The choices of a prepared graph."""
    attention = target.joins_attention
    dense = partition(graph, attention=attention)
    options = {} if target.is_gpu else _options(graph, dense, target)
    states = range(1, max(map(len, options.values()), default=1))
    layouts = [_uniform(options, state) for state in states]
    laid = (partition(graph, attention=attention, layouts=each) for each in layouts)
    parts = (dense, *laid)
    return LayoutProblem(options=options, kernels=_kernels(options, parts), parts=parts)


def _uniform(options: Mapping[str, tuple[ValueLayout, ...]], state: int) -> Layouts:
    """Every value in the layout of that number, or its last one."""
    chosen = {v: o[min(state, len(o) - 1)] for v, o in options.items()}
    return {v: layout for v, layout in chosen.items() if layout != DENSE}


# ------------------------------------------------------------------------------------- candidates


def _options(graph: Graph, dense: Partition, target: Target) -> dict[str, tuple[ValueLayout, ...]]:
    """Values with several sensible layouts."""
    out: dict[str, tuple[ValueLayout, ...]] = {}
    rigid = _rigid_storages(dense)
    for node in graph.nodes:
        value = node.inputs[0] if node.inputs else ""
        if value not in dense.placements:
            continue
        type_, place = graph.types[value], dense.placements[value]
        if read_again_bytes(node, value, graph.types, place.layout.strides, target):
            padded = ValueLayout(padding=padding_of(type_.dtype, target))
            copied = dataclasses.replace(padded, copied=True)
            if place.storage in rigid or place.storage not in graph.types:
                out.setdefault(value, (DENSE, copied))
            elif place.storage == value:
                out.setdefault(value, (DENSE, padded, copied))
            else:
                out.setdefault(place.storage, (DENSE, padded))
        elif node.op == "conv2d":
            zeros = -type_.shape[3] % _WIDTH
            source = _whole_image(graph, value)
            if _narrow(graph, node, zeros) and takes_zeros(graph, source):
                out.setdefault(source, (DENSE, ValueLayout(zeros=zeros)))
    return out


def _narrow(graph: Graph, node: Node, zeros: int) -> bool:
    """Whether the channels under such weights are few, and a single one is missing: more cost more
    than algorithms for whole vectors save. Windows that step or are larger only lose by it."""
    kh, kw, channels, _ = graph.types[node.inputs[1]].shape
    few = zeros == 1 and channels < _MOST_CHANNELS
    dense = node.attributes.get("groups", 1) == 1 and node.attributes.get("strides", (1, 1)) == (
        1,
        1,
    )
    floats = graph.types[node.inputs[1]].dtype == "float32"
    return few and dense and floats and 1 < min(kh, kw) <= max(kh, kw) <= _LARGEST


def _whole_image(graph: Graph, value: str) -> str:
    """What the value is a slice of, or itself."""
    nodes = {n.output: n for n in graph.nodes}
    while value in nodes and nodes[value].op == "slice":
        value = nodes[value].inputs[0]
    return value


def _rigid_storages(dense: Partition) -> set[str]:
    """Storages whose points cannot move: of callers and constants, and those that views see in
    another shape."""
    out = {name for name, storage in dense.storages.items() if storage.kind != "arena"}
    for node in dense.graph.nodes:
        if not keeps_points(node.op):
            for value in (*node.inputs, node.output):
                if value in dense.placements:
                    out.add(dense.placements[value].storage)
    for place in dense.placements.values():
        if len(place.layout.strides) != 4:
            out.add(place.storage)
    return out


# ---------------------------------------------------------------------------------------- kernels


def _calls(part: Partition) -> dict[str, list[KernelCall]]:
    """The calls of a partition by the value that they compute, copies with what they copy."""
    out: dict[str, list[KernelCall]] = {}
    for call in part.calls:
        value = dict(call.args)[call.task.by_role("output")[0].name]
        out.setdefault(part.origins.get(value, value), []).append(call)
    return out


def _kernels(
    options: Mapping[str, tuple[ValueLayout, ...]], parts: Sequence[Partition]
) -> tuple[KernelVariants, ...]:
    calls = [_calls(p) for p in parts]
    out = []
    for name in dict.fromkeys(itertools.chain(*calls)):
        found = [c.get(name, []) for c in calls]
        touched = _touched(options, found, parts)
        if touched:
            variants = _variants(touched, options, found, parts)
            out.append(KernelVariants(name=name, values=touched, variants=variants))
    return tuple(out)


def _touched(
    options: Mapping[str, tuple[ValueLayout, ...]],
    found: list[list[KernelCall]],
    parts: Sequence[Partition],
) -> tuple[str, ...]:
    """The choices that a kernel's operands lie in, in any of the partitions."""
    places = parts[0].placements
    homes = {v: places[v].storage if v in places else v for v in options}
    near: set[str] = set()
    for part, own in zip(parts, found, strict=True):
        near |= {home for call in own for _, v in call.args for home in _homes(v, part, parts[0])}
    return tuple(v for v in options if homes[v] in near or v in near)


def _variants(
    touched: tuple[str, ...],
    options: Mapping[str, tuple[ValueLayout, ...]],
    found: list[list[KernelCall]],
    parts: Sequence[Partition],
) -> dict[Combination, tuple[Task, ...]]:
    """Tasks of a kernel that is `found` in partitions where all values have the same option."""
    out = {}
    for chosen in itertools.product(*(range(len(options[v])) for v in touched)):
        for state in range(len(parts)):
            if _structure_fits(touched, options, chosen, state):
                tasks = _mixed(dict(zip(touched, chosen, strict=True)), state, found, parts)
                if tasks is not None:
                    out[chosen] = tasks
                break
    return out


def _structure_fits(
    touched: tuple[str, ...],
    options: Mapping[str, tuple[ValueLayout, ...]],
    chosen: Combination,
    state: int,
) -> bool:
    """Whether copies and zeros are, in the partition of that state, where they are chosen."""
    for value, option in zip(touched, chosen, strict=True):
        layouts = options[value]
        there, wanted = layouts[min(state, len(layouts) - 1)], layouts[option]
        if (there.copied, there.zeros) != (wanted.copied, wanted.zeros):
            return False
    return True


def _mixed(
    chosen: Mapping[str, int],
    state: int,
    found: list[list[KernelCall]],
    parts: Sequence[Partition],
) -> tuple[Task, ...] | None:
    """The tasks of one state, every operand in the layout that it has in the state chosen for it;
    None where the calls do not correspond."""
    tasks = []
    for call in found[state]:
        values = {v.name: v for v in call.task.values}
        for param, value in call.args:
            owner = _owner(value, chosen, parts[state], parts[0])
            same = found[state if owner is None else chosen[owner]]
            other = next((c.task for c in same if c.task.nodes == call.task.nodes), None)
            if other is None:
                return None
            values[param] = dataclasses.replace(values[param], layout=other.value(param).layout)
        tasks.append(dataclasses.replace(call.task, values=tuple(values.values())))
    return tuple(tasks)


def _owner(value: str, chosen: Mapping[str, int], part: Partition, dense: Partition) -> str | None:
    """The choice that the layout of a value follows."""
    return next((v for v in _homes(value, part, dense) if v in chosen), None)


def _homes(value: str, part: Partition, dense: Partition) -> tuple[str, ...]:
    """The value as the model has it, and those that it lies in: here, and where all is dense."""
    own = part.origins.get(value, value)
    places = [p.placements[v] for p, v in ((part, value), (dense, own)) if v in p.placements]
    return (own, *(part.origins.get(p.storage, p.storage) for p in places))

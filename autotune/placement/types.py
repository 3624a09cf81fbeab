"""A partition of a graph: fused kernel calls, and the place of every tensor.

Views (reshape, transpose, slice, split, concat) move nothing: they are placements in the storage
of another value. What compile and the tuner need, and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.graph.ir import Graph
from autotune.placement.layouts import Layouts
from autotune.types import Layout, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A block of memory that holds one or more values.

    kind: arena (planned scratch memory), input or output (the caller's array, dense), constant,
    slot (see MovingSlot).
    `elements` counts everything, halo included. `zeroed`: must hold zeros wherever no kernel
    writes (halos), so it may share memory only with storages of equal `sharing`."""

    name: str
    kind: str
    dtype: str
    elements: int
    zeroed: bool = False
    sharing: str = ""
    """Equal for zeroed storages of identical layout: these may share memory, others may not."""
    shape: tuple[int, ...] = ()
    halo: tuple[tuple[int, int], ...] = ()
    """Zeros before and after what a zeroed storage holds, by dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place of a value: element (0, 0, ...) is at `offset` elements into the storage."""

    storage: str
    offset: int
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """One task applied to values of the graph: task value name -> graph value name, for every
    input, constant and output of the task."""

    task: Task
    args: tuple[tuple[str, str], ...]
    name: str
    """The model's own node names, joined: for tables and messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingSlot:
    """A pointer that kernels of repeated calls use in place of a value, which moves from trip to
    trip: the storage of kind `slot` is where it points. At first it is `start` elements behind the
    beginning of `value`; with every trip it moves by `step` elements, or goes where the pointer
    `follows` was."""

    storage: str
    value: str
    start: int = 0
    step: int = 0
    follows: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Calls `first` to `last`, both included, that are made `trips` times, perhaps not at all."""

    first: int
    last: int
    trips: int
    slots: tuple[MovingSlot, ...]
    values: tuple[str, ...]
    """What the calls read and write outside of them: alive from the first to the last trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A graph as kernel calls in execution order, with all placements decided."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    placements: Mapping[str, Placement]
    storages: Mapping[str, Storage]
    layouts: Layouts = field(default_factory=dict)
    """Layouts of the values that are not dense."""
    repeats: tuple[Repeat, ...] = ()
    """One is apart from another, or inside of it and then behind it here."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Values made for these layouts -> those they stand for."""

    def weights(self) -> dict[Task, int]:
        """Unique tasks in order of first use, and how often each is called per run."""
        out: dict[Task, int] = {}
        for call in self.calls:
            out[call.task] = out.get(call.task, 0) + 1
        return out

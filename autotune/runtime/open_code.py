"""The native code of a program for any sizes, in memory. In: an OpenImage and its library. Out:
the calls of the model at given sizes, and where its values lie.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.codegen.base import CONTROL, Library
from autotune.codegen.llvm.arrangement import GIVEN, SCRATCH_ARRAYS
from autotune.memory import address
from autotune.runtime.image import FIRST_INPUT, WORKSPACE, ModelImage
from autotune.runtime.open_image import (
    ARRANGEMENT,
    NEAREST,
    TABLE,
    OpenImage,
    OpenPlan,
    PlanChoice,
    Words,
)
from autotune.stored import stored_as
from autotune.types import ITEM_BYTES

WORD_BYTES = 8


class LoadedPlan:
    """A plan's functions in memory, and what they read."""

    def __init__(self, plan: OpenPlan, library: Library) -> None:
        self.plan = plan
        self.pointers = plan.table.pointers
        self.calls, self.width = len(plan.table.choices), plan.table.words.shape[1]
        self._given, self._kept = _given(plan, library)
        self.given = self._given.ctypes.data
        """Address of what the native function reads."""
        blocks = len(plan.arena.first)
        self.values = plan.rows + 1
        self.work = self.values + SCRATCH_ARRAYS * (blocks + self.calls)
        """Words that it works in, those of rows first."""
        self.kinds = [(port.name, np.dtype(stored_as(port.dtype))) for port in plan.inputs]
        """Names of the inputs, and numpy's types."""
        self.items = [
            (ITEM_BYTES[port.dtype], np.dtype(stored_as(port.dtype))) for port in plan.outputs
        ]
        """Bytes of an element, and numpy's type, by output."""
        first = FIRST_INPUT + len(plan.inputs)
        own = list(range(first, first + len(plan.output_bytes)))
        self.simple = [port.base for port in plan.outputs] == own and not any(
            port.declared for port in plan.outputs
        )
        """Whether each output has a buffer, and is of the type that it is said to have."""


def _given(plan: OpenPlan, library: Library) -> tuple[Words, list[Words]]:
    """The words of `GIVEN`, and the arrays that they point to."""
    table, arena = plan.table, plan.arena
    words = table.words.copy()
    addresses = {name: library.address(name) for name in table.kernels} | CONTROL
    words[:, 0] = [addresses[name] for name in table.drivers]
    width = words.shape[1]
    filled = np.zeros((len(words), (width - 2) // 2), np.int64)
    lines, places = np.divmod(table.filled[0], width)
    filled[lines, (places - 2) // 2] = table.filled[1]
    arrays = {
        "lines": table.choices, "strips": table.strips, "seconds": table.seconds.view(np.int64),
        "extents": table.extents, "lengths": table.lengths, "works": table.workspace,
        "words": words, "filled": filled, "numbers": arena.numbers, "first": arena.first,
        "last": arena.last, "starts": arena.starts, "sized": arena.sized, "moved": arena.moved,
    }  # fmt: skip
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    known = {
        "amounts": library.address(plan.amounts), "rows": plan.rows, "calls": len(table.choices),
        "choices": table.choices.shape[1], "limits": table.extents.shape[1], "width": width,
        "blocks": len(arena.first), "sizes": len(arena.sized), "moves": len(arena.moved),
        "workspace": WORKSPACE, **{name: array.ctypes.data for name, array in kept.items()},
    }  # fmt: skip
    return np.array([known[name] for name in GIVEN], np.int64), list(kept.values())


class OpenCode:
    """An image's functions in memory."""

    def __init__(self, image: OpenImage, library: Library) -> None:
        self.image, self.library = image, library
        self.plans = tuple(LoadedPlan(plan, library) for plan in image.plans)
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        table = ctypes.CFUNCTYPE(None, pointer, word, word, pointer)
        self.table_address = library.address(TABLE)
        self.run_table = table(self.table_address)
        arrange = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, pointer)
        self._arrange = arrange(library.address(ARRANGEMENT))
        self._nearest = _Nearest(image.choice, library) if image.choice is not None else None
        self._pointers = image.pointers

    @property
    def most_pointers(self) -> int:
        """Those that a run takes, by whatever plan."""
        return max(self._pointers, *(loaded.pointers for loaded in self.plans))

    def arranged(self, sizes: Mapping[str, int], number: int | None = None) -> Arranged:
        """The model at these sizes, by name, by the plan for them or the one of that number."""
        image = self.image
        counts = np.array([unit.count(sizes[unit.name]) for unit in image.units], np.int64)
        if number is None:
            number = self._nearest.number(counts) if self._nearest is not None else 0
        loaded = self.plans[number]
        work = np.empty(loaded.work, np.int64)
        table = np.empty((loaded.calls, loaded.width), np.int64)
        begin = address(work)
        scratch = begin + WORD_BYTES * loaded.values
        self._arrange(address(counts), loaded.given, begin, address(table), scratch)
        return Arranged(loaded, counts, table, work[: loaded.values].tolist())

    def calls(self, arranged: Arranged) -> OpenCalls:
        """The same with a model's image."""
        image, known, plan = self.image, arranged.known, arranged.loaded.plan
        return OpenCalls(
            image=ModelImage(
                name=image.name,
                target=image.target,
                inputs=tuple([port.at(known) for port in plan.inputs]),
                outputs=tuple([port.at(known) for port in plan.outputs]),
                output_bytes=tuple([known[row] for row in plan.output_bytes]),
                kernels=(),
                arena_bytes=arranged.arena_bytes,
                workspace_bytes=0,
                versions=image.versions,
                objects=(),
                constants=image.constants,
            ),
            counts=arranged.counts,
            table=arranged.table,
            slots=max(0, arranged.loaded.pointers - self._pointers),
        )


class _Nearest:
    """`PlanChoice.at`, natively: caches hold nothing of numpy's when it is asked."""

    def __init__(self, choice: PlanChoice, library: Library) -> None:
        self._tried, self._plans = np.log1p(choice.counts), choice.plans.tolist()
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        nearest = ctypes.CFUNCTYPE(word, pointer, pointer, word, word)
        self._nearest = nearest(library.address(NEAREST))
        self._points = (address(self._tried), *self._tried.shape)

    def number(self, counts: Words) -> int:
        points, tried, units = self._points
        wanted = array("d", map(math.log1p, counts.tolist()))
        found = self._nearest(points, wanted.buffer_info()[0], tried, units)
        return int(self._plans[found])


class Arranged:
    """What the native code makes of a set of sizes."""

    __slots__ = ("counts", "known", "loaded", "table")

    def __init__(self, loaded: LoadedPlan, counts: Words, table: Words, known: list[int]) -> None:
        """`counts`: of the units, as kernels read them; `table`: lines to run; `known`: the values
        of rows."""
        self.loaded, self.counts, self.table, self.known = loaded, counts, table, known

    @property
    def arena_bytes(self) -> int:
        """What a run works in."""
        return self.known[-1]

    @property
    def output_bytes(self) -> int:
        return sum([self.known[row] for row in self.loaded.plan.output_bytes])


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """A model at one set of sizes: its image without kernels, and the table to run."""

    image: ModelImage
    """Workspaces lie in its arena."""
    counts: Words
    """Counts of the units, as kernels read them."""
    slots: int
    """Pointers behind that to the counts, which the table itself makes."""
    table: Words

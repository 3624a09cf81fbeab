"""A compiled model of open sizes as plain data. In: what the compiler made. Out: images of the
model at given sizes, and the calls that run it there.

Everything that depends on sizes is a row: a native function works out all rows of a set of sizes
in microseconds (`autotune.codegen.llvm.amounts`). The table has a line for every kernel that a
call may use, with the distances of its arguments still to be filled in from rows; of a call's
lines, the one that is predicted to take least is run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.base import CONTROL
from autotune.memory import Bytes
from autotune.runtime.image import FIRST_INPUT, Port, digest_of, manifest_of
from autotune.size_ranges import OpenTypes
from autotune.target import Target
from autotune.types import TensorType

AMOUNTS, TABLE = "model_amounts", "model_table"
"""Symbols of the native functions."""
ARRANGEMENT, NEAREST = "model_arrangement", "model_nearest"
"""The same of those that only a program has which is not exported."""
Words = npt.NDArray[np.int64]
_NOT_WORDS = ("drivers", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A counting of an open dimension: (size - least) // step."""

    name: str
    least: int
    step: int

    def count(self, size: int) -> int:
        return (size - self.least) // self.step

    def size(self, count: int) -> int:
        """The size of a count."""
        return self.least + self.step * count


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPort:
    """A public input or output; shape, strides and offset are numbers of rows."""

    name: str
    dtype: str
    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    declared: str = ""

    def at(self, values: Sequence[int]) -> Port:
        shape = tuple([values[row] for row in self.shape])
        return Port(
            name=self.name,
            type=TensorType(dtype=self.dtype, shape=shape),
            base=self.base,
            offset_bytes=values[self.offset],
            strides=tuple([values[row] for row in self.strides]),
            declared=self.declared,
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OpenPort:
        rows = {key: tuple(data[key]) for key in ("shape", "strides")}
        return OpenPort(**{**data, **rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTable:
    """Lines of the table that `autotune.codegen.llvm.table` runs."""

    drivers: tuple[str, ...]
    """The function that each line calls."""
    words: Words
    """Lines, widest first word by word: address (0 here), arguments, then base and distance."""
    filled: Words
    """(word of the flattened table, row) of every distance that rows give."""
    choices: Words
    """By call, its lines; the last one again where it has fewer than others."""
    strips: Words
    """By line, the row that says how often its strip runs."""
    seconds: npt.NDArray[np.float64]
    """By line, predicted, of one strip."""
    extents: Words
    """By line, rows of the extents that strips cut."""
    lengths: Words
    """By line, lengths of strips, none of which may be longer than its extent."""

    workspace: Words
    """By line, the row of the bytes that its kernel needs to work in."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Drivers that are code."""
        return tuple(name for name in dict.fromkeys(self.drivers) if name not in CONTROL)

    @property
    def pointers(self) -> int:
        """How many pointers its lines name."""
        return 1 + int(self.words[:, 2::2].max(initial=0))

    @property
    def numbered(self) -> dict[str, int]:
        """Drivers by numbers, where code has no addresses."""
        return {name: number for number, name in enumerate(dict.fromkeys(self.drivers))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CallTable:
        floats = np.array(data["seconds"], np.float64)
        words = {k: np.array(v, np.int64) for k, v in data.items() if k not in _NOT_WORDS}
        return CallTable(drivers=tuple(data["drivers"]), seconds=floats, **words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaTable:
    """What lies in the arena, for those who place it at sizes."""

    first: Words
    """By block, the number of the call that it is first alive in; blocks are those of the rows."""
    last: Words
    starts: Words
    """By block, the row of where it begins if blocks lie on each other."""
    sized: Words
    """(block, row) of all amounts of bytes that a block must hold."""
    moved: Words
    """(row, block) of all distances that begin where a block does."""
    numbers: Words
    """By line that is called, the number of its call in which it may need a workspace, or -1."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ArenaTable:
        pairs = {"sized", "moved"}
        words = {key: np.array(value, np.int64) for key, value in data.items()}
        return ArenaTable(**{k: v.reshape(-1, 2) if k in pairs else v for k, v in words.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """The calls of a model at any sizes, and where values lie; names as of an OpenImage."""

    amounts: str
    """Symbol of the native function."""
    rows: int
    inputs: tuple[OpenPort, ...]
    outputs: tuple[OpenPort, ...]
    output_bytes: tuple[int, ...]
    table: CallTable = field(repr=False)
    arena: ArenaTable = field(repr=False)
    objects: int
    """How many of the image's objects are only this plan's, behind those of plans before it."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OpenPlan:
        ports = {key: tuple(map(OpenPort.from_json, data[key])) for key in ("inputs", "outputs")}
        tables = {
            "table": CallTable.from_json(data["table"]),
            "arena": ArenaTable.from_json(data["arena"]),
        }
        return OpenPlan(**{**data, **ports, **tables, "output_bytes": tuple(data["output_bytes"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """Which plan runs where: at sizes that were tried, and so at those nearest to them."""

    counts: Words
    """By tried sizes, the counts of the units."""
    plans: Words
    """Numbers of the plans that should take least; 0 is the own one."""

    def at(self, counts: Words) -> int:
        """The number of the plan for such counts."""
        far = np.log1p(self.counts) - np.log1p(counts)
        return int(self.plans[np.einsum("ij,ij->i", far, far).argmin()])

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlanChoice:
        return PlanChoice(**{key: np.array(data[key], np.int64) for key in ("counts", "plans")})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenImage:
    """Everything needed to run a model at any sizes. Its own plan does for all of them; others may
    take less time at some."""

    name: str
    target: Target
    types: OpenTypes
    units: tuple[Unit, ...]
    rows: int
    """How many the native function fills; after them it puts the bytes of the arena."""
    inputs: tuple[OpenPort, ...]
    outputs: tuple[OpenPort, ...]
    output_bytes: tuple[int, ...]
    """Rows."""
    table: CallTable = field(repr=False)
    arena: ArenaTable = field(repr=False)
    versions: tuple[tuple[str, str], ...]
    objects: tuple[bytes, ...] = field(repr=False)
    constants: Bytes = field(repr=False)
    further: tuple[OpenPlan, ...] = ()
    choice: PlanChoice | None = None
    """None where there are no further plans."""

    @property
    def pointers(self) -> int:
        """Those that a run is given: blocks, inputs, outputs, counts."""
        return FIRST_INPUT + len(self.inputs) + len(self.output_bytes) + 1

    @property
    def alone(self) -> OpenImage:
        """The image with its own plan only."""
        own = len(self.objects) - sum(plan.objects for plan in self.further)
        return dataclasses.replace(self, further=(), choice=None, objects=self.objects[:own])

    @property
    def plans(self) -> tuple[OpenPlan, ...]:
        """Its own one, and the further ones."""
        own = OpenPlan(
            amounts=AMOUNTS,
            rows=self.rows,
            inputs=self.inputs,
            outputs=self.outputs,
            output_bytes=self.output_bytes,
            table=self.table,
            arena=self.arena,
            objects=len(self.alone.objects),
        )
        return (own, *self.further)

    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self.objects, self.constants)

    def manifest(self) -> dict[str, Any]:
        """JSON of everything but the object code and the constants, whose sizes are given."""
        return manifest_of({f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    @staticmethod
    def from_manifest(
        data: Mapping[str, Any], objects: tuple[bytes, ...], constants: Bytes
    ) -> OpenImage:
        return OpenImage(
            name=data["name"],
            target=Target.from_json(data["target"]),
            types=OpenTypes.from_json(data["types"]),
            units=tuple(Unit(**unit) for unit in data["units"]),
            rows=data["rows"],
            inputs=tuple(OpenPort.from_json(p) for p in data["inputs"]),
            outputs=tuple(OpenPort.from_json(p) for p in data["outputs"]),
            output_bytes=tuple(data["output_bytes"]),
            table=CallTable.from_json(data["table"]),
            arena=ArenaTable.from_json(data["arena"]),
            versions=tuple((name, version) for name, version in data["versions"]),
            objects=objects,
            constants=constants,
            further=tuple(OpenPlan.from_json(plan) for plan in data.get("further", ())),
            choice=PlanChoice.from_json(data["choice"]) if data.get("choice") else None,
        )

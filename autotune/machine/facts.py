"""Facts of a machine, from micro-benchmarks. In: measurements. Out: values, JSON of them.

A rate is per second, not per cycle: cycles are the virtual machine's guess. What a processor has
not is absent: no row, or None. Everything is of one core unless it says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.machine.curves import Curve

FORMAT = 1
"""Version of the JSON: raised when a reader must know more than to leave out what it does not
know."""
TILE_BYTES = 1024
"""Bytes of a register of a matrix unit (AMX): 16 rows of 64 bytes."""

MOST_OTHERS = 0.1
"""Share of the cores' time beside which a machine counts as quiet."""

Pairs = tuple[tuple[int, float], ...]
"""(count, value): vector bytes or threads, and what was measured there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A processor by what it is and what it can do. Numbers are None where it does not say."""

    vendor: str
    family: int | None
    model: int | None
    stepping: int | None
    brand: str
    llvm: str
    """LLVM's name of it, a guess by family and model where those are hidden."""
    abilities: tuple[str, ...]
    """Instruction sets that make a difference to kernels, by LLVM's names, sorted."""
    said_hz: float | None = None
    """The clock that the system believes in."""

    @property
    def name(self) -> str:
        """vendor-family-model-stepping, "AuthenticAMD-25-17-1"; x where a number is hidden."""
        numbers = (self.family, self.model, self.stepping)
        return "-".join([self.vendor, *("x" if n is None else str(n) for n in numbers)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """One instruction that multiplies and adds, at one width."""

    kind: str
    """float32, float64, float16, bfloat16 or int8: what it multiplies."""
    instruction: str
    """fma, dpbf16ps, vpdpbusd, pmaddwd, tdpbf16ps, tdpbusd, bfdot, sdot, usdot."""
    vector_bytes: int
    """Bytes of a register; TILE_BYTES of a matrix unit."""
    multiply_adds_per_s: float
    """Scalar ones, as many instructions in flight as hide their latency."""
    latency_s: float
    """From one to the next that adds to its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scattered:
    """Runs of a few lines at places that the hardware does not foresee, each line with a kernel's
    arithmetic: what asking for them ahead of time gains."""

    footprint: int
    """Bytes among which the runs lie."""
    near_s: float
    """Per line, where the data lie in the innermost cache."""
    far_s: float
    """Per line, without prefetch instructions."""
    prefetched_s: float
    """Per line, with them."""

    @property
    def hidden(self) -> float:
        """Share of the waiting that prefetch instructions take away, 0 to 1."""
        waiting = self.far_s - self.near_s
        gained = self.far_s - self.prefetched_s
        return min(1.0, max(0.0, gained / waiting)) if waiting > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """All that micro-benchmarks found. None or no row: not there, or not measurable."""

    processor: Processor
    cores: int
    """Cores that the figures of all of them were measured on."""
    clock_hz: float | None = None
    """Cycles a second of dependent additions, which take one cycle each everywhere."""
    clocks: Pairs = ()
    """(vector bytes, Hz) while multiply-adds of that width run."""
    arithmetic: tuple[Arithmetic, ...] = ()
    add_latency_s: float | None = None
    """From a float32 vector addition to the next that needs it."""
    loads: Pairs = ()
    """(vector bytes, loads a second) from the innermost cache."""
    stores: Pairs = ()
    """(vector bytes, stores a second) to it."""
    broadcasts_per_s: float | None = None
    """Elements of memory as all lanes of an operand, from the innermost cache."""
    additions_beside: float | None = None
    """Vector additions that go beside each multiply-add and take no time, 0 to 1."""
    gathers_per_s: float | None = None
    """Elements loaded by vectors of addresses, from the innermost cache."""
    lone_line: float | None = None
    """Share of a line that comes in vain beside each that is read without its neighbour."""
    caches: Pairs = ()
    """(level, bytes) of the caches that a core has or shares, as the system tells of them: of the
    machine, whatever the target says that code is generated for."""
    load_curve: Curve = ()
    """Bytes a second of one core that goes through a footprint in order, over and over."""
    store_curve: Curve = ()
    """The same of storing."""
    copy_curve: Curve = ()
    """Bytes a second that move from one half of the footprint to the other."""
    load_curve_all: Curve = ()
    """All cores together, each going through its part."""
    latency_curve: Curve = ()
    """Seconds from a load to the next, whose address it gives; on huge pages."""
    page_curve: Curve = ()
    """(pages, seconds): what a load takes longer if so many pages in turn are of 4 KiB."""
    scattered: tuple[Scattered, ...] = ()
    in_order: tuple[Scattered, ...] = ()
    """The same of runs one behind the other, by footprint: what the hardware foresees, beside
    arithmetic."""
    transfer_s: float | None = None
    """Until another core sees a line that this one has written."""
    transfer_bytes_per_s: float | None = None
    """What another core has in its caches, unchanged."""
    transfer_dirty_bytes_per_s: float | None = None
    """What another core has just written."""
    regions: Pairs = ()
    """(threads, seconds) to open and close a parallel region."""
    denormal_s: float | None = None
    """What a vector multiply-add takes longer if an operand or the result is denormal."""
    others: float | None = None
    """Share of the cores' time that others had while this was measured, 0 to 1."""

    @property
    def disturbed(self) -> bool:
        """Whether so much went on beside that rates of memory are too low by more than they
        scatter on a quiet machine."""
        return self.others is not None and self.others > MOST_OTHERS

    def to_json(self) -> dict[str, Any]:
        return {"version": FORMAT, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MachineFacts:
        """What a newer minor format adds is left out. Raises ValueError for a newer version,
        KeyError and TypeError for what is no such value."""
        version = data["version"]
        if type(version) is not int or not 1 <= version <= FORMAT:
            raise ValueError(
                f"facts of format {version!r:.20}, this release reads up to {FORMAT}; measure "
                "anew, or update"
            )
        names = {f.name for f in dataclasses.fields(MachineFacts)}
        fields: dict[str, Any] = {k: v for k, v in data.items() if k in names}
        processor = dict(fields["processor"])
        processor["abilities"] = tuple(processor["abilities"])
        fields["processor"] = Processor(**processor)
        fields["arithmetic"] = tuple(Arithmetic(**row) for row in fields.get("arithmetic", ()))
        for name in RUNS:
            fields[name] = tuple(Scattered(**row) for row in fields.get(name, ()))
        for name in PAIRS:
            if name in fields:
                fields[name] = tuple((int(at), float(value)) for at, value in fields[name])
        return MachineFacts(**fields)


PAIRS = (
    "clocks", "loads", "stores", "load_curve", "store_curve", "copy_curve", "load_curve_all",
    "latency_curve", "page_curve", "regions", "caches",
)  # fmt: skip
"""Fields of pairs of numbers."""
RUNS = ("scattered", "in_order")
"""Fields of runs of lines."""
NUMBERS = (
    "clock_hz", "add_latency_s", "broadcasts_per_s", "additions_beside", "lone_line",
    "gathers_per_s", "transfer_s", "transfer_bytes_per_s", "transfer_dirty_bytes_per_s",
    "denormal_s", "others",
)  # fmt: skip
"""Fields of one number, or None."""

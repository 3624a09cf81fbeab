"""Values and indices of a program as Python's text: lines that compute them into variables.

In: values, indices, the buffers and loops around them. Out: lines, and the names of what they
compute. Variables: v of loops, x of values, i of indices; of a buffer m its memory, d the array in
it, w who watches it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.errors import VerifyError
from autotune.program.functions import function
from autotune.program.ir import (
    Apply,
    Atom,
    Bound,
    Buffer,
    Clamp,
    Const,
    FloorDiv,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    Select,
    Value,
)
from tests.interpreter.memory import Memory, given

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip
"""Functions that Python has for numpy's scalars, with numpy's results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known of a buffer before it exists; see `Memory`."""

    number: int
    private: bool
    """Every thread of a block has one."""
    shape: tuple[int, ...]
    interior: tuple[int, ...]
    before: tuple[int, ...]
    dtype: np.dtype[Any]
    declared: str
    halo_writable: bool
    watched: bool
    swizzled: bool


class Expressions:
    """Lines of a function, with what their names stand for in `namespace`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.blocks = self.threads = 0
        """Loops over blocks and over threads around the place."""
        self._depth, self._count = 1, 0
        self._places: dict[str, Place] = {}
        self._vars: dict[str, str] = {}
        self._fetched: frozenset[int] = frozenset()
        """Buffers of which the running thread's own is in the variables."""

    # ---------------------------------------------------------------------------------- the text

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def new(self, kind: str) -> str:
        """A variable's name."""
        self._count += 1
        return f"{kind}{self._count}"

    def constant(self, value: object) -> str:
        name = self.new("c")
        self.namespace[name] = value
        return name

    @contextmanager
    def nested(
        self, var: tuple[str, str] | None = None, other_thread: bool = False
    ) -> Iterator[None]:
        """Lines of a body: of a loop where `var` says which variable is its."""
        vars_before, fetched = self._vars, self._fetched
        if var is not None:
            self._vars = {**self._vars, var[0]: var[1]}
        if other_thread:
            self._fetched = frozenset()
        self._depth += 1
        self.line("pass")
        yield
        self._depth -= 1
        self._vars, self._fetched = vars_before, fetched

    # ----------------------------------------------------------------------------------- buffers

    def place(self, buffer: Buffer, sample: Memory, *, private: bool) -> int:
        """The number of a buffer whose memory is like `sample`."""
        self._count += 1
        self._places[buffer.name] = Place(
            number=self._count,
            private=private,
            shape=sample.data.shape,
            interior=sample.interior,
            before=sample.before,
            dtype=sample.data.dtype,
            declared=buffer.dtype,
            halo_writable=sample.halo_writable,
            watched=sample.watch is not None,
            swizzled=sample.swizzled is not None,
        )
        return self._count

    @contextmanager
    def scoped(self, name: str) -> Iterator[None]:
        """A buffer's life; another one may have had its name."""
        before = self._places.get(name)
        yield
        del self._places[name]
        if before is not None:
            self._places[name] = before

    def found(self, name: str) -> Place:
        if name not in self._places:
            raise VerifyError(f"buffer {name} is used where it does not exist")
        return self._places[name]

    def declared(self, name: str) -> str:
        """A buffer's element type, as it was declared."""
        return self.found(name).declared

    def memory(self, name: str) -> str:
        """The memory that the running thread sees."""
        place = self.found(name)
        if not place.private:
            return f"m{place.number}"
        if place.number not in self._fetched:
            self.line(f"q{place.number} = m{place.number}.of(grid.thread)")
            self.line(f"d{place.number} = q{place.number}.data")
            self._fetched |= {place.number}
        return f"q{place.number}"

    def data(self, name: str) -> str:
        """The array in it."""
        self.memory(name)
        return f"d{self.found(name).number}"

    def located(self, name: str, point: Sequence[str]) -> str:
        """Where an element lies in the array, as a subscript; what is outside raises."""
        place, memory = self.found(name), self.memory(name)
        if place.swizzled:
            at = self.new("i")
            self.line(f"{at} = {memory}.locate({self.tuple(point)})[0]")
            return f"{at},"
        moved = [
            f"{p} + {b}" if b else p for p, b in zip(point, place.before, strict=True)
        ] if any(place.before) else point  # fmt: skip
        at = [self.variable(p) for p in moved]
        if at:
            self.line(f"if not ({self.inside(at, place.shape)}):")
            self.line(f"    {memory}.locate({self.tuple(point)})")
        return "".join(f"{i}, " for i in at) or "()"

    @staticmethod
    def inside(point: Sequence[str], extents: Sequence[int]) -> str:
        parts = (f"0 <= {i} < {e}" for i, e in zip(point, extents, strict=True))
        return " and ".join(parts) or "True"

    @staticmethod
    def tuple(point: Sequence[str]) -> str:
        return f"({''.join(f'{i}, ' for i in point)})"

    # ------------------------------------------------------------------------------------ values

    def value(self, value: Value) -> str:
        """The variable or constant that holds a value."""
        match value:
            case Const():
                return self.constant(np.asarray(value.value).astype(value.dtype)[()])
            case Load():
                return self._load(value.buffer, value.indices)
            case Apply():
                return self._apply(value)
            case IndexValue():
                kind = self.constant(np.dtype(value.dtype).type)
                return self._assigned("x", f"{kind}({self.index(value.index)})")
            case Select():
                return self._select(value)
        table = given("table", np.asarray(value.values, np.float32), ((0, 0), (0, 0)))
        memory = self.constant(table)
        point = f"({self.index(value.row)}, {self.index(value.column)})"
        return self._assigned("x", f"{memory}.data[{memory}.locate({point})]")

    def _load(self, buffer: str, indices: Sequence[Index]) -> str:
        place = self.found(buffer)
        at = self.located(buffer, self.point(indices))
        if place.watched and self.blocks:
            self.line(f"w{place.number}.read(grid, {buffer!r}, ({at}))")
        return self._assigned("x", f"{self.data(buffer)}[{at}]")

    def _apply(self, value: Apply) -> str:
        args = [self.value(a) for a in value.args]
        if value.fn in OPERATORS:
            return self._assigned("x", f" {OPERATORS[value.fn]} ".join(args))
        call = function(value.fn)
        text = f"{self.constant(call)}({', '.join(args)})"
        if not isinstance(call, np.ufunc):  # a scalar of it may be an array without dimensions
            text = f"{self._as_array}({text})[()]"
        return self._assigned("x", text)

    @functools.cached_property
    def _as_array(self) -> str:
        return self.constant(np.asarray)

    def _select(self, value: Select) -> str:
        """Only what is chosen is computed."""
        result = self.new("x")
        self.line(f"if {self.bounds(value.bounds)}:")
        with self.nested():
            self.line(f"{result} = {self.value(value.then)}")
        self.line("else:")
        with self.nested():
            self.line(f"{result} = {self.value(value.other)}")
        return result

    def bounds(self, bounds: Sequence[Bound]) -> str:
        """Whether all hold; one that reads memory is asked where those before it hold."""
        known: list[str] = []
        for bound in bounds:
            if not known or not _reads_memory(bound.index):
                known.append(self._bound(bound))
                continue
            held = self._assigned("x", " and ".join(known))
            self.line(f"if {held}:")
            with self.nested():
                self.line(f"{held} = {self._bound(bound)}")
            known = [held]
        return " and ".join(known) or "True"

    def _bound(self, bound: Bound) -> str:
        return f"{bound.lo} <= {self.index(bound.index)} < {bound.hi}"

    def _assigned(self, kind: str, text: str) -> str:
        name = self.new(kind)
        self.line(f"{name} = {text}")
        return name

    # ----------------------------------------------------------------------------------- indices

    def variable(self, text: str) -> str:
        """The text itself, where computing it again costs nothing."""
        return text if text.isidentifier() or text.isdecimal() else self._assigned("i", text)

    def point(self, indices: Sequence[Index]) -> list[str]:
        return [self.variable(self.index(i)) for i in indices]

    def index(self, value: Index) -> str:
        parts = [
            self._atom(atom) if c == 1 else f"{c} * {self._atom(atom)}" for atom, c in value.terms
        ]
        if value.const or not parts:
            parts.append(str(value.const))
        return _joined(parts)

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            if atom not in self._vars:
                raise VerifyError(f"{atom} is used outside its loop")
            return self._vars[atom]
        if isinstance(atom, LoadIndex):
            return self._read_index(atom)
        inner = self.index(atom.index)
        if isinstance(atom, Clamp):
            return f"min(max({inner}, {atom.lo}), {atom.hi})"
        return f"({inner} {'//' if isinstance(atom, FloorDiv) else '%'} {atom.divisor})"

    def _read_index(self, atom: LoadIndex) -> str:
        """An index from memory: negatives count from the end; limited to the extent."""
        read = self._assigned("i", f"int({self._load(atom.buffer, atom.indices)})")
        counted = f"{read} + {atom.extent} if {read} < 0 else {read}"
        return self._assigned("i", f"min(max({counted}, 0), {atom.extent - 1})")


def _joined(parts: Sequence[str]) -> str:
    """A sum in parentheses; of one variable or number, itself."""
    alone = len(parts) == 1 and (parts[0].isidentifier() or parts[0].isdecimal())
    return parts[0] if alone else f"({' + '.join(parts)})"


def _reads_memory(index: Index) -> bool:
    inner = (atom for atom, _ in index.terms if not isinstance(atom, str))
    return any(isinstance(atom, LoadIndex) or _reads_memory(atom.index) for atom in inner)

"""Indices and addresses of a program as LLVM values.

`env` says what a loop variable is now: an int (unrolled), an LLVM name with its loop depth, or the
lane of the vector loop being written. Arithmetic goes to the head of the outermost loop in which
its operands are known. A statement in unrolled loops is written hundreds of times: what only
depends on its indices is worked out once, and values that are made so often are named tuples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.codegen.llvm.amounts import amount_text, number_of
from autotune.codegen.llvm.element import ElementWriter
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.errors import BuildError
from autotune.program.analysis import interval, recombine
from autotune.program.ir import Buffer, Clamp, FloorDiv, Index, LoadIndex, Mod
from autotune.sizes import is_size
from autotune.types import ITEM_BYTES


class Var(NamedTuple):
    """A loop variable that is an LLVM value known from a loop depth on."""

    name: str
    depth: int


@dataclass(frozen=True, slots=True)
class Lane:
    """The vector loop's variable."""

    lanes: int


class Linear(NamedTuple):
    """const + sum of coefficient * LLVM value + lane coefficient * lane."""

    terms: tuple[tuple[Var, int], ...]
    const: int
    lane: int = 0


class IndexWriter(ElementWriter, ABC):
    """Writes indices; values and statements build on it."""

    crowd = 0
    """Elements at constant distances from a pointer from which on loop passes are to leave it
    alone: on machines whose addresses have a place for any distance, looking for a better way to
    reach hundreds of elements takes a third of the time of a build and finds nothing; 0: never."""
    least_address = 0
    """Bytes before the first tensor, where that is known: so far behind a pointer an address is
    never beyond the end of what addresses can be, which some machines must know to have the
    distance in the instruction that loads."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.env: dict[str, int | Var | Lane] = {}
        self.buffers: dict[str, Buffer] = {}
        self.pointers: dict[str, str] = {}
        self.lanes = 1
        self.ranges: dict[str, int] = {}
        self.symbols: tuple[str, ...] = ()
        """Names of what `%sizes` points to, in order."""
        self._amounts: dict[int, str] = {}
        """What was worked out at the start of the call."""
        self._moved: dict[FloorDiv | Mod, int] = {}
        self._flat: dict[tuple[str, int], tuple[tuple[Index, ...], Index]] = {}
        self._beside: dict[str, set[int]] = {}
        """Distances of elements from a pointer, by pointer."""
        self._concealed: set[str] = set()

    def linear(self, value: Index) -> Linear:
        """An index in the current environment. BuildError if an atom depends on the lane."""
        terms: dict[Var, int] = {}
        const, lane, env = value.const, 0, self.env
        for atom, c in value.terms:
            now = env[atom] if isinstance(atom, str) else self._atom(atom)
            if isinstance(now, int):
                const += c * now
            elif isinstance(now, Lane):
                lane += c
            else:
                terms[now] = terms.get(now, 0) + c
        if not terms:
            return Linear((), const, lane)
        found = [t for t in terms.items() if t[1]]
        if len(found) > 1:
            found.sort(key=lambda t: (t[0].depth < 0, t[0].depth, t[0].name))
        return Linear(tuple(found), const, lane)

    def _atom(self, atom: FloorDiv | Mod | Clamp | LoadIndex) -> int | Var:
        if isinstance(atom, LoadIndex):
            return self.loaded(atom)
        inner = self.linear(atom.index)
        if inner.lane:
            raise BuildError("an index divides or clamps the vector lane")
        if not inner.terms:
            return _fold(atom, inner.const)
        name, depth = self.scalar(inner)
        if isinstance(atom, Clamp):
            least, most = self.amount(atom.lo), self.amount(atom.hi)
            low = self.pure(depth, f"call i64 @llvm.smax.i64(i64 {name}, i64 {least})")
            high = f"call i64 @llvm.smin.i64(i64 {low}, i64 {most})"
            for kind in ("smax", "smin"):
                self.text.declare(f"llvm.{kind}.i64", f"declare i64 @llvm.{kind}.i64(i64, i64)")
            return Var(self.pure(depth, high), depth)
        # LLVM divides toward zero: an index that may be negative is moved up by whole divisors.
        moved = self._divisors_below_zero(atom)
        if moved:
            name = self.pure(depth, f"add i64 {name}, {moved * atom.divisor}")
        if isinstance(atom, Mod):
            return Var(self.divided(depth, "urem", name, atom), depth)
        name = self.divided(depth, "udiv", name, atom)
        return Var(self.pure(depth, f"sub i64 {name}, {moved}") if moved else name, depth)

    def divided(self, depth: int, op: str, name: str, atom: FloorDiv | Mod) -> str:
        """Quotient (udiv) or remainder (urem) of a value that is not negative."""
        return self.pure(depth, f"{op} i64 {name}, {atom.divisor}")

    def _divisors_below_zero(self, atom: FloorDiv | Mod) -> int:
        if atom not in self._moved:
            lowest, _ = interval(atom.index, self.ranges)
            self._moved[atom] = max(0, -(lowest // atom.divisor))
        return self._moved[atom]

    @abstractmethod
    def loaded(self, atom: LoadIndex) -> Var:
        """An index read from memory."""

    def known_lane(self, value: Linear) -> int:
        """How far apart a value is from lane to lane. BuildError where only a run knows."""
        if is_size(value.lane):
            raise BuildError(f"lanes are {value.lane} apart, which only a run knows")
        return value.lane

    def scalar(self, value: Linear) -> tuple[str, int]:
        """(i64 value without the lane's part, loop depth from which it is known)."""
        if not value.terms:
            return self.amount(value.const), 0
        total, depth = "", 0
        for var, c in value.terms:
            depth = _deeper(depth, var)
            part = self._times(depth, var.name, c)
            total = self.pure(depth, f"add i64 {total}, {part}") if total else part
        if value.const:
            total = self.pure(depth, f"add i64 {total}, {self.amount(value.const)}")
        return total, depth

    def amount(self, value: int) -> str:
        """A number, or what the kernel's sizes make of an expression at the start of a call."""
        if not is_size(value):
            return str(value)
        if value not in self._amounts:
            self._amounts[value] = amount_text(
                value, lambda text: self.pure(0, text), self.symbols
            )
        return self._amounts[value]

    def _times(self, depth: int, name: str, factor: int) -> str:
        if factor == 1:
            return name
        return self.pure(depth, f"mul i64 {name}, {self.amount(factor)}")

    def pure(self, depth: int, text: str) -> str:
        """A pure instruction, at the loop depth of its operands (-1: known only here)."""
        return self.text.emit(text) if depth < 0 else self.text.hoist(depth, text, text)

    def flat(self, buffer: Buffer, indices: tuple[Index, ...]) -> Index:
        """Offset in elements from the buffer's first element."""
        key = (buffer.name, id(indices))  # hashing indices would take longer than this does
        if key not in self._flat:
            total = Index()
            for i, stride in zip(indices, buffer.strides, strict=True):
                total = total + i * stride
            self._flat[key] = indices, recombine(total)
        return self._flat[key][1]

    def address(self, buffer: Buffer, offset: Linear) -> str:
        """Pointer to an element; the lane's part is left out."""
        base = self.pointers[buffer.name]
        item = type_text(buffer.dtype, 1, memory=True)
        if offset.terms:
            base = self._base(base, item, offset.terms)
        if self.least_address and not is_size(offset.const):
            return self._near(base, item, offset, self.least_address // ITEM_BYTES[buffer.dtype])
        distance = offset.const
        if self.crowd and is_size(distance):
            # Elements of one row lie at numbers from its first, which loops need not look for.
            distance = number_of(distance)
            moved = self.amount(offset.const - distance)
            base = self.pure(_depth_of(offset), f"getelementptr {item}, ptr {base}, i64 {moved}")
        if distance:
            if self.crowd and offset.terms:
                self._crowd(base, distance)
            text = f"getelementptr {item}, ptr {base}, i64 {self.amount(distance)}"
            base = self.text.once(text, text)
        return base

    def _base(self, base: str, item: str, terms: tuple[tuple[Var, int], ...]) -> str:
        """A pointer moved by variables."""
        key = (base, item, terms)
        found = self.text.known(key)
        if found is not None:
            return found
        depth = 0
        for var, c in terms:
            depth = _deeper(depth, var)
            scaled = self._times(depth, var.name, c)
            base = self.pure(depth, f"getelementptr {item}, ptr {base}, i64 {scaled}")
        if depth >= 0:
            self.text.remember(depth, key, base)
        return base

    def _near(self, base: str, item: str, offset: Linear, most: int) -> str:
        """A pointer to an element as one that loop passes leave alone, and a distance from there
        of less than `most` elements that is not negative: no address between wraps around."""
        depth, distance = _depth_of(offset), offset.const % most
        if offset.const != distance:
            moved = f"getelementptr {item}, ptr {base}, i64 {offset.const - distance}"
            base = self.pure(depth, moved)
        if not distance:
            return base
        if base not in self._concealed:
            self._concealed.add(base)
            self.text.conceal(base)
        text = f"getelementptr nuw {item}, ptr {base}, i64 {distance}"
        return self.text.once(text, text)

    def _crowd(self, pointer: str, distance: int) -> None:
        distances = self._beside.setdefault(pointer, set())
        if distance not in distances:
            distances.add(distance)
            if len(distances) == self.crowd:
                self.text.conceal(pointer)

    def irregular(self, indices: Sequence[Index]) -> bool:
        """Whether an atom, not just a coefficient, depends on the lane."""
        atoms = [a for i in indices for a, _ in i.terms if not isinstance(a, str)]
        if not atoms:
            return False
        lanes = {v for v, now in self.env.items() if isinstance(now, Lane)}
        return any(_atom_vars(a) & lanes for a in atoms)


def _deeper(depth: int, var: Var) -> int:
    """Loop depth from which a sum is known with one more variable; -1: only where it is used."""
    return -1 if var.depth < 0 or depth < 0 else max(depth, var.depth)


def _depth_of(value: Linear) -> int:
    """Loop depth from which a sum is known."""
    depth = 0
    for var, _ in value.terms:
        depth = _deeper(depth, var)
    return depth


def _fold(atom: FloorDiv | Mod | Clamp, value: int) -> int:
    if isinstance(atom, FloorDiv):
        return value // atom.divisor
    if isinstance(atom, Mod):
        return value % atom.divisor
    return min(max(value, atom.lo), atom.hi)


def _atom_vars(atom: FloorDiv | Mod | Clamp | LoadIndex | str) -> frozenset[str]:
    if isinstance(atom, str):
        return frozenset((atom,))
    if isinstance(atom, LoadIndex):
        return frozenset[str]().union(*(i.vars() for i in atom.indices))
    return atom.index.vars()

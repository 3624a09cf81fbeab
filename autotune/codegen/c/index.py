"""Indices of a program as expressions of the C family.

In: indices, and `env`: what a loop variable is now (an int, a C variable, or the lane of the
vector loop being written). Out: sums, the lane's part apart. What depends on the lane otherwise
raises `NotVectorError`, and is written lane by lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.codegen.c.amount import amount_text
from autotune.codegen.c.dialect import Dialect
from autotune.codegen.c.helpers import Helpers
from autotune.program import ir
from autotune.program.analysis import interval, recombine
from autotune.sizes import any_size, is_size


class NotVectorError(Exception):
    """The statement is no expression on vectors here."""


@dataclass(frozen=True, slots=True)
class CLane:
    """The vector loop's variable."""


@dataclass(frozen=True, slots=True)
class CLinear:
    """const + sum of coefficient * expression + lane coefficient * lane."""

    terms: tuple[tuple[str, int], ...]
    const: int
    lane: int = 0

    @property
    def text(self) -> str:
        """The sum without the lane's part."""
        parts: list[str] = []
        for name, c in self.terms:
            if is_size(c):
                parts += ["+", f"{name} * {amount_text(c)}"]
                continue
            factor = "" if abs(c) == 1 else f" * {abs(c)}"
            parts += ["-" if c < 0 else "+", name + factor]
        if is_size(self.const):
            parts += ["+", amount_text(self.const)]
        elif self.const or not parts:
            parts += ["-" if self.const < 0 else "+", str(abs(self.const))]
        sign = "-" if parts[0] == "-" else ""
        return sign + " ".join(parts[1:])


class CIndexWriter(ABC):
    """Writes indices; the values' writer builds on it."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.helpers = Helpers(dialect)
        self.env: dict[str, int | str | CLane] = {}
        self.buffers: dict[str, ir.Buffer] = {}
        self.names: dict[str, str] = {}
        """What a buffer is called in the code."""
        self._identifiers: dict[str, str] = {}
        self.ranges: dict[str, int] = {}
        self.touched: set[str] = set()
        """Buffers that have been read or written."""
        self.lanes = 1
        self.cells: dict[tuple[str, int], int] = {}
        """Register variables: (buffer, element) -> lanes."""
        self.arrays: set[str] = set()
        """Register buffers that are arrays, because one index is not enough to tell a variable."""
        self.conflicts: set[str] = set()
        self.modular_sums: set[str] = set()
        """Register buffers of signed numbers whose variables are unsigned."""

    def identifier(self, name: str) -> str:
        """A name of the program as a name in the code; those of C's own words differ."""
        if name not in self._identifiers:
            plain = "".join(c if c.isalnum() else "_" for c in name) + "_"
            taken = set(self._identifiers.values())
            while plain in taken:
                plain += "_"
            self._identifiers[name] = plain
        return self._identifiers[name]

    # ------------------------------------------------------------------------------------ indices

    def linear(self, value: ir.Index) -> CLinear:
        """An index in the current environment. NotVectorError if an atom depends on the lane."""
        terms: dict[str, int] = {}
        const, lane = value.const, 0
        for atom, c in value.terms:
            now = self.env[atom] if isinstance(atom, str) else self._atom(atom)
            if isinstance(now, int) or is_size(now):
                const += c * now
            elif isinstance(now, CLane):
                if is_size(c):
                    raise NotVectorError
                lane += c
            else:
                terms[now] = terms.get(now, 0) + c
        return CLinear(tuple(t for t in terms.items() if t[1]), const, lane)

    def _atom(self, atom: ir.Atom) -> int | str:
        assert not isinstance(atom, str)
        if isinstance(atom, ir.LoadIndex):
            return self._loaded(atom)
        inner = self.linear(atom.index)
        if inner.lane:
            raise NotVectorError
        if isinstance(atom, ir.Clamp):
            if not inner.terms and not any_size((inner.const, atom.lo, atom.hi)):
                return min(max(inner.const, atom.lo), atom.hi)
            low, high = amount_text(atom.lo), amount_text(atom.hi)
            return f"clamp_index({inner.text}, {low}, {high})"
        divisor = atom.divisor
        if not inner.terms and not is_size(inner.const):
            return (
                inner.const // divisor if isinstance(atom, ir.FloorDiv) else inner.const % divisor
            )
        # C divides toward zero: an index that may be negative is moved up by whole divisors.
        lowest, _ = interval(atom.index, self.ranges)
        moved = max(0, -(lowest // divisor))
        text = CLinear(inner.terms, inner.const + moved * divisor).text
        if isinstance(atom, ir.Mod):
            return f"(({text}) % {divisor})"
        return f"(({text}) / {divisor}" + (f" - {moved})" if moved else ")")

    def _loaded(self, atom: ir.LoadIndex) -> str:
        with self.one_lane(None):
            text = self.element(ir.Load(atom.buffer, atom.indices))
        return f"wrap_index({text}, {amount_text(atom.extent)})"

    @abstractmethod
    def element(self, value: ir.Load) -> str:
        """An element of a buffer, the same for every lane."""

    def flat(self, buffer: ir.Buffer, indices: Sequence[ir.Index]) -> CLinear:
        """Offset in elements from the buffer's element (0, 0, ...)."""
        self.touched.add(buffer.name)
        total = ir.Index()
        for i, stride in zip(indices, buffer.strides, strict=True):
            total = total + i * stride
        return self._placed(buffer, self.linear(recombine(total)))

    def _placed(self, buffer: ir.Buffer, at: CLinear) -> CLinear:
        """Where the element lies if the buffer is swizzled."""
        if not buffer.swizzle:
            return at
        bits, base, shift = buffer.swizzle
        if (
            self.lanes > 1
            and at.lane
            and (
                at.lane != 1
                or self.lanes > 1 << base
                or any(n % self.lanes for n in (at.const, *(c for _, c in at.terms)))
            )
        ):
            raise NotVectorError
        change = f"((({at.text}) >> {shift}) & {((1 << bits) - 1) << base})"
        return CLinear(((f"(({at.text}) ^ {change})", 1),), 0, at.lane)

    @contextmanager
    def one_lane(self, lane: int | None) -> Iterator[None]:
        """Write for one lane alone: the vector loop's variable is a constant. None: it must not
        be used at all."""
        lanes, env = self.lanes, self.env
        self.lanes = 1
        if lane is not None:
            self.env = {v: lane if isinstance(now, CLane) else now for v, now in env.items()}
        try:
            yield
        finally:  # what is tried for one lane may turn out to depend on the lane
            self.lanes, self.env = lanes, env

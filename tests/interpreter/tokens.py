"""One line of a program's text, read from left to right: names, indices, bounds, values.

The grammar is shown in `autotune.program.text`. A VerifyError says what was expected, and where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from autotune.errors import VerifyError
from autotune.program import ir
from autotune.types import DTYPES

T = TypeVar("T")

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][\w.']*)
    |(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    |(?P<mark><=|//|[][(),:=<%*+-]))""",
    re.VERBOSE,
)
_SIGNS = {"+": 1, "-": -1}


class Tokens:
    """One line, read from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(line.rstrip()):
            match = _TOKEN.match(line, position)
            if match is None:
                self.fail(f"a token at column {position}")
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()
        self._tokens.append(("end", ""))

    def fail(self, wanted: str) -> NoReturn:
        """Raise VerifyError: something else was expected here."""
        raise VerifyError(f"program text: expected {wanted}, in: {self._line.strip()}")

    def _take(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def accept(self, word: str) -> bool:
        if self._tokens[self._at][1] != word:
            return False
        self._at += 1
        return True

    def next_is_name(self) -> bool:
        return self._tokens[self._at][0] == "name"

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"{word!r} and not {self._tokens[self._at][1]!r}")

    def close(self, word: str) -> None:
        if word:
            self.expect(word)
        self.end()

    def end(self) -> None:
        if self._tokens[self._at][0] != "end":
            self.fail(f"nothing after {self._tokens[self._at - 1][1]!r}")

    def last(self, stmt: ir.Stmt) -> ir.Stmt:
        """The statement, which the line holds nothing after."""
        self.end()
        return stmt

    def name(self) -> str:
        kind, word = self._take()
        if kind != "name":
            self.fail(f"a name and not {word!r}")
        return word

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        kind, word = self._take()
        if kind != "number" or not word.isdigit():
            self.fail(f"an integer and not {word!r}")
        return sign * int(word)

    def _real(self) -> float:
        sign = -1.0 if self.accept("-") else 1.0
        kind, word = self._take()
        if kind != "number" and word not in ("inf", "nan"):
            self.fail(f"a number and not {word!r}")
        return sign * float(word)

    def _comma(self, end: str) -> bool:
        """Whether another item follows; the closing bracket is taken."""
        done = self.accept(end)
        if not done:
            self.expect(",")
        return not done

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items in brackets, each read by `item`."""
        self.expect("[")
        out: list[T] = []
        more = not self.accept("]")
        while more:
            out.append(item())
            more = self._comma("]")
        return tuple(out)

    def integers(self) -> tuple[int, ...]:
        return self.listed(self.integer)

    def pair(self) -> tuple[int, int]:
        first = self.integer()
        self.expect(":")
        return first, self.integer()

    def indices(self) -> tuple[ir.Index, ...]:
        return self.listed(self.index)

    def index(self) -> ir.Index:
        terms: list[tuple[ir.Atom, int]] = []
        const = 0
        sign = -1 if self.accept("-") else 1
        while True:
            if self._tokens[self._at][0] == "number":
                factor = sign * self.integer()
                if self.accept("*"):
                    terms.append((self._atom(), factor))
                else:
                    const += factor
            else:
                terms.append((self._atom(), sign))
            word = self._tokens[self._at][1]
            if word not in _SIGNS:
                return ir.Index(tuple(terms), const)
            sign = _SIGNS[word]
            self._at += 1

    def _atom(self) -> ir.Atom:
        if self.accept("("):
            inner = self._operand()
            division = self.accept("//")
            if not division:
                self.expect("%")
            divisor = self.integer()
            self.expect(")")
            return ir.FloorDiv(inner, divisor) if division else ir.Mod(inner, divisor)
        name = self.name()
        if name not in ("int", "clamp") or not self.accept("("):
            return name
        if name == "int":
            buffer, indices = self.name(), self.indices()
            self.expect(",")
            loaded = ir.LoadIndex(buffer, indices, self.integer())
            self.expect(")")
            return loaded
        inner, limits = self.index(), []
        for _ in range(2):
            self.expect(",")
            limits.append(self.integer())
        clamped = ir.Clamp(inner, *limits)
        self.expect(")")
        return clamped

    def _operand(self) -> ir.Index:
        """What is divided: a sum is in parentheses of its own."""
        if self._divides():
            return self.index()
        self.expect("(")
        inner = self.index()
        self.expect(")")
        return inner

    def _divides(self) -> bool:
        """Whether what follows is anything but a sum in parentheses."""
        depth = 0
        for position, (_, word) in enumerate(self._tokens[self._at :]):
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if depth == 0:
                return position == 0
            if depth == 1 and word in ("//", "%"):
                return True
        return True

    def bounds(self) -> tuple[ir.Bound, ...]:
        if self.accept("true"):
            return ()
        out: list[ir.Bound] = []
        more = True
        while more:
            lo = self.integer()
            self.expect("<=")
            inner = self.index()
            self.expect("<")
            out.append(ir.Bound(inner, lo, self.integer()))
            more = self.accept("and")
        return tuple(out)

    def value(self) -> ir.Value:
        name = self.name()
        if self._tokens[self._at][1] == "[" and name != "table":
            return ir.Load(name, self.indices())
        if name == "table":
            return self._table()
        self.expect("(")
        out: ir.Value
        if name in DTYPES:
            out = self._const(name)
        elif name == "value":
            inner = self.index()
            self.expect(",")
            out = ir.IndexValue(inner, self.name())
        elif name == "select":
            bounds = self.bounds()
            self.expect(",")
            then = self.value()
            self.expect(",")
            out = ir.Select(bounds, then, self.value())
        elif name in ir.FUNCTIONS:
            args = [self.value()]
            while self.accept(","):
                args.append(self.value())
            out = ir.Apply(name, tuple(args))
        else:
            self.fail(f"a function and not {name!r}")
        self.expect(")")
        return out

    def _const(self, dtype: str) -> ir.Const:
        if dtype == "bool":
            return ir.Const(self.name() == "true", dtype)
        return ir.Const(self._real() if dtype.startswith("float") else self.integer(), dtype)

    def _table(self) -> ir.Table:
        self.expect("[")
        rows: list[tuple[float, ...]] = []
        more = True
        while more:
            self.expect("[")
            row = [self._real()]
            while self._comma("]"):
                row.append(self._real())
            rows.append(tuple(row))
            more = self._comma("]")
        row_index, column_index = self.indices()
        return ir.Table(tuple(rows), row_index, column_index)

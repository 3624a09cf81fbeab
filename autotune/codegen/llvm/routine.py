"""A function as LLVM text, written in the order in which it runs. In: instructions, loops and
conditions. Out: its lines.

What changes from turn to turn of a loop is a local variable in memory; LLVM makes registers of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Routine:
    """Lines of a function as they are added."""

    def __init__(self, head: str) -> None:
        """`head`: all before the brace, like `define void @f(ptr %p) nounwind`."""
        self._head = head
        self._locals: list[str] = []
        self._lines: list[str] = []
        self._names = 0

    def value(self, text: str) -> str:
        """The name of an instruction's result."""
        name = f"%{self._name('v')}"
        self.do(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def place(self, pointer: str, number: int | str, kind: str = "i64") -> str:
        """Where element `number` of an array lies."""
        return self.value(f"getelementptr {kind}, ptr {pointer}, i64 {number}")

    def load(self, pointer: str, number: int | str = 0, kind: str = "i64") -> str:
        """Element `number` of an array."""
        return self.value(f"load {kind}, ptr {self.place(pointer, number, kind)}")

    def store(
        self, value: int | str, pointer: str, number: int | str = 0, kind: str = "i64"
    ) -> None:
        self.do(f"store {kind} {value}, ptr {self.place(pointer, number, kind)}")

    def local(self, first: int | str, kind: str = "i64") -> str:
        """A variable that is `first` from here on."""
        name = f"%{self._name('l')}"
        self._locals.append(f"  {name} = alloca {kind}")
        self.do(f"store {kind} {first}, ptr {name}")
        return name

    @contextlib.contextmanager
    def times(self, count: int | str) -> Iterator[str]:
        """A loop; gives the number of the turn, from 0."""
        turn = self.local(0)
        check, each, out = (self._name(word) for word in ("check", "each", "out"))
        self.do(f"br label %{check}")
        self._lines.append(f"{check}:")
        number = self.load(turn)
        more = self.value(f"icmp ult i64 {number}, {count}")
        self.do(f"br i1 {more}, label %{each}, label %{out}")
        self._lines.append(f"{each}:")
        yield number
        self.store(self.value(f"add i64 {number}, 1"), turn)
        self.do(f"br label %{check}")
        self._lines.append(f"{out}:")

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What runs only where the condition holds."""
        each, out = self._name("then"), self._name("on")
        self.do(f"br i1 {condition}, label %{each}, label %{out}")
        self._lines.append(f"{each}:")
        yield
        self.do(f"br label %{out}")
        self._lines.append(f"{out}:")

    def give(self, result: str) -> None:
        """Return; what follows runs where a `when` around this did not."""
        self.do(f"ret {result}")
        self._lines.append(f"{self._name('past')}:")

    def lines(self) -> list[str]:
        """All of it. The last thing that the function does is to `give`."""
        return [f"{self._head} {{", "entry:", *self._locals, *self._lines, "  unreachable", "}"]

    def _name(self, word: str) -> str:
        self._names += 1
        return f"{word}{self._names}"

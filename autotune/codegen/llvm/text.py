"""A writer of LLVM IR text: names, blocks, loops and types. In: calls. Out: a function's text.

Text rather than builder objects, because a register tile is thousands of instructions and this is
several times faster to write. Instructions go to the current scope; `hoist` sends an instruction
to the head of an enclosing loop, so that no pass has to move address arithmetic out of loops.
What a cell holds is known until the block ends: only then is it stored, only in the next loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.errors import BuildError

SCALARS = {
    "float32": "float", "float64": "double", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint64": "i64", "uint32": "i32", "uint16": "i16", "uint8": "i8",
    "bool": "i1", "bfloat16": "i16", "float16": "i16",
}  # fmt: skip
MEMORY = SCALARS | {"bool": "i8"}
SHORT = {
    "bfloat16": "i16",
    "float16": "i16",
    "float32": "f32",
    "float64": "f64",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "uint64": "i64",
    "uint32": "i32",
    "uint16": "i16",
    "bool": "i1",
}
MAX_LINES = 400_000
"""Instructions of a function: more would take LLVM minutes."""
_OPAQUE = "llvm.strip.invariant.group.p0"
"""Does nothing, and is no instruction: code generation drops it, after the passes on loops."""

Lines = list["str | Lines"]


@functools.cache
def type_text(dtype: str, lanes: int, memory: bool = False) -> str:
    """LLVM type of a value (in memory: bool takes a byte)."""
    scalar = (MEMORY if memory else SCALARS)[dtype]
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


@functools.cache
def suffix_text(dtype: str, lanes: int) -> str:
    """Overload suffix of an intrinsic: f32, v16f32."""
    short = SHORT.get(dtype, "i8")
    return short if lanes == 1 else f"v{lanes}{short}"


@dataclass(slots=True)
class Scope:
    """A stretch of code in which a name, once computed, stays valid."""

    head: Lines
    lines: Lines
    depth: int
    before: Lines = field(default_factory=list)
    """Just before the loop of that depth."""
    memo: dict[object, str] = field(default_factory=dict)


class FunctionText:
    """One function being written."""

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.allocas: list[str] = []
        self.declared: dict[str, str] = {}
        self.block = "entry"
        self._count = 0
        self._cells: dict[str, str] = {}
        """Types of cells, by name."""
        self._hoisted: dict[str, tuple[Lines, int]] = {}
        """Where hoisted instructions are."""
        self._placed: set[str] = set()
        """Cells that have a place in memory."""
        self._known: dict[str, str] = {}
        """What cells hold, in this block."""
        self._pending: dict[str, str] = {}
        """Stores to cells that the end of this block will need."""
        root: Lines = []
        head: Lines = []
        root.append(head)
        self._root = root
        self.scopes = [Scope(head=head, lines=root, depth=0)]

    def name(self, prefix: str = "v") -> str:
        self._count = count = self._count + 1
        if count > MAX_LINES:
            raise BuildError(f"the program unrolls to more than {MAX_LINES} instructions")
        return f"%{prefix}{count}"

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def line(self, text: str) -> None:
        self.scope.lines.append("  " + text)

    def emit(self, text: str) -> str:
        """An instruction with a result."""
        name = self.name()
        self.scope.lines.append(f"  {name} = {text}")
        return name

    def once(self, key: object, text: str) -> str:
        """An instruction without side effects, written once per scope."""
        found = self.known(key)
        if found is not None:
            return found
        name = self.emit(text)
        self.scope.memo[key] = name
        return name

    def hoist(self, depth: int, key: object, text: str) -> str:
        """A pure instruction whose operands are known at loop depth `depth`, placed there."""
        found = self.known(key)
        if found is not None:
            return found
        scope = next(s for s in self.scopes if s.depth == depth)
        name = self.name()
        self._hoisted[name] = scope.head, len(scope.head)
        scope.head.append(f"  {name} = {text}")
        scope.memo[key] = name
        return name

    def known(self, key: object) -> str | None:
        """What was remembered and is still valid."""
        for scope in self.scopes:
            if key in scope.memo:
                return scope.memo[key]
        return None

    def remember(self, depth: int, key: object, name: str) -> None:
        """A name for what hoisted instructions computed at that loop depth."""
        next(s for s in self.scopes if s.depth == depth).memo[key] = name

    def conceal(self, pointer: str) -> None:
        """Have LLVM's loop passes take a hoisted pointer as it is, not as a sum of variables."""
        if pointer not in self._hoisted:
            return
        self.declare(_OPAQUE, f"declare ptr @{_OPAQUE}(ptr)")
        head, place = self._hoisted[pointer]
        made = f"  {pointer}.sum{str(head[place]).partition(pointer)[2]}"
        head[place] = [made, f"  {pointer} = call ptr @{_OPAQUE}(ptr {pointer}.sum)"]

    def ahead(self, depth: int, text: str) -> str:
        """An instruction whose operands are known outside the loop of that depth, placed before
        the loop: its result stays the same there."""
        scope = next(s for s in self.scopes if s.depth == depth)
        key = ("ahead", text)
        if key not in scope.memo:
            name = self.name()
            scope.before.append(f"  {name} = {text}")
            scope.memo[key] = name
        return scope.memo[key]

    def declare(self, name: str, text: str) -> str:
        self.declared[name] = text
        return f"@{name}"

    def alloca(self, llvm_type: str) -> str:
        name = self.name("cell")
        self.allocas.append(f"  {name} = alloca {llvm_type}, align 64")
        return name

    # --------------------------------------------------------------------------- register cells

    def cell(self, llvm_type: str) -> str:
        """A name for a value that changes; it takes memory only where it outlives its block."""
        name = self.name("cell")
        self._cells[name] = llvm_type
        return name

    def read(self, pointer: str, kind: str) -> str:
        """What a cell, or any other place that nothing else reads or writes, holds."""
        if pointer in self._known:
            return self._known[pointer]
        self._place(pointer)
        value = self.emit(f"load {kind}, ptr {pointer}")
        if pointer in self._cells:
            self._known[pointer] = value
        return value

    def write(self, pointer: str, kind: str, value: str) -> None:
        """Have a cell hold a value."""
        store = f"store {kind} {value}, ptr {pointer}"
        if pointer in self._cells:
            self._known[pointer], self._pending[pointer] = value, store
        else:
            self.line(store)

    def drop(self, pointers: Iterable[str]) -> None:
        """These cells' values are not needed any more."""
        for pointer in pointers:
            self._known.pop(pointer, None)
            self._pending.pop(pointer, None)

    def _place(self, pointer: str) -> None:
        if pointer in self._cells and pointer not in self._placed:
            self._placed.add(pointer)
            self.allocas.append(f"  {pointer} = alloca {self._cells[pointer]}, align 64")

    def _settle(self) -> None:
        for pointer, store in self._pending.items():
            self._place(pointer)
            self.line(store)
        self._known.clear()
        self._pending.clear()

    # ------------------------------------------------------------------------------- control flow

    def branch(self, text: str) -> None:
        """End the block."""
        self._settle()
        self.line(f"br {text}")

    def label(self) -> str:
        self._count += 1
        return f"L{self._count}"

    def start(self, label: str) -> None:
        """Begin a block; the previous one must have ended with a branch."""
        self.scope.lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def loop(self, first: str, limit: str) -> Iterator[str]:
        """A loop of at least one iteration, first .. limit-1; gives the variable's name."""
        head, done, before = self.label(), self.label(), self.block
        ahead: Lines = []
        self.scope.lines.append(ahead)
        self.branch(f"label %{head}")
        self.start(head)
        var, following = self.name("i"), self.name("n")
        phi: Lines = []
        self.scope.lines.append(phi)
        prologue: Lines = []
        self.scope.lines.append(prologue)
        outer = self.scope
        self.scopes.append(
            Scope(head=prologue, lines=outer.lines, depth=outer.depth + 1, before=ahead)
        )
        yield var
        self.scopes.pop()
        phi.append(f"  {var} = phi i64 [ {first}, %{before} ], [ {following}, %{self.block} ]")
        self.line(f"{following} = add nuw nsw i64 {var}, 1")
        more = self.emit(f"icmp ult i64 {following}, {limit}")
        self.branch(f"i1 {more}, label %{head}, label %{done}")
        self.start(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Code that runs where the i1 holds."""
        inside, done = self.label(), self.label()
        self.branch(f"i1 {condition}, label %{inside}, label %{done}")
        self.start(inside)
        with self.region():
            yield
        self.branch(f"label %{done}")
        self.start(done)

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code whose names are not valid after it."""
        outer = self.scope
        self.scopes.append(Scope(head=outer.head, lines=outer.lines, depth=outer.depth))
        yield
        self.scopes.pop()

    def text(self) -> str:
        """The finished function."""
        out: list[str] = [self.signature + " {", "entry:", *self.allocas]
        _flatten(self._root, out)
        out.append("}")
        return "\n".join(out)


def _flatten(lines: Lines, out: list[str]) -> None:
    for item in lines:
        if isinstance(item, str):
            out.append(item)
        else:
            _flatten(item, out)

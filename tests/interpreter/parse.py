"""The parser of programs' text; the grammar is shown in `autotune.program.text`."""

from __future__ import annotations

from typing import cast

from autotune.errors import VerifyError
from autotune.program import ir
from autotune.types import dense_strides
from tests.interpreter.tokens import Tokens


def parse_program(text: str) -> ir.Program:
    """The Program that prints as `text`. VerifyError names the line that does not parse."""
    reader = _Lines([line for line in text.split("\n") if line.strip()])
    head = reader.next_line("program")
    name = head.name()
    head.end()
    params, packs = list[ir.Buffer](), list[ir.Pack]()
    while reader.peek("param"):
        params.append(_parse_buffer(reader.next_line("param"), "param"))
    while reader.peek("pack"):
        packs.append(_parse_pack(reader.next_line("pack")))
    body = reader.body(0)
    if reader.peek(""):
        reader.next_line("").fail("a statement at the left margin")
    return ir.Program(name, tuple(params), body, tuple(packs))


class _Lines:
    """The lines of a text, taken one after the other."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def peek(self, word: str) -> bool:
        """Whether there is another line and it starts with a word."""
        if self._at >= len(self._lines):
            return False
        return not word or self._lines[self._at].split()[0] == word

    def next_line(self, word: str) -> Tokens:
        """The next line's tokens after its first word."""
        if not self.peek(word):
            line = self._lines[self._at] if self._at < len(self._lines) else "the end"
            raise VerifyError(f"program text: expected {word!r}, got {line!r}")
        tokens = Tokens(self._lines[self._at])
        self._at += 1
        if word:
            tokens.expect(word)
        return tokens

    def body(self, indent: int) -> tuple[ir.Stmt, ...]:
        out: list[ir.Stmt] = []
        while self.peek("") and self._indent() == indent:
            out.append(self._stmt(indent))
        return tuple(out)

    def _indent(self) -> int:
        line = self._lines[self._at]
        return len(line) - len(line.lstrip(" "))

    def _stmt(self, indent: int) -> ir.Stmt:
        tokens = self.next_line("")
        word = tokens.name()
        if word == "for":
            var = tokens.name()
            tokens.expect("in")
            extent, kind = tokens.integer(), cast(ir.LoopKind, tokens.name())  # `verify` checks it
            tokens.close(":")
            return ir.For(var, extent, kind, self.body(indent + 2))
        if word == "alloc":
            buffer = _parse_buffer(tokens, "")
            return ir.Alloc(buffer, self.body(indent + 2))
        if word == "if":
            bounds = tokens.bounds()
            tokens.close(":")
            return ir.If(bounds, self.body(indent + 2))
        if word == "barrier":
            return tokens.last(ir.Barrier())
        if word in ("mma", "copy", "commit", "wait", "shuffle", "wgmma", "fetch"):
            return tokens.last(_collective(word, tokens))
        if word == "prefetch":
            return tokens.last(ir.Prefetch(tokens.name(), tokens.indices()))
        indices = tokens.indices()
        combine = tokens.name() if tokens.next_is_name() else None
        if combine is not None and combine not in ir.COMBINERS:
            tokens.fail(f"one of {', '.join(ir.COMBINERS)}")
        tokens.expect("=")
        return tokens.last(ir.Store(word, indices, tokens.value(), combine))


def _collective(word: str, tokens: Tokens) -> ir.Stmt:
    """What the threads of a warp or block do together."""

    def place(after: str) -> ir.Load:
        if after:
            tokens.expect(after)
        return ir.Load(tokens.name(), tokens.indices())

    if word == "mma":
        first = tokens.name()
        across = first == "across" and tokens.next_is_name()
        total = ir.Load(tokens.name() if across else first, tokens.indices())
        return ir.Mma(total, place(","), place(","), across)
    if word == "wgmma":
        count = tokens.integer()
        return ir.WarpgroupMma(place(""), place(","), place(","), count)
    if word == "fetch":
        box = tokens.integers()
        return ir.Fetch(place(""), place("from"), box)
    if word == "copy":
        count = tokens.integer()
        return ir.AsyncCopy(place(""), place("from"), count)
    if word == "shuffle":
        combine = tokens.name()
        if combine not in ir.COMBINERS:
            tokens.fail(f"one of {', '.join(ir.COMBINERS)}")
        return ir.Shuffle(combine, tokens.integer(), place(""))
    return ir.AsyncWait(tokens.integer()) if word == "wait" else ir.AsyncCommit()


def _parse_buffer(tokens: Tokens, scope: str) -> ir.Buffer:
    name = tokens.name()
    tokens.expect(":")
    dtype, shape = tokens.name(), tokens.integers()
    strides, halo = dense_strides(shape), ((0, 0),) * len(shape)
    swizzle: tuple[int, ...] = ()
    flags: set[str] = set()
    while tokens.next_is_name():
        word = tokens.name()
        if word == "strides":
            strides = tokens.integers()
        elif word == "halo":
            halo = tokens.listed(tokens.pair)
        elif word == "swizzle":
            swizzle = tokens.integers()
        elif word in ("constant", "written", "odd"):
            flags.add(word)
        else:
            scope = word
    tokens.close(":" if scope != "param" else "")
    return ir.Buffer(
        name, dtype, shape, cast(ir.Scope, scope), strides, halo,
        constant="constant" in flags, written="written" in flags,
        swizzle=swizzle, unaligned="odd" in flags,
    )  # fmt: skip


def _parse_pack(tokens: Tokens) -> ir.Pack:
    buffer = tokens.name()
    tokens.expect(":")
    shape = tokens.integers()
    tokens.expect("splits")
    splits = tokens.listed(tokens.pair)
    tokens.expect("order")
    order = tokens.integers()
    transforms: list[tuple[int, int, int, int]] = []
    while tokens.accept("transform"):
        d, m, r, stride = tokens.integers()
        transforms.append((d, m, r, stride))
    strassen = tokens.integers() if tokens.accept("strassen") else ()
    dtype = tokens.name() if tokens.accept("as") else ""
    tokens.end()
    return ir.Pack(buffer, shape, splits, order, tuple(transforms), dtype, strassen)

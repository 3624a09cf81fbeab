"""Rewrites from text. In: a file's text. Out: `Rewrite`s, checked; `str` of one is its text again.

rewrite NAME
    # why
    value x [n, h, w, c]            a tensor; [*s] has any rank
    constant k [1, 1, c, o]         one that is known when the graph is compiled
    attribute p q in 1..6           whole numbers of attributes; or words; or `reals`
    draw h = 2 * p                  what a proof makes a symbol, if not a random number
    where p > h                     holds wherever the rewrite is used
    exact                           both sides round the same sums
    saves                           the right side may be less work (generated ones)
    always                          it is no more, where nothing else reads the left side's parts
    for f in relu sigmoid           the same rewrite for each of these words in place of $f
    from conv2d(resize(x, out_shape=(n, p, q, c)), k)
    let y = conv2d(x, k)            a term, or a symbol that follows from others
    to resize(y, out_shape=(n, p, q, o))
    box (0, 1, 1, 0) to (n, p, q, o)  the right side is right between these places alone
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from autotune.errors import ConfigError
from autotune.ops import OPS
from autotune.rewrite import expressions
from autotune.rewrite.rule import Application, Declared, Domain, Rewrite

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


def parse(text: str, place: str = "rewrites") -> tuple[Rewrite, ...]:
    """The rewrites of a text; `place` is what messages call it. Raises ConfigError with the line
    where something is no rewrite, or a name is taken twice."""
    found: dict[str, Rewrite] = {}
    for number, lines in _blocks(text, place):
        for rewrite in _expanded(lines, f"{place}, line {number}"):
            if rewrite.name in found:
                raise ConfigError(f"{place}, line {number}: {rewrite.name} is there twice")
            found[rewrite.name] = rewrite
    return tuple(found.values())


def _blocks(text: str, place: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, lines) of each rewrite; lines of a deeper indent are joined."""
    block: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("rewrite "):
            if block:
                yield first, block
            block, first = [line.strip()], number
        elif line.startswith("        ") and len(block) > 1:
            block[-1] += " " + line.strip()
        elif line.startswith("    ") and line.strip() and block:
            block.append(line.strip())
        elif line.strip() and not line.startswith("#"):
            raise ConfigError(f"{place}, line {number}: expected 'rewrite NAME', got {line!r}")
    if block:
        yield first, block


def _expanded(lines: list[str], where: str) -> Iterator[Rewrite]:
    """One rewrite for each word of every `for` line."""
    at = next((i for i, line in enumerate(lines) if line.startswith("for ")), None)
    if at is None:
        yield _RewriteReader(where).read(lines)
        return
    symbol, _, words = lines[at].removeprefix("for ").partition(" in ")
    others = lines[1:at] + lines[at + 1 :]
    for word in words.split():
        rest = [re.sub(rf"\${symbol.strip()}\b", word, line) for line in others]
        yield from _expanded([f"{lines[0]}-{word}", *rest], where)


class _RewriteReader:
    """The lines of one rewrite, read one after the other."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.values: list[Declared] = []
        self.domains: list[Domain] = []
        self.drawn: list[tuple[str, str]] = []
        self.conditions: list[str] = []
        self.defines: list[tuple[str, str]] = []
        self.left: list[Application] = []
        self.lets: list[tuple[str, Application]] = []
        self.right: list[Application | str] = []
        self.box: tuple[str, str] | None = None
        self.note: list[str] = []
        self.exact = self.saves = self.always = False

    def read(self, lines: list[str]) -> Rewrite:
        name = lines[0].removeprefix("rewrite ").strip()
        if not _NAME.match(name):
            raise ConfigError(f"{self.where}: {name!r} is no name of a rewrite")
        self.where = f"{self.where} ({name})"
        for line in lines[1:]:
            word, _, rest = line.partition(" ")
            self.line(word, rest.strip(), line)
        if not self.left or len(self.left) != len(self.right):
            raise ConfigError(
                f"{self.where}: expected a 'to' for every 'from', got {len(self.left)} and "
                f"{len(self.right)}"
            )
        rewrite = self.made(name)
        self._check(rewrite)
        return rewrite

    def made(self, name: str) -> Rewrite:
        """What was read so far, unchecked."""
        return Rewrite(
            name=name, values=tuple(self.values), domains=tuple(self.domains),
            drawn=tuple(self.drawn), defines=tuple(self.defines), where=tuple(self.conditions),
            exact=self.exact, saves=self.saves, always=self.always, left=tuple(self.left),
            lets=tuple(self.lets), right=tuple(self.right), box=self.box, note=tuple(self.note),
        )  # fmt: skip

    def line(self, word: str, rest: str, line: str) -> None:
        """One line, which begins with a word. Raises ConfigError."""
        if word.startswith("#"):
            self.note.append(line.lstrip("# "))
        elif word in ("value", "constant"):
            self.values += self._declared(rest, word == "constant")
        elif word == "attribute":
            self.domains += self._domain(rest)
        elif word == "draw":
            name, _, text = rest.partition("=")
            self.drawn.append((name.strip(), self._expression(text)))
        elif word == "where":
            self.conditions.append(self._expression(rest))
        elif line in ("exact", "saves", "always"):
            setattr(self, line, True)
        elif word == "from":
            term = self._term(self._parsed(rest))
            if isinstance(term, str):
                raise ConfigError(f"{self.where}: a left side must be an operator, got {term!r}")
            self.left.append(term)
        elif word == "let":
            self._let(*rest.partition("=")[::2])
        elif word == "to":
            self.right.append(self._term(self._parsed(rest)))
        elif word == "box":
            starts, _, stops = rest.partition(" to ")
            self.box = (self._expression(starts), self._expression(stops))
        else:
            raise ConfigError(
                f"{self.where}: expected value, constant, attribute, draw, where, exact, "
                f"saves, always, for, from, let, to, box or #, got {line!r}"
            )

    def _let(self, name: str, text: str) -> None:
        node = self._parsed(text)
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in OPS:
            term = self._term(node)
            assert isinstance(term, Application)  # it is called
            self.lets.append((name.strip(), term))
        else:
            self.defines.append((name.strip(), expressions.normal(node, self.where)))

    def _declared(self, text: str, constant: bool) -> Iterator[Declared]:
        names, bracket, shape = text.partition("[")
        if not bracket or not shape.endswith("]") or not names.split():
            raise ConfigError(f"{self.where}: expected 'value x [n, c]', got {text!r}")
        dims = tuple(d.strip() for d in shape[:-1].split(",") if d.strip())
        for dim in dims:
            if not dim.removeprefix("*").isidentifier() and not dim.isdecimal():
                raise ConfigError(f"{self.where}: {dim!r} is no dimension: a symbol or a number")
        for name in names.split():
            yield Declared(name=name, shape=dims, constant=constant)

    def _domain(self, text: str) -> Iterator[Domain]:
        names, word, domain = text.partition(" in ")
        low, dots, high = domain.strip().partition("..")
        numbers = bool(dots) and low.isdecimal() and high.isdecimal()
        if not word or not (numbers or (domain.split() and not dots)):
            raise ConfigError(
                f"{self.where}: expected 'attribute p in 1..6' or words, got {text!r}"
            )
        for name in names.split():
            if numbers:
                yield Domain(name=name, low=int(low), high=int(high))
            elif domain.strip() == "reals":
                yield Domain(name=name, real=True)
            else:
                yield Domain(name=name, words=tuple(domain.split()))

    def _parsed(self, text: str) -> ast.expr:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise ConfigError(f"{self.where}: {text.strip()!r} cannot be read") from None

    def _expression(self, text: str) -> str:
        return expressions.normal(self._parsed(text), self.where)

    def _term(self, node: ast.expr) -> Application | str:
        if isinstance(node, ast.Name):
            return node.id
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ConfigError(f"{self.where}: {ast.unparse(node)!r} is no operator over values")
        op = node.func.id
        if op not in OPS:
            raise ConfigError(f"{self.where}: there is no operator {op!r}")
        attrs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ConfigError(f"{self.where}: attributes of {op} must be named")
            attrs[keyword.arg] = expressions.normal(keyword.value, self.where)
        args = tuple(self._term(a) for a in node.args)
        return Application(op, args, tuple(sorted(attrs.items())))

    def _check(self, rewrite: Rewrite) -> None:
        """Values are declared, and what the right side needs the left side has."""
        known = {v.name for v in rewrite.values}
        given = {v for term in rewrite.left for v in leaves(term)}
        lets: set[str] = set()
        for name, term in rewrite.lets:
            self._need(leaves(term), given | lets, "the left side has")
            lets.add(name)
        for side in rewrite.right:
            self._need(leaves(side), given | lets, "the left side has")
        self._need(given, known, "is declared by 'value' or 'constant'")
        if rewrite.box and len(rewrite.left) > 1:
            raise ConfigError(f"{self.where}: expected one 'from' beside a 'box', got several")

    def _need(self, wanted: set[str], there: set[str], what: str) -> None:
        for name in sorted(wanted - there):
            raise ConfigError(f"{self.where}: there is no value {name!r} that {what}")


def parse_header(text: str, name: str) -> Rewrite:
    """Values, attributes and conditions alone: a rewrite without sides. Raises ConfigError."""
    reader = _RewriteReader(name)
    for line in text.strip().splitlines():
        word, _, rest = line.strip().partition(" ")
        reader.line(word, rest.strip(), line.strip())
    return reader.made(name)


def leaves(term: Application | str) -> set[str]:
    """Names of the values that a term is over."""
    if isinstance(term, str):
        return {term}
    return {name for a in term.args for name in leaves(a)}


def renamed(rewrite: Rewrite, name: str) -> Rewrite:
    """The same under another name."""
    return dataclasses.replace(rewrite, name=name)

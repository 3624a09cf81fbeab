"""Rewrites as data: terms over declared values, equal wherever the conditions hold.

A term is a value's name, or an operator over terms with attributes that are expressions. The left
terms are found in a graph and the right ones put in their place; of several, each stands for the
one of the same place, and all are found and replaced together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A value that terms are over. `shape`: symbols of its dimensions, of which one may be starred
    and stand for several. `constant`: whether it must be known when the graph is compiled."""

    name: str
    shape: tuple[str, ...]
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A symbol of attributes. Words are those listed; of whole numbers, `low` is the least that is
    matched, and `high` the largest that a proof draws; `real`: any floating-point number. A
    starred symbol stands for several."""

    name: str
    words: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    real: bool = False


@dataclass(frozen=True, slots=True)
class Application:
    """`op` over terms and names of values; attributes by name, sorted, each an expression."""

    op: str
    args: tuple[Application | str, ...]
    attrs: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        named = (f"{name}={text}" for name, text in self.attrs)
        return f"{self.op}({', '.join([*map(str, self.args), *named])})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An equation that is used from left to right. `lets`: terms that right ones have by name, in
    order; `defines`: symbols that follow from others; `note`: why one would, as lines of text;
    `drawn`: expressions that give dimensions to a proof's instances, where few of those drawn
    freely would be legal."""

    name: str
    values: tuple[Declared, ...]
    domains: tuple[Domain, ...]
    defines: tuple[tuple[str, str], ...]
    where: tuple[str, ...]
    left: tuple[Application, ...]
    lets: tuple[tuple[str, Application], ...]
    right: tuple[Application | str, ...]
    drawn: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    """Whether both sides round the same sums, in whatever order they add them."""
    saves: bool = False
    """Whether the right side may be less work: of generated ones, what compiling looks for."""
    always: bool = False
    """Whether the right side is no more work wherever nothing else reads the left one's parts."""
    box: tuple[str, str] | None = None
    """Where the right side is right, if not everywhere: where it starts and stops along every
    dimension of the result. What lies around is computed as the left side says."""
    note: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"rewrite {self.name}", *(f"    # {line}" for line in self.note)]
        for v in self.values:
            word = "constant" if v.constant else "value"
            lines.append(f"    {word} {v.name} [{', '.join(v.shape)}]")
        for p in self.domains:
            domain = " ".join(p.words) if p.words else f"{p.low}..{p.high}"
            domain = "reals" if p.real else domain
            lines.append(f"    attribute {p.name} in {domain}")
        lines += [f"    draw {name} = {text}" for name, text in self.drawn]
        lines += [f"    let {name} = {text}" for name, text in self.defines]
        lines += [f"    where {text}" for text in self.where]
        lines += ["    exact"] * self.exact
        lines += ["    saves"] * self.saves
        lines += ["    always"] * self.always
        lines += [f"    from {term}" for term in self.left]
        lines += [f"    let {name} = {term}" for name, term in self.lets]
        lines += [f"    to {term}" for term in self.right]
        lines += [f"    box {self.box[0]} to {self.box[1]}"] if self.box else []
        return "\n".join(lines)

"""Files of rewrites: those that ship, and users' own, which are proven before they are used."""

from __future__ import annotations

import ast
import functools
import os
import re
from pathlib import Path

from autotune.errors import ConfigError
from autotune.graph.ir import Graph
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import prove
from autotune.rewrite.rule import Rewrite

GENERATED = Path(__file__).parent / "generated.rewrites"
NONE = "none"
"""In place of a file: no rewrites."""
ALL = "all"
"""In place of a file: those that ship, the generated ones as well."""
_LEFT = re.compile(r"^    from (.*(?:\n {8,}.*)*)", re.MULTILINE)
"""A left side, with the lines that go on from it."""
SHIPPED = Path(__file__).parent / "shipped.rewrites"


def read(path: str | os.PathLike[str]) -> tuple[Rewrite, ...]:
    """The rewrites of a file, as they are there. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"cannot read the rewrites {path}: {why}; name a text file") from None
    return parse(text, os.fspath(path))


@functools.cache
def shipped() -> tuple[Rewrite, ...]:
    """The rewrites that ship; tests prove them."""
    return read(SHIPPED)


@functools.cache
def generated() -> tuple[Rewrite, ...]:
    """The generated ones that ship; tests prove them."""
    return read(GENERATED)


def generated_for(graph: Graph) -> tuple[Rewrite, ...]:
    """The generated ones that may save work and whose operators read one another in this graph as
    on their left sides. Only these are parsed: all of them would take half a second."""
    made = {node.output: node.op for node in graph.nodes}
    there = {(node.op, made[i]) for node in graph.nodes for i in node.inputs if i in made}
    alone = {(op, "") for op in made.values()}
    return tuple(_one(text) for text in _saving() if _reads(text) <= there | alone)


@functools.cache
def _saving() -> tuple[str, ...]:
    """The texts of generated rewrites that may save work."""
    text = GENERATED.read_text(encoding="utf-8")
    blocks = (f"rewrite {b}" for b in re.split(r"^rewrite ", text, flags=re.MULTILINE)[1:])
    return tuple(b for b in blocks if "\n    saves\n" in b)


@functools.lru_cache(maxsize=4096)
def _reads(block: str) -> frozenset[tuple[str, str]]:
    """(operator, an operator whose result it reads) of a text's left sides, and their roots
    alone."""
    roots = [ast.parse(" ".join(text.split()), mode="eval").body for text in _LEFT.findall(block)]
    calls = [n for root in roots for n in ast.walk(root) if isinstance(n, ast.Call)]
    return frozenset(
        [(_called(root), "") for root in roots]
        + [(_called(c), _called(a)) for c in calls for a in c.args if isinstance(a, ast.Call)]
    )


def _called(node: ast.expr) -> str:
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return node.func.id


@functools.lru_cache(maxsize=4096)
def _one(text: str) -> Rewrite:
    (rewrite,) = parse(text, os.fspath(GENERATED))
    return rewrite


def wanted(name: str | os.PathLike[str] | None) -> tuple[Rewrite, ...]:
    """Those found by hand for None and `all`, nothing for `none`, else a file's, proven. Raises
    ConfigError."""
    if name is None or name == ALL:
        return shipped()
    if name == NONE:
        return ()
    found = read(name)
    for rewrite in found:
        prove(rewrite)
    return found

"""Files, functions and docstrings keep to the size and form that readers count on."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("autotune", "cost_model", "rpc_server", "search_spaces")
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_PARAMETERS = 8
"""Of a function, `self` apart: the options of a request are fields of one value."""


def files(*folders: str) -> Iterator[tuple[str, str]]:
    """Name and text of every file of Python."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


@functools.cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Name and syntax of every file of the product."""
    return tuple((name, ast.parse(text)) for name, text in files(*PRODUCT))


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Every node of the product's syntax, with where it is."""
    for name, tree in trees():
        for node in ast.walk(tree):
            yield f"{name}:{getattr(node, 'lineno', 1)}", node


def test_no_file_is_too_long() -> None:
    lengths = {n: t.count("\n") for n, t in files(*PRODUCT, "benchmarks", "examples", "tests")}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_function_is_too_long_or_asks_for_too_much() -> None:
    found = []
    for where, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            asked = len([a for a in args if a.arg not in ("self", "cls")])
            lines = (node.end_lineno or 0) - node.lineno + 1
            if asked > MOST_PARAMETERS or lines > MOST_FUNCTION_LINES:
                found.append((where, node.name, lines, asked))
    assert found == []


def test_docstrings_name_what_they_are_about() -> None:
    """No sentence whose subject is only in another line: 'Of a merged pass.'"""
    assert not [
        (where, node.value.value)
        for where, node in nodes()
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and str(node.value.value).lstrip().startswith("Of ")
    ]


def test_modules_are_named_by_what_they_are() -> None:
    """A module's docstring begins with its noun or verb, no docstring is that of another place."""
    riddles = ("What ", "Which ", "How ", "Whether ", "Where ", "When ", "Who ", "Why ", "That ")
    found = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in files(*PRODUCT)}
    assert {name: d for name, d in found.items() if d.startswith(riddles)} == {}
    assert [name for name, text in files(*PRODUCT) if '"""See the module' in text] == []

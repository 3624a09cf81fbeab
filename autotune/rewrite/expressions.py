"""Expressions over a rewrite's symbols: shapes, attributes and conditions.

In: text such as `(n, 2 * h, *rest)`. Out: whole numbers, words, truth values and tuples of these.
The grammar is a part of Python's, without anything that could call or reach beyond the symbols.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping
from typing import Any

from autotune.errors import ConfigError

Symbols = Mapping[str, Any]
_FUNCTIONS: dict[str, Any] = {
    "len": len, "min": min, "max": max, "prod": math.prod, "tuple": tuple, "sum": sum,
    "range": range, "index": lambda items, item: items.index(item),
    "put": lambda items, place, item: (*items[:place], item, *items[place + 1 :]),
}  # fmt: skip
"""`put(t, i, v)`: the tuple with v at place i. `index(t, v)`: where v is."""
NOTHING = (LookupError, TypeError, ValueError, ArithmeticError, NameError)
"""What `value` raises of an expression that is nothing for some symbols."""
_NODES = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.Starred, ast.BinOp, ast.Add,
    ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod, ast.UnaryOp, ast.USub, ast.Not, ast.BoolOp,
    ast.And, ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In,
    ast.NotIn, ast.Subscript, ast.Slice, ast.Call, ast.IfExp, ast.GeneratorExp, ast.comprehension,
    ast.Store,
)  # fmt: skip


def normal(node: ast.expr, where: str) -> str:
    """An expression's text in one form. Raises ConfigError where it is none of this grammar."""
    for part in ast.walk(node):
        known = isinstance(part, _NODES)
        if isinstance(part, ast.Call):
            known = isinstance(part.func, ast.Name) and part.func.id in _FUNCTIONS
        if isinstance(part, ast.Name) and part.id.startswith("_"):
            known = False
        if not known:
            raise ConfigError(
                f"{where}: {ast.unparse(node)!r} is no expression of a rewrite; expected numbers, "
                f"symbols, tuples, arithmetic, comparisons and {', '.join(_FUNCTIONS)}"
            )
    return ast.unparse(node)


def names(text: str) -> frozenset[str]:
    """The symbols of an expression, but those that it binds itself."""
    tree = _tree(text)
    every = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return frozenset(every - bound - _FUNCTIONS.keys())


def value(text: str, symbols: Symbols) -> Any:
    """What an expression is, for these symbols. Raises one of NOTHING where it is nothing."""
    return eval(_code(text), {"__builtins__": {}, **_FUNCTIONS, **symbols})


def defined(defines: tuple[tuple[str, str], ...], symbols: Symbols) -> dict[str, Any] | None:
    """The symbols and those that follow from them; None where one is nothing."""
    out = dict(symbols)
    for name, text in defines:
        try:
            out[name] = value(text, out)
        except NOTHING:
            return None
    return out


def shape(dims: tuple[str, ...], symbols: Symbols) -> tuple[int, ...]:
    """The extents of declared dimensions, of which a starred one is several."""
    out: list[int] = []
    for dim in dims:
        if dim.startswith("*"):
            out += symbols[dim[1:]]
        else:
            out.append(int(dim) if dim.isdecimal() else symbols[dim])
    return tuple(out)


def parts(text: str) -> list[str] | None:
    """The texts of a tuple's items, starred ones with their star; None of what is no tuple."""
    body = _tree(text).body
    return [ast.unparse(e) for e in body.elts] if isinstance(body, ast.Tuple) else None


@functools.lru_cache(maxsize=4096)
def _tree(text: str) -> ast.Expression:
    return ast.parse(text, mode="eval")


@functools.lru_cache(maxsize=4096)
def _code(text: str) -> Any:
    return compile(_tree(text), "<rewrite>", "eval")

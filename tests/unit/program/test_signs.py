"""What is known of values' signs."""

from __future__ import annotations

import math

import pytest

from autotune.program.ir import Const, Load, Value, fn, index
from autotune.program.signs import lowest, never_negative
from tests.interpreter.parse import parse_program

PROGRAM = """program p
param x: float32[8]
param y: float32[8] written
alloc s: float32[8] scratch:
  alloc m: float32[] scratch:
    alloc d: float32[8] scratch:
      m[] = float32(0.0)
      for k in 8 serial:
        m[] sum= {term}
      for i in 8 serial:
        d[i] = sub(x[i], m[])
        s[i] = mul(d[i], d[i])
      for j in 8 serial:
        y[j] = rsqrt(add(s[j], float32(0.5)))
"""
X = Load("x", (index("i"),))
S = Load("s", (index("i"),))


@pytest.mark.parametrize(
    ("term", "known"),
    [("x[k]", {"s"}), ("abs(x[k])", {"s", "m"}), ("mul(m[], s[k])", {"s", "m"}),
     ("mul(x[k], s[k])", {"s"}), ("select(0 <= k < 4, s[k], float32(-1.0))", {"s"})],
)  # fmt: skip
def test_buffers_without_negative_numbers(term: str, known: set[str]) -> None:
    assert never_negative(parse_program(PROGRAM.format(term=term))) == known


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (Const(-2.0), -2.0),
        (X, -math.inf),
        (S, 0.0),
        (fn("add", fn("mul", S, Const(3.0)), Const(0.5)), 0.5),
        (fn("add", X, Const(0.5)), -math.inf),
        (fn("mul", X, X), 0.0),
        (fn("mul", S, Const(-1.0)), -math.inf),
        (fn("max", X, Const(1.0)), 1.0),
        (fn("min", S, Const(-1.0)), -1.0),
        (fn("sub", S, S), -math.inf),
        (fn("sqrt", X), 0.0),
    ],
)
def test_lower_bounds(value: Value, bound: float) -> None:
    assert lowest(value, frozenset("s")) == bound

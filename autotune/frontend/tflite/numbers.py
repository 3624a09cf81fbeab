"""TensorFlow Lite importers: functions of numbers that have no scales, element by element. Bytes
with scales are refused: what the reference kernels make of these is not written here."""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite.context import OperatorContext, tflite_importer

_SAME = {
    "ABS": "abs", "CEIL": "ceil", "COS": "cos", "EXP": "exp", "FLOOR": "floor", "LOG": "log",
    "NEG": "neg", "ROUND": "round", "RSQRT": "rsqrt", "SIGN": "sign", "SIN": "sin",
    "SQRT": "sqrt", "LOGICAL_NOT": "not", "LOGICAL_AND": "and", "LOGICAL_OR": "or", "POW": "pow",
    "FLOOR_MOD": "mod", "EQUAL": "eq", "NOT_EQUAL": "ne", "LESS": "lt", "LESS_EQUAL": "le",
    "GREATER": "gt", "GREATER_EQUAL": "ge", "SELECT_V2": "where",
}  # fmt: skip
"""Operators that are one op of graphs."""


@tflite_importer(*_SAME)
def same(n: OperatorContext) -> str:
    n.plain()
    (op,) = (op for operator, op in _SAME.items() if n.is_a(operator))
    return n.op(op, *(n.input(i) for i in range(n.inputs)))


@tflite_importer("SQUARE")
def square(n: OperatorContext) -> str:
    n.plain()
    return n.op("mul", n.input(0), n.input(0))


@tflite_importer("SQUARED_DIFFERENCE")
def squared_difference(n: OperatorContext) -> str:
    n.plain()
    apart = n.op("sub", n.input(0), n.input(1))
    return n.op("mul", apart, apart)


@tflite_importer("DIV")
def div(n: OperatorContext) -> str:
    n.plain()
    activation = n.options("DivOptions").FusedActivationFunction()
    return n.float_activated(n.op("div", n.input(0), n.input(1)), activation)


@tflite_importer("FLOOR_DIV")
def floor_div(n: OperatorContext) -> str:
    """Integers are divided without the remainder, which has the divisor's sign."""
    n.plain()
    x, divisor = n.input(0), n.input(1)
    if n.dtype(x) == "float32":
        return n.op("floor", n.op("div", x, divisor))
    return n.op("div", n.op("sub", x, n.op("mod", x, divisor)), divisor)


@tflite_importer("PRELU")
def prelu(n: OperatorContext) -> str:
    n.plain()
    x = n.input(0)
    below = n.op("lt", x, n.like(0, x))
    return n.op("where", below, n.op("mul", x, n.input(1)), x)


@tflite_importer("ELU")
def elu(n: OperatorContext) -> str:
    n.plain()
    return n.op("elu", n.input(0), alpha=1.0)


@tflite_importer("GELU")
def gelu(n: OperatorContext) -> str:
    n.plain()
    approximate = "tanh" if n.options("GeluOptions").Approximate() else "none"
    return n.op("gelu", n.input(0), approximate=approximate)


@tflite_importer("SELECT")
def select(n: OperatorContext) -> str:
    """By element, or by row where there is one condition for each."""
    n.plain()
    condition, wanted = n.input(0), n.shape(n.input(1))
    if n.rank(condition) < len(wanted) and n.rank(condition) == 1:
        condition = n.reshape(condition, (*n.shape(condition), *(1,) * (len(wanted) - 1)))
    return n.op("where", condition, n.input(1), n.input(2))


@tflite_importer("CAST")
def cast(n: OperatorContext) -> str:
    """Numbers of another type; bytes with scales count in steps, and are no numbers."""
    n.plain()
    for tensor in (n.tensor(0), n.result()):
        if tensor.dtype == "int8":
            raise UnsupportedOpError("bytes are not supported here; expected wider integers")
    return n.cast(n.input(0), n.result().dtype)

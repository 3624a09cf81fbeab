"""TensorFlow Lite importers: functions element by element. What the reference kernels make of
bytes with scales is in `byte_functions`."""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite import byte_functions as of_steps
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.linear import summed

_SAME = {
    "ABS": "abs", "CEIL": "ceil", "COS": "cos", "EXP": "exp", "FLOOR": "floor", "LOG": "log",
    "NEG": "neg", "ROUND": "round", "RSQRT": "rsqrt", "SIGN": "sign", "SIN": "sin",
    "SQRT": "sqrt", "LOGICAL_NOT": "not", "LOGICAL_AND": "and", "LOGICAL_OR": "or", "POW": "pow",
    "FLOOR_MOD": "mod", "EQUAL": "eq", "NOT_EQUAL": "ne", "LESS": "lt", "LESS_EQUAL": "le",
    "GREATER": "gt", "GREATER_EQUAL": "ge",
}  # fmt: skip
"""Operators that are one op of graphs."""


@tflite_importer(*_SAME)
def same(n: OperatorContext) -> str:
    if n.steps:
        return of_steps.of_bytes(n)
    (op,) = (op for operator, op in _SAME.items() if n.is_a(operator))
    return n.op(op, *(n.input(i) for i in range(n.inputs)))


@tflite_importer("SQUARE")
def square(n: OperatorContext) -> str:
    n.plain()
    return n.op("mul", n.input(0), n.input(0))


@tflite_importer("SQUARED_DIFFERENCE")
def squared_difference(n: OperatorContext) -> str:
    if n.steps and n.quantized(0, 1):
        return of_steps.squared_difference(n)
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
    if n.steps and n.quantized(0, 1):
        return of_steps.prelu(n)
    x = n.input(0)
    below = n.op("lt", x, n.like(0, x))
    return n.op("where", below, n.op("mul", x, n.input(1)), x)


@tflite_importer("ELU")
def elu(n: OperatorContext) -> str:
    if n.steps:
        return of_steps.of_bytes(n)
    return n.op("elu", n.input(0), alpha=1.0)


@tflite_importer("GELU")
def gelu(n: OperatorContext) -> str:
    if n.steps:
        return of_steps.of_bytes(n)
    approximate = "tanh" if n.options("GeluOptions").Approximate() else "none"
    return n.op("gelu", n.input(0), approximate=approximate)


@tflite_importer("SELECT", "SELECT_V2")
def select(n: OperatorContext) -> str:
    if n.steps:
        return of_steps.of_bytes(n)
    return n.op("where", of_steps.selected_by(n), n.input(1), n.input(2))


@tflite_importer("ADD_N")
def add_n(n: OperatorContext) -> str:
    n.plain()
    return summed(n, [n.input(i) for i in range(n.inputs)])


@tflite_importer("CAST")
def cast(n: OperatorContext) -> str:
    """Numbers of another type; of bytes their counts, without a scale."""
    tensor, result = n.tensor(0), n.result()
    if result.dtype == "int8":
        raise UnsupportedOpError("numbers as int8 are not supported; expected wider integers")
    if tensor.dtype == "int8":
        wide = n.cast(n.input(0), "int32")
        return n.cast(n.op("sub", wide, n.like(tensor.moved, wide)), result.dtype)
    return n.cast(n.input(0), result.dtype)

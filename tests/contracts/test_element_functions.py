"""Errors of every element function of float32 that a model may have, against float64, on every
backend: over all exponents, and at random bit patterns. Strict code computes with denormal
numbers; other code may take them for zeros, or for anything between.

One model applies all operators of ONNX to one input, one graph all other chains, so that a backend
builds each once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.compiler.driver import compile_graph
from autotune.errors import TargetError
from autotune.exactness import ACCURACIES
from autotune.frontend.onnx.importer import import_model
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.model import CompiledModel
from autotune.target import Target, host_target, load_target
from autotune.types import Array, TensorType

SMALLEST_NORMAL = 2.0**-126
FAST, MANY = 1 << 16, 1_000_000
"""Numbers that are tried; models are built once, for calls of FAST."""
MOST_ULP = 4.0

Reference = Callable[[Array], Array]


def _each(function: Callable[[float], float]) -> Reference:
    return np.vectorize(function, otypes=[np.float64])


def _logistic(z: Array) -> Array:
    return np.where(z < 0, np.exp(np.minimum(z, 0)), 1) / (1 + np.exp(-np.abs(z)))


def _gelu(x: Array) -> Array:
    return x * (_each(math.erfc)(-x * math.sqrt(0.5)) / 2)


def _gelu_tanh(x: Array) -> Array:
    return x * _logistic(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _power_of(exponent: float, x: Array) -> Array:
    """numpy takes roots for some exponents that are no arrays: of minus infinity, too."""
    return np.power(x, np.full_like(x, np.float32(exponent)))


SELU = float(np.float32(1.67326319217681884765625)), float(np.float32(1.05070102214813232421875))
F32 = lambda v: float(np.float32(v))  # noqa: E731
FUNCTIONS: dict[str, tuple[str, dict[str, Any], Reference]] = {
    "exp": ("Exp", {}, np.exp),
    "log": ("Log", {}, np.log),
    "erf": ("Erf", {}, _each(math.erf)),
    "tanh": ("Tanh", {}, np.tanh),
    "sigmoid": ("Sigmoid", {}, _logistic),
    "sin": ("Sin", {}, np.sin),
    "cos": ("Cos", {}, np.cos),
    "tan": ("Tan", {}, np.tan),
    "asin": ("Asin", {}, np.arcsin),
    "acos": ("Acos", {}, np.arccos),
    "atan": ("Atan", {}, np.arctan),
    "sinh": ("Sinh", {}, np.sinh),
    "cosh": ("Cosh", {}, np.cosh),
    "asinh": ("Asinh", {}, np.arcsinh),
    "acosh": ("Acosh", {}, np.arccosh),
    "atanh": ("Atanh", {}, np.arctanh),
    "sqrt": ("Sqrt", {}, np.sqrt),
    "reciprocal": ("Reciprocal", {}, lambda x: 1 / x),
    "softplus": ("Softplus", {}, _softplus),
    "softsign": ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    "gelu": ("Gelu", {}, _gelu),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}, _gelu_tanh),
    "elu": ("Elu", {"alpha": 1.3}, lambda x: _elu(x, F32(1.3))),
    "selu": ("Selu", {}, lambda x: SELU[1] * _elu(x, SELU[0])),
    "celu": ("Celu", {"alpha": 0.7}, lambda x: F32(0.7) * _elu(x / F32(0.7), 1.0)),
    "mish": ("Mish", {}, lambda x: x * np.tanh(_softplus(x))),
    "swish": ("Swish", {}, lambda x: x * _logistic(x)),
    "swish_steep": ("Swish", {"alpha": 1.702}, lambda x: x * _logistic(F32(1.702) * x)),
    "swish_falling": ("Swish", {"alpha": -0.3}, lambda x: x * _logistic(F32(-0.3) * x)),
    "hard_sigmoid": ("HardSigmoid", {}, lambda x: np.clip(F32(0.2) * x + 0.5, 0, 1)),
    "hard_sigmoid_sixth": ("HardSigmoid", {"alpha": 1 / 6}, lambda x: np.clip(
        F32(1 / 6) * x + 0.5, 0, 1)),
    "hard_swish": ("HardSwish", {}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.3}, lambda x: np.where(x < 0, F32(0.3) * x, x)),
    "thresholded": ("ThresholdedRelu", {"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
    "shrink": ("Shrink", {"bias": 0.3, "lambd": 0.5}, lambda x: np.where(
        np.abs(x) > 0.5, x - np.sign(x) * F32(0.3), 0)),
    "relu": ("Relu", {}, lambda x: np.maximum(x, 0)),
    "abs": ("Abs", {}, np.abs),
    "neg": ("Neg", {}, np.negative),
    "sign": ("Sign", {}, np.sign),
    "ceil": ("Ceil", {}, np.ceil),
    "floor": ("Floor", {}, np.floor),
    "round": ("Round", {}, np.rint),
}  # fmt: skip
POWERS = (0.5, 2.0, 3.0, 0.25, 1.5, 3.75, -0.5, -1.0, -2.0, -0.75, -1.25, -3.5, 0.3, 7.0, -2.6)
for _power in POWERS:
    _reference = functools.partial(_power_of, _power)
    FUNCTIONS[f"pow {_power}"] = ("Pow", {"exponent": _power}, _reference)

Chain = Callable[[GraphBuilder, str], str]
CHAINS: dict[str, tuple[Chain, Reference]] = {
    "rsqrt": (lambda b, x: b.op("rsqrt", x), lambda x: 1 / np.sqrt(x)),
    "reciprocal of sqrt": (
        lambda b, x: b.op("reciprocal", b.op("sqrt", x)), lambda x: 1 / np.sqrt(x)
    ),
}  # fmt: skip
"""What no operator of ONNX is alone."""
REFERENCES = {n: f for n, (_, _, f) in FUNCTIONS.items()} | {n: f for n, (_, f) in CHAINS.items()}

BACKENDS = ("cpu", "c", "opencl")
FAST_PAIRS = (("cpu", "normal"), ("cpu", "strict"), ("c", "normal"))
"""The others take two to ten seconds to build them all, and have the million numbers."""


def model(count: int) -> onnx.ModelProto:
    """Every function of one input, each an output."""
    nodes, constants = [], []
    for name, (operator, given, _) in FUNCTIONS.items():
        inputs, attrs = ["x"], dict(given)
        if operator == "Pow":
            value = np.asarray(attrs.pop("exponent"), np.float32)
            constants.append(onnx.numpy_helper.from_array(value, f"{name} exponent"))
            inputs.append(f"{name} exponent")
        nodes.append(helper.make_node(operator, inputs, [name], **attrs))
    info = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    outputs = [info(name, shape=[count]) for name in FUNCTIONS]
    graph = helper.make_graph(nodes, "functions", [info("x", shape=[count])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def chains(count: int) -> Graph:
    """Every chain of one input, each an output."""
    builder = GraphBuilder("chains")
    x = builder.input("x", TensorType(dtype="float32", shape=(count,)))
    return builder.finish([(name, chain(builder, x)) for name, (chain, _) in CHAINS.items()])


def target_of(backend: str) -> Target:
    return host_target() if backend == "cpu" else load_target(backend)


def there_are(backend: str, accuracy: str) -> bool:
    """Whether the backend's target has the accuracy."""
    try:
        target_of(backend).with_accuracy(accuracy)
    except TargetError:
        return False
    return True


PAIRS = [(b, a) for b in BACKENDS for a in ACCURACIES if there_are(b, a)]


@functools.cache
def samples(count: int) -> Array:
    """A quarter evenly over all exponents and signs, with the ends of each; a quarter where most
    functions change; the rest of random bits; and special numbers."""
    rng = np.random.default_rng(7)
    each = count // 4 // 510
    exponents = np.repeat(np.arange(255, dtype=np.uint32), each)
    mantissas = rng.integers(0, 1 << 23, exponents.size).astype(np.uint32)
    mantissas[::each] = 0
    mantissas[1::each] = (1 << 23) - 1
    sizes = (exponents << 23 | mantissas).view(np.float32)
    dense = rng.uniform(-1, 1, count // 4).astype(np.float32)
    dense *= rng.choice(np.asarray([0.1, 1.1, 3, 12, 110], np.float32), dense.size)
    special = np.asarray(
        [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e30, 1.5e-14, -2.078293], np.float32
    )
    left = count - 2 * sizes.size - dense.size - special.size
    bits = rng.integers(0, 1 << 32, left, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([sizes, -sizes, dense, special, bits])


@functools.cache
def compiled(backend: str, accuracy: str) -> tuple[CompiledModel, ...]:
    graphs = import_model(model(FAST), {}), chains(FAST)
    target = target_of(backend).with_accuracy(accuracy)
    return tuple(compile_graph(graph, target) for graph in graphs)


@functools.cache
def results(backend: str, accuracy: str, count: int) -> dict[str, Array]:
    parts: dict[str, list[Array]] = {}
    for x in np.split(np.resize(samples(count), -(-count // FAST) * FAST), -(-count // FAST)):
        for built in compiled(backend, accuracy):
            for name, got in built.run({"x": x}).items():
                parts.setdefault(name, []).append(got)
    return {name: np.concatenate(found)[:count] for name, found in parts.items()}


@functools.cache
def wanted(name: str, count: int, *, flushed: bool) -> Array:
    """By float64, of the samples or of those with zeros in place of denormal numbers."""
    x = samples(count)
    x = np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(0, x), x) if flushed else x
    with np.errstate(all="ignore"):
        return REFERENCES[name](x.astype(np.float64))


def error_in_ulp(got: Array, want: Array) -> Array:
    """Distance in units of the last place of the result, which is at least a normal number: less
    than one ulp of that is the error of what should be denormal."""
    with np.errstate(all="ignore"):
        nearest = want.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(nearest), np.float32(SMALLEST_NORMAL)))
        error = np.abs(got.astype(np.float64) - want) / unit
    small = np.abs(want) < SMALLEST_NORMAL
    error[small & (np.abs(got) <= SMALLEST_NORMAL)] = 0
    same = (np.isnan(got) & np.isnan(want)) | (got == nearest)
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


def between(got: Array, name: str, count: int) -> Array:
    """Whether results are those of some number between the sample and what it is flushed to."""
    ends = [wanted(name, count, flushed=flushed) for flushed in (False, True)]
    with np.errstate(invalid="ignore"):
        inside = (np.minimum(*ends) <= got) & (got <= np.maximum(*ends))
    tiny = np.abs(samples(count)) < SMALLEST_NORMAL
    return np.asarray(tiny & inside)


def worst(name: str, backend: str, accuracy: str, count: int) -> tuple[float, float]:
    """(the largest error, where)."""
    got = results(backend, accuracy, count)[name]
    error = error_in_ulp(got, wanted(name, count, flushed=False))
    if accuracy == "normal":
        error = np.minimum(error, error_in_ulp(got, wanted(name, count, flushed=True)))
        error[between(got, name, count)] = 0
    return float(error.max()), float(samples(count)[error.argmax()])


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize(("backend", "accuracy"), FAST_PAIRS)
def test_errors_are_at_most_four_ulp(name: str, backend: str, accuracy: str) -> None:
    error, where = worst(name, backend, accuracy, FAST)
    assert error <= MOST_ULP, f"{name}({where!r}) is {error} ulp off"


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize(("backend", "accuracy"), PAIRS)
def test_errors_at_a_million_numbers(name: str, backend: str, accuracy: str) -> None:
    error, where = worst(name, backend, accuracy, MANY)
    assert error <= MOST_ULP, f"{name}({where!r}) is {error} ulp off"

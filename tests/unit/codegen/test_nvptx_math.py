"""Errors of the CUDA backend's functions, with NVIDIA's approximations as wrong as they may be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.program.ir import Program
from autotune.target import load_target
from autotune.types import Array
from tests.emulator import errors, run_emulated
from tests.interpreter.parse import parse_program

SM80 = load_target("sm_80")
BLOCK = 128
CALM = np.geomspace(1e-4, 1, 20_000)
REFERENCE = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
}
ULPS = {
    "exp": 4, "log": 1, "tanh": 8, "sigmoid": 9, "erf": 5, "rsqrt": 3, "reciprocal": 3, "sqrt": 1,
}  # fmt: skip
POSITIVE = ("log", "rsqrt", "sqrt", "reciprocal")


def elementwise(value: str, count: int) -> Program:
    return parse_program(f"""program elementwise
param i0: float32[{count}]
param i1: float32[{count}]
param o0: float32[{count}] written
for b in {count // BLOCK} block.x:
  for t in {BLOCK // 2} thread.x:
    for v in 2 vector:
      o0[{BLOCK}*b + 2*t + v] = {value}
""")


def apply(fn: str, x: Array, y: Array | None = None) -> Array:
    count = -(-len(x) // BLOCK) * BLOCK
    place = f"[{BLOCK}*b + 2*t + v]"
    value = f"{fn}(i0{place}, i1{place})" if y is not None else f"{fn}(i0{place})"
    arrays = {"i0": np.resize(x, count), "i1": np.resize(x if y is None else y, count)}
    return run_emulated(elementwise(value, count), SM80, arrays)[: len(x)]


def samples(fn: str) -> Array:
    wide = np.concatenate([CALM, np.linspace(1, 87, 20_000)])
    x = wide if fn in POSITIVE else np.concatenate([wide, -wide])
    return x.astype(np.float32)


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("fn", sorted(REFERENCE))
def test_errors_are_bounded(fn: str, share: float) -> None:
    x = samples(fn)
    with errors(share):
        got = apply(fn, x)
    want = REFERENCE[fn](x.astype(np.float64))
    ulp = np.spacing(np.maximum(np.abs(want), 2.0**-126).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - want) / ulp) <= ULPS[fn]


@pytest.mark.parametrize("share", [-1.0, 1.0])
@pytest.mark.parametrize(("fn", "reference"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_are_within_their_absolute_error(
    fn: str, reference: np.ufunc, share: float
) -> None:
    x = np.linspace(-10_000, 10_000, 40_000).astype(np.float32)
    with errors(share):
        got = apply(fn, x)
    assert np.max(np.abs(got - reference(x.astype(np.float64)))) < 2e-6


def test_powers_of_any_exponent() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.01, 20, 4096), rng.uniform(-5, 5, 4096)
    x[:5], y[:5] = [-2, -2, -3, 7, 0], [3, 2, 0.5, 0, 2]
    x, y = x.astype(np.float32), y.astype(np.float32)
    with errors(1.0):
        got = apply("pow", x, y)
    with np.errstate(invalid="ignore"):
        want = np.power(x.astype(np.float64), y)
    assert np.isnan(got[2])
    exponent = np.abs(y * np.log(np.maximum(np.abs(x), 1e-30)))
    bound = 2.0**-22 * (2 + np.minimum(exponent, 200)) * np.abs(want) + 1e-37
    kept = ~np.isnan(want)
    assert np.all(np.abs(got - want)[kept] <= bound[kept])


def test_special_values() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 100.0, -100.0], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(apply("exp", x), [np.inf, 0, np.nan, 1, np.inf, 0])
    np.testing.assert_array_equal(apply("sigmoid", x)[[0, 1, 3]], [1, 0, 0.5])
    np.testing.assert_allclose(apply("tanh", x)[[0, 1, 3]], [1, -1, 0], rtol=3e-7)


def test_not_a_number_survives_extremes_as_in_numpy() -> None:
    x = np.array([np.nan, 1.0, -0.5, np.nan], np.float32)
    y = np.array([2.0, np.nan, 3.0, np.nan], np.float32)
    np.testing.assert_array_equal(apply("max", x, y), np.maximum(x, y))
    np.testing.assert_array_equal(apply("min", x, y), np.minimum(x, y))

"""Powers and remainders of vectors: special cases as in C, errors against float64."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from autotune.codegen.llvm.backend import assembly_text, load_text
from autotune.codegen.llvm.fused import FusedMath
from autotune.codegen.llvm.math import MathWriter
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.target import host_target
from autotune.types import Array

HOST = host_target()
SMALLEST_NORMAL = np.float32(2.0**-126)
MOST_ULP = 0.6
SPECIAL = np.asarray(
    [0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, 33, -33,
     1e-40, -1e-40, 2**24, 2**24 - 1, 1 - 2**24, 2**25, -(2**25), 1e30, -1e30, 3.4e38, 1.2e-38,
     0.99999994, -0.99999994, 1.0000001, -1.0000001],
    np.float32,
)  # fmt: skip
Code = Callable[[MathWriter, str, str], str]


def pairs(count: int = 40_000) -> tuple[Array, Array]:
    """Numbers of any bits, of sizes at which powers are numbers, bases with whole exponents, and
    every two of the special ones."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, (2, count), dtype=np.uint64).astype(np.uint32)
    x = [bits[0].view(np.float32), rng.uniform(0, 4, count), rng.uniform(-4, 4, count)]
    y = [bits[1].view(np.float32), rng.uniform(-60, 60, count), rng.integers(-40, 40, count)]
    x.append(np.repeat(SPECIAL, SPECIAL.size))
    y.append(np.tile(SPECIAL, SPECIAL.size))
    with np.errstate(invalid="ignore"):  # numbers of any bits
        return np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)


def source(code: Code, lanes: int, math: type[MathWriter]) -> str:
    """A loop over vectors of two arrays."""
    text = FunctionText("define void @f(ptr %x, ptr %y, ptr %z, i64 %n)")
    kind = type_text("float32", lanes)
    with text.loop("0", "%n") as i:
        step = text.emit(f"mul i64 {i}, {lanes}")
        x, y, z = (text.emit(f"getelementptr float, ptr %{p}, i64 {step}") for p in "xyz")
        a, b = (text.emit(f"load {kind}, ptr {p}, align 4") for p in (x, y))
        text.line(f"store {kind} {code(math(text, lanes), a, b)}, ptr {z}, align 4")
    text.line("ret void")
    return "\n".join([*text.declared.values(), text.text(), ""])


def apply(code: Code, x: Array, y: Array, lanes: int, math: type[MathWriter]) -> Array:
    library = load_text(source(code, lanes, math), HOST)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(library.address("f"))
    size = -(-x.size // lanes) * lanes
    given = [np.ascontiguousarray(np.resize(v, size)) for v in (x, y)]
    out = np.empty(size, np.float32)
    call(given[0].ctypes.data, given[1].ctypes.data, out.ctypes.data, size // lanes)
    return out[: x.size]


def is_same(got: Array, want: Array) -> Array:
    """Bit for bit, but for what is no number."""
    bits = got.view(np.int32) == want.view(np.int32)
    return np.asarray(bits | (np.isnan(got) & np.isnan(want)))


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("math", [MathWriter, FusedMath])
def test_powers_of_vectors(lanes: int, math: type[MathWriter]) -> None:
    x, y = pairs()
    got = apply(lambda w, a, b: w.pow(a, b), x, y, lanes, math)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
        nearest = want.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(nearest), SMALLEST_NORMAL))
        off = np.where(is_same(got, nearest), 0, np.abs(got - want) / unit)
    wrong = np.flatnonzero(~(off <= MOST_ULP))
    assert not wrong.size, [(x[i], y[i], got[i], want[i]) for i in wrong[:5]]


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("math", [MathWriter, FusedMath])
def test_remainders_of_vectors_are_exact(lanes: int, math: type[MathWriter]) -> None:
    x, y = pairs()
    near = np.flatnonzero(np.abs(x) * np.float32(1e-6) < np.abs(y))
    order = np.concatenate([near, np.setdiff1d(np.arange(x.size), near)])
    x, y = x[order], y[order]  # whole vectors of small quotients: the library is not asked
    got = apply(lambda w, a, b: w.remainder(a, b), x, y, lanes, math)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    wrong = np.flatnonzero(~is_same(got, want))
    assert not wrong.size, [(x[i], y[i], got[i], want[i]) for i in wrong[:5]]


def test_remainders_next_to_whole_quotients() -> None:
    """A rounded quotient may be the integer above the quotient."""
    rng = np.random.default_rng(4)
    y = rng.uniform(1, 2, 100_000).astype(np.float32)
    whole = np.float32(2.0) ** rng.integers(0, 28, y.size).astype(np.float32)
    x = np.nextafter((y * whole).astype(np.float32), np.float32(0))
    got = apply(lambda w, a, b: w.remainder(a, b), x, y, 16, FusedMath)
    np.testing.assert_array_equal(got, np.fmod(x, y))


def test_a_power_calls_no_library_and_what_a_constant_exponent_decides_is_folded() -> None:
    codes: list[Code] = [lambda w, a, b: w.pow(a, b), lambda w, a, _: w.pow(a, w.const(1.7))]
    varying, constant = (assembly_text(source(code, 16, FusedMath), HOST) for code in codes)
    for text in (varying, constant):
        assert not re.search(r"\bcall\w*\s", text)
    assert len(constant.splitlines()) < len(varying.splitlines()) - 10

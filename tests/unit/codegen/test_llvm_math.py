"""Errors of the element functions over the whole float32 range, against float64."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from autotune.codegen.llvm.backend import load_text
from autotune.codegen.llvm.fused import MOST_TURNED, FusedMath
from autotune.codegen.llvm.math import MathWriter, unary
from autotune.codegen.llvm.tables import NARROW, WIDE, ErfTable, erf_tables, math_of
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.target import Target, host_target
from autotune.types import Array

HOST = host_target()
SMALLEST_NORMAL = 2.0**-126

REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
# The docstrings' claims: largest error in ulp where the result is a normal number, and the largest
# absolute error where it is not.
LIMITS = {
    "exp": (2.5, 1.18e-38),
    "log": (1.0, 0.0),
    "tanh": (3.0, 2e-45),
    "sigmoid": (4.0, 3e-39),
    "erf": (3.0, 2e-45),
    "rsqrt": (1.5, 0.0),
}


def samples() -> Array:
    """Floats of every exponent and sign, the interesting ranges densely, and the special ones."""
    rng = np.random.default_rng(0)
    every = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = [rng.uniform(-w, w, 40_000).astype(np.float32) for w in (1, 10, 105)]
    special = np.array(
        [0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 88.72283, 88.72284, -87.33654, -87.33655,
         -103.9, 1e-40, -1e-40, SMALLEST_NORMAL, 3.4e38, -3.4e38],
        np.float32,
    )  # fmt: skip
    return np.concatenate([every, *dense, special])


def apply(
    fn: str, x: Array, lanes: int = 16, target: Target = HOST, math: type[MathWriter] = MathWriter
) -> Array:
    return apply_code(lambda writer, given: unary(writer, fn, given), x, lanes, target, math)


def apply_code(
    code: Callable[[MathWriter, str], str],
    x: Array,
    lanes: int = 16,
    target: Target = HOST,
    math: type[MathWriter] = MathWriter,
) -> Array:
    """Code for a vector of lanes, called over an array."""
    text = FunctionText("define void @f(ptr %x, ptr %y, i64 %n)")
    kind = type_text("float32", lanes)
    with text.loop("0", "%n") as i:
        step = text.emit(f"mul i64 {i}, {lanes}")
        source = text.emit(f"getelementptr float, ptr %x, i64 {step}")
        given = text.emit(f"load {kind}, ptr {source}, align 4")
        result = code(math(text, lanes), given)
        place = text.emit(f"getelementptr float, ptr %y, i64 {step}")
        text.line(f"store {kind} {result}, ptr {place}, align 4")
    text.line("ret void")
    library = load_text("\n".join([*text.declared.values(), text.text(), ""]), target)
    padded = np.resize(x, -(-len(x) // lanes) * lanes).astype(np.float32)
    out = np.empty_like(padded)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function(library.address("f"))(padded.ctypes.data, out.ctypes.data, len(padded) // lanes)
    return out[: len(x)]


FEATURES = frozenset(HOST.features.split(","))
MATHS = [("plain", MathWriter), ("host's", math_of(FEATURES))]
MATHS += [("narrow tables", math_of({"+avx2"}))] if "+avx2" in FEATURES else []


@pytest.mark.parametrize("fn", sorted(REFERENCE))
@pytest.mark.parametrize("math", [m for _, m in MATHS], ids=[n for n, _ in MATHS])
def test_errors_are_those_of_the_docstrings(fn: str, math: type[MathWriter]) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        want = REFERENCE[fn](x.astype(np.float64))
        nearest = want.astype(np.float32)
    got = apply(fn, x, math=math)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(nearest))
    finite = np.isfinite(nearest)
    normal = finite & (np.abs(nearest) >= SMALLEST_NORMAL)
    error = np.abs(got[finite] - want[finite])
    ulp = np.spacing(np.abs(nearest[finite])).astype(np.float64)
    in_ulp, absolute = LIMITS[fn]
    assert np.max((error / ulp)[normal[finite]]) <= in_ulp
    assert np.max(error[~normal[finite]], initial=0.0) <= absolute


@pytest.mark.parametrize("fn", sorted(REFERENCE))
def test_one_lane_gives_what_sixteen_do(fn: str) -> None:
    x = samples()[::97]
    np.testing.assert_array_equal(apply(fn, x, lanes=1), apply(fn, x))


@pytest.mark.parametrize("math", [m for _, m in MATHS[1:]], ids=[n for n, _ in MATHS[1:]])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_few_lanes_give_what_sixteen_do_with_tables(math: type[MathWriter], lanes: int) -> None:
    x = samples()[::97]
    np.testing.assert_array_equal(
        apply("erf", x, lanes=lanes, math=math), apply("erf", x, math=math)
    )


@pytest.mark.parametrize("math", [m for _, m in MATHS], ids=[n for n, _ in MATHS])
def test_erf_is_odd_and_ends_in_one(math: type[MathWriter]) -> None:
    x = np.array([3.95, 4.0, 7.5, 1e30, np.inf, 0.0], np.float32)
    got, mirrored = apply("erf", x, math=math), apply("erf", -x, math=math)
    assert got.tolist() == [1, 1, 1, 1, 1, 0]
    np.testing.assert_array_equal(np.signbit(mirrored), True)
    np.testing.assert_array_equal(-mirrored, got)


@pytest.mark.parametrize("fn", ["sin", "cos"])
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_sines_of_few_and_of_many_turns(fn: str, lanes: int) -> None:
    """Within 3 ulp where half turns are taken away here, and the C library's number beyond,
    whatever is in other lanes."""
    rng = np.random.default_rng(3)
    quarters = np.arange(20_000) * (np.pi / 2)  # next to zeros and ends
    few = np.concatenate([quarters, rng.uniform(-100, 100, 20_000), rng.normal(0, 1e-3, 999)])
    x = np.concatenate([few, rng.uniform(-1e30, 1e30, 500), [0.0, MOST_TURNED, 3e38, np.inf]])
    x = rng.permutation(x).astype(np.float32)
    got = apply(fn, x, lanes=lanes, math=FusedMath)
    with np.errstate(invalid="ignore"):
        want = (np.sin if fn == "sin" else np.cos)(x.astype(np.float64))
    error = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
    assert np.isnan(got).sum() == 1
    assert np.nanmax(error) <= 3
    np.testing.assert_array_equal(got, apply(fn, x, lanes=8, math=FusedMath))


@pytest.mark.parametrize("table", [WIDE, NARROW])
def test_tables_of_erf_are_exact_to_half_a_unit_of_float32(table: ErfTable) -> None:
    x = np.linspace(-table.width / 2, table.width / 2, 201)
    for number, row in enumerate(zip(*erf_tables(table), strict=True)):
        want = np.vectorize(math.erf)(table.width * number + x)
        error = np.abs(np.polyval(row, x) - want)
        assert np.max(error[want != 0] / np.abs(want[want != 0])) < 2.0**-24


@pytest.mark.parametrize(
    ("feature", "picks"), [("+avx512f", "permvar"), ("+avx2", "permps"), ("+sse4.1", "")]
)
def test_tables_are_used_where_one_instruction_picks(feature: str, picks: str) -> None:
    text = FunctionText("define void @f()")
    unary(math_of({feature})(text, 16), "erf", "zeroinitializer")
    assert {p for p in ("permvar", "permps") if f".{p}" in text.text()} == {picks} - {""}


@pytest.mark.parametrize("lanes", [1, 16])
def test_reciprocal_roots_of_normal_numbers_need_no_care(lanes: int) -> None:
    x = np.abs(samples()[::7])
    x = np.append(x[~(x < SMALLEST_NORMAL)], np.float32(math.inf))
    got = apply_code(lambda writer, given: writer.rsqrt_of_normal(given), x, lanes=lanes)
    with np.errstate(all="ignore"):
        want = 1 / np.sqrt(x.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=5 * 2.0**-23)


def test_exp_ends_in_zero_and_infinity() -> None:
    got = apply("exp", np.array([-math.inf, -88, 0, 89, math.inf], np.float32))
    assert got.tolist() == [0, 0, 1, math.inf, math.inf]


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        ("reciprocal", lambda x: 1 / x),
        ("sqrt", np.sqrt),
        ("round", np.rint),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("abs", np.abs),
        ("sign", np.sign),
        ("neg", np.negative),
    ],
)
def test_simple_functions_are_those_of_numpy(fn: str, reference: Callable[[Array], Array]) -> None:
    x = samples()[::31]
    with np.errstate(all="ignore"):
        want = reference(x)
    np.testing.assert_allclose(apply(fn, x), want, rtol=2e-7)


@pytest.mark.parametrize("exponent", [q / 4 for q in range(-16, 17) if q] + [5.0, 0.3])
def test_powers_of_a_known_exponent(exponent: float) -> None:
    x = np.linspace(0.1, 20, 64, dtype=np.float32)
    got = apply_code(lambda w, given: w.power(given, w.const(exponent), exponent), x)
    np.testing.assert_allclose(got, x.astype(np.float64) ** exponent, rtol=1e-6)

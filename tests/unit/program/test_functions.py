"""Element functions: the cases where languages differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.program.functions import apply_function, combine, combine_over
from autotune.program.ir import COMBINERS, FUNCTIONS


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("div", [np.asarray([7, -7, 7, -7]), np.asarray([2, 2, -2, -2])], [3, -3, -3, 3]),
        ("div", [np.asarray([1.0]), np.asarray([0.0])], [math.inf]),
        ("mod", [np.asarray([7, -7, 7]), np.asarray([3, 3, -3])], [1, 2, -2]),
        ("round", [np.asarray([0.5, 1.5, -0.5])], [0, 2, 0]),
        ("rsqrt", [np.asarray([4.0])], [0.5]),
        ("sigmoid", [np.asarray([0.0, 1000.0, -1000.0])], [0.5, 1, 0]),
        ("erf", [np.asarray([0.0, 0.5])], [0, math.erf(0.5)]),
        ("to_int32", [np.asarray([1.9, -1.9])], [1, -1]),
        ("to_bool", [np.asarray([0.0, 0.5])], [False, True]),
        ("bits", [np.asarray([1.0, -0.0], np.float32)], [0x3F800000, -(1 << 31)]),
        ("where", [np.asarray([True, False]), np.asarray([1]), np.asarray([2])], [1, 2]),
    ],
)
def test_values(name: str, args: list[np.ndarray], want: list[float]) -> None:
    np.testing.assert_array_equal(apply_function(name, args), want)


INTEGERS = {name for name in FUNCTIONS if name.startswith(("bit_", "shift_"))}


@pytest.mark.parametrize(
    "name", sorted(set(FUNCTIONS) - INTEGERS - {"and", "or", "not", "where", "bits"})
)
def test_floats_keep_their_precision(name: str) -> None:
    args = [np.asarray([0.5, 2.0], np.float32)] * FUNCTIONS[name]
    found = apply_function(name, args).dtype.name
    if name.startswith("to_"):
        # bfloat16 values are kept as the float32 values they are.
        assert found == name.removeprefix("to_").replace("bfloat16", "float32")
    else:
        assert found == ("bool" if name in ("eq", "ne", "lt", "le", "gt", "ge") else "float32")


@pytest.mark.parametrize("name", COMBINERS)
def test_a_reduction_is_its_steps(name: str) -> None:
    values = np.asarray([[3, -1, 2], [5, 4, -6]], np.int32)
    steps = values[:, 0]
    for column in (1, 2):
        steps = combine(name, steps, values[:, column])
    whole = combine_over(name, values, (1,))
    np.testing.assert_array_equal(whole, steps)
    assert whole.dtype == np.int32

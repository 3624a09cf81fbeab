"""Random small applications of ops on fixed-point numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autotune.types import freeze_attrs
from tests.contracts.case import Case, tensor

Draw = Callable[[st.SearchStrategy[Any]], Any]
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@st.composite
def requantize(draw: Draw) -> Case:
    shape = draw(shapes)
    factors = tensor(*draw(st.sampled_from([shape[-1:], (1,)])), dtype="int32")
    rounding = draw(st.sampled_from(["once", "twice", "up"]))
    up = {"bits": 30} if rounding == "up" else {}
    least = draw(st.sampled_from([31, 32] if up else [1, 20, 31, 32, 33]))
    attrs = {"rounding": rounding, "least_shift": least, **up}
    types = (tensor(*shape, dtype="int32"), factors, factors)
    return Case(op="requantize", types=types, attrs=freeze_attrs(attrs), constants=(1, 2))

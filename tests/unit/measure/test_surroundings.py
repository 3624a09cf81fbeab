"""What stands in the caches before a timed call."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.llvm_backend import compile_text
from autotune.codegen.loader import code_in_memory, load
from autotune.measure.kernels import flush_text
from autotune.measure.storage import aligned_bytes
from autotune.measure.surroundings import Surroundings
from autotune.target import host_target

TARGET = host_target()


@pytest.mark.parametrize("apart_s", [0.0, 0.001])
def test_nothing_that_is_moved_changes(apart_s: float) -> None:
    near, far = aligned_bytes(5000, 3), aligned_bytes(5000, 3)[1:]
    surroundings = Surroundings(TARGET)
    surroundings.between_calls(1 << 20, [near], [near], [far, far[:0]], apart_s)
    assert (near == 3).all()
    assert (far == 3).all()


def test_what_others_take_away_is_a_share() -> None:
    surroundings = Surroundings(TARGET)
    share = surroundings.lost(1 << 20, 0.001)
    assert 0.0 <= share <= 1.0
    assert surroundings.lost(1 << 20, 0.001) == share


def test_without_a_model_around_it_nothing_is_taken_away() -> None:
    assert Surroundings(TARGET).lost(1 << 20, 0.0) == 0.0


def test_the_code_of_a_function_is_found_where_it_lies() -> None:
    code = compile_text(flush_text(), TARGET)
    library = load([code], TARGET)
    found = code_in_memory(library, code, "flush")
    start = library.address("flush") - found.ctypes.data
    assert 0 <= start < found.nbytes
    assert np.any(found)

"""Memory of a kernel's arguments."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autotune.measure.storage import (
    PART_BYTES,
    PATTERN,
    aligned_bytes,
    place,
    place_dense,
    place_input,
    reset_output,
    take_output,
)
from autotune.memory import HUGE_PAGE_BYTES
from autotune.types import Layout
from tests.unit.measure.tasks import value

HALOED = Layout.haloed((2, 3), ((1, 0), (1, 2)))


def test_an_input_has_zeros_in_its_halo() -> None:
    array = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    storage = place_input(value("i0", "input", (2, 3), HALOED), array)
    padded = np.ctypeslib.as_array(
        ctypes.cast(storage.address - 4 * 7, ctypes.POINTER(ctypes.c_float)), (3, 6)
    )
    assert np.array_equal(padded, np.pad(array, ((1, 0), (1, 2))))


def test_gaps_between_the_elements_of_an_input_are_not_numbers() -> None:
    """A slice of a wider tensor: what lies between belongs to others."""
    layout = Layout(strides=(8, 1), halo=((0, 0), (0, 0)))
    storage = place_input(value("i0", "input", (2, 3), layout), np.zeros((2, 3), np.float32))
    gap = ctypes.cast(storage.address + 4 * 3, ctypes.POINTER(ctypes.c_float))[0]
    assert np.isnan(gap)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool", "int8"])
def test_an_output_comes_back_as_written(dtype: str) -> None:
    storage = place(value("o0", "output", (2, 3), HALOED, dtype), PATTERN)
    reset_output(storage)
    storage.view[...] = np.arange(6).reshape(2, 3)
    written, outside = take_output(storage)
    assert np.array_equal(written, np.arange(6).reshape(2, 3))
    assert outside == 0


@pytest.mark.parametrize("offset", [-1, 3, -7, 9])
def test_a_write_outside_the_output_is_seen(offset: int) -> None:
    """Into the halo beside a row, and before and after everything."""
    storage = place(value("o0", "output", (2, 3), HALOED), PATTERN)
    reset_output(storage)
    ctypes.cast(storage.address + 4 * offset, ctypes.POINTER(ctypes.c_float))[0] = 0.0
    assert take_output(storage)[1] == 4


def test_what_a_kernel_leaves_out_is_not_a_number() -> None:
    storage = place(value("o0", "output", (4,)), PATTERN)
    reset_output(storage)
    assert np.isnan(take_output(storage)[0]).all()


def test_constants_are_aligned_and_dense() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::2]
    storage = place_dense(array)
    assert storage.address % 64 == 0
    assert storage.view.flags.c_contiguous
    assert np.array_equal(storage.view, array)


def test_a_scalar_has_a_place() -> None:
    storage = place_input(value("i0", "input", ()), np.asarray(2.5, np.float32))
    assert ctypes.cast(storage.address, ctypes.POINTER(ctypes.c_float))[0] == 2.5


def test_larger_blocks_begin_at_a_huge_page() -> None:
    """As a model's arena and weights do."""
    block = aligned_bytes(PART_BYTES, 7)
    assert block.nbytes == PART_BYTES
    assert block.ctypes.data % HUGE_PAGE_BYTES == 0
    assert (block == 7).all()

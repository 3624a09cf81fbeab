"""Default tiles of bytes on cores that multiply one by one: what registers hold, whole ones, since
the code of a rest is a second tile's."""

from __future__ import annotations

import math

import pytest

import cost_model
from autotune.machine import Machine
from autotune.target import load_target
from search_spaces.cpu.contraction.plain_products import REGISTERS
from search_spaces.rules import rule_for
from tests.unit.search_spaces.algorithms.test_int8_interleaved import convolution

TARGET = load_target("rv32imac")


@pytest.mark.parametrize(
    ("image", "sums", "side"),
    [((24, 24, 32), 32, 1), ((8, 8, 64), 64, 3), ((16, 16, 32), 32, 3), ((12, 12, 64), 32, 1)],
)
def test_default_tiles_are_whole_and_held_in_registers(
    image: tuple[int, int, int], sums: int, side: int
) -> None:
    made = convolution(image, sums, side)
    config = cost_model.default(made, Machine.of(TARGET), rule_for(made, TARGET))
    sizes = {p: config.number(p) for p in ("tile_h", "tile_w", "vectors", "unroll")}
    assert sizes["unroll"] == 1
    assert math.prod(sizes.values()) < REGISTERS
    assert image[0] % sizes["tile_h"] == image[1] % sizes["tile_w"] == 0

"""What the prior of Winograd's algorithm counts beside arithmetic: data that are loaded again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.machine import Machine
from autotune.target import load_target
from search_spaces.algorithms.winograd import Filtering
from search_spaces.cpu.contraction.shape import contraction_of
from tests.unit.codegen.kernels import node, task, value

LAYER = task(
    [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
    value("i0", (1, 7, 7, 512), pads=((0, 0), (1, 2), (1, 2), (0, 0))),
    value("c0", (3, 3, 512, 512)),
    value("o0", (1, 7, 7, 512)),
)
"""The last 3x3 layer of a ResNet: 25 MB of transformed weights for 8 tiles of 4x2 points."""
KIB, MIB = 1 << 10, 1 << 20


def cycles(vectors: int, *, l1_bytes: int, l3_bytes: int) -> float:
    """Of 8 tiles times so many vectors of 8 channels, on a core with AVX2 and such caches."""
    target = dataclasses.replace(load_target("x86-64-v3"), l1_bytes=l1_bytes, l3_bytes=l3_bytes)
    choices = {"lanes": 8, "vectors": vectors, "tile_w": 8, "unroll": 4, "block": 8}
    configs = {name: np.array([number]) for name, number in choices.items()}
    configs["prefetch"] = np.array(["none"])
    form = Filtering("winograd4x2", 6, (4, 2))
    made = form.cycles(LAYER, contraction_of(LAYER), Machine.of(target), configs)
    return float(made[0])


@pytest.mark.parametrize(("l3_bytes", "loaded_again"), [(8 * MIB, True), (256 * MIB, False)])
def test_data_are_loaded_again_beside_weights_from_memory(
    l3_bytes: int, loaded_again: bool
) -> None:
    small, large = (cycles(1, l1_bytes=n * KIB, l3_bytes=l3_bytes) for n in (32, 128))
    assert (small > large) == loaded_again


def test_wider_panels_of_weights_load_data_fewer_times() -> None:
    narrow, wide = (
        cycles(v, l1_bytes=32 * KIB, l3_bytes=8 * MIB)
        - cycles(v, l1_bytes=128 * KIB, l3_bytes=8 * MIB)
        for v in (1, 2)
    )
    assert narrow == pytest.approx(2 * wide)

"""When weights are asked for early: where the hardware is too late by itself."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.target import host_target
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import node, task, value


@pytest.mark.parametrize(
    ("points", "depth", "channels", "wanted"),
    [
        (1, 128, 512, "none"),  # a step of a recurrent layer: weights stay in the L2 cache
        (1, 4096, 4096, "panel"),  # a classifier's, larger than caches
        (2, 768, 3072, "none"),
        (8, 256, 1024, "panel"),  # arithmetic takes as long as the weights
    ],
)
def test_weights_are_asked_for_early_where_that_pays(
    points: int, depth: int, channels: int, wanted: str
) -> None:
    case = task(
        [node("matmul", "i0 c0", "o0", transpose_b=False)],
        value("i0", (points, depth)),
        value("c0", (depth, channels)),
        value("o0", (points, channels)),
    )
    sizes = {"l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    on = dataclasses.replace(host_target(1), **sizes)
    assert rule_for(case, on).default(case, on)["prefetch"] == wanted

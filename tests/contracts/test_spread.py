"""How far a NaN and an infinity reach: in `strict` to the outputs that read them and no further.

Winograd's and Strassen's algorithms add what they later take away again, so that in `normal` all
outputs of a tile, or of rows and columns a half apart, may be no numbers. That is documented; here
it is seen."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.schedule import apply_schedule
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.types import Array, Task
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import matmul as matmul_task
from tests.unit.codegen.kernels import run_kernel
from tests.unit.schedule.test_winograd import conv

CONV = conv(17, 18, channels=16, filters=32)
PRODUCT = matmul_task(256, 256, 256)
EXACT = ("direct", "winograd2")
"""What reaches no further: outputs of a tile of F(2x2, 3x3) read the middle of it anyway."""
STRICT, NORMAL = host_target().with_accuracy("strict"), host_target()


def spoiled(task: Task) -> tuple[dict[str, Array], Array]:
    """(ordinary inputs but for a NaN and an infinity, which outputs these reach)."""
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.type.shape).astype("f4") for v in task.params[:-1]}
    data = arrays["i0"]
    reached = np.zeros(task.by_role("output")[0].type.shape, bool)
    if data.ndim == 4:
        data[0, 5, 6, 3], data[0, 16, 17, 0] = np.nan, np.inf
        reached[0, 4:7, 5:8] = reached[0, 15:17, 16:18] = True
    else:
        data[7, 9], data[255, 255] = np.nan, np.inf
        reached[[7, 255]] = True
    return arrays, reached


def algorithms(task: Task, target: Target) -> dict[str, Array]:
    """Where the output is no finite number, by the algorithm that computes it."""
    rule, out = rule_for(task, target), dict[str, Array]()
    space = rule.space(task, target)
    arrays, _ = spoiled(task)
    for row in space.sample(np.random.default_rng(1), 300):
        config = space.config(row)
        name = str(config["algorithm"])
        if name not in out:
            program = apply_schedule(build_program(task), rule.schedule(task, target, config))
            out[name] = ~np.isfinite(run_kernel(task, program, target, arrays))
    return out


@pytest.mark.parametrize("task", [CONV, PRODUCT], ids=["conv", "matmul"])
def test_strict_spreads_nothing(task: Task) -> None:
    found = algorithms(task, STRICT)
    assert list(found) == ["direct"]
    np.testing.assert_array_equal(found["direct"], spoiled(task)[1])


@pytest.mark.parametrize("task", [CONV, PRODUCT], ids=["conv", "matmul"])
def test_normal_spreads_within_tiles(task: Task) -> None:
    found, (_, reached) = algorithms(task, NORMAL), spoiled(task)
    assert len(found) > 1
    for name, wrong in found.items():
        assert np.all(wrong[reached]), name
        exact = name in EXACT
        assert np.array_equal(wrong, reached) if exact else wrong.sum() > reached.sum(), name

"""Matrix tiles: products of bfloat16 and bytes on an emulator of AMX."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.program.verify import verify
from autotune.schedule import apply_schedule
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.rules import RULES
from tests.contracts.test_algorithms import bytes_product
from tests.contracts.test_rules import arrays_of, conv
from tests.emulator.tiles import emulated_tiles, with_tiles
from tests.unit.codegen.kernels import assert_close, matmul, run_kernel

RULE = RULES.get("contraction")
TILED = with_tiles(host_target(1))
TASKS = {
    "product": (matmul(37, 64, 40), "amx_bf16"),
    "product of activations": (matmul(21, 48, 37, constant=False), "amx_bf16"),
    "conv": (conv((1, 9, 9, 32), (3, 3, 32, 48), (1, 9, 9, 48), pad=1, residual=True), "amx_bf16"),
    "conv by strides": (
        conv((1, 11, 13, 24), (3, 3, 24, 20), (1, 6, 7, 20), pad=1, strides=(2, 2)), "amx_bf16",
    ),
    "bytes": (bytes_product(), "amx_int8"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "algorithm"), TASKS.values(), ids=TASKS)
def test_x(made: Task, algorithm: str) -> None:
    target = TILED.with_precision("bfloat16")
    space = RULE.space(made, target)
    rows = space.rows(60_000, np.random.default_rng(0))
    own = rows[space.columns(rows)["algorithm"] == algorithm]
    print(len(rows), len(own))
    arrays, want = arrays_of(made)
    for row in own[np.random.default_rng(1).permutation(len(own))[:6]]:
        config = space.config(row)
        print(config)
        program = apply_schedule(build_program(made), RULE.schedule(made, target, config))
        verify(program)
        with emulated_tiles() as tiles:
            got = run_kernel(made, program, target, arrays)
        assert tiles.counts
        assert_close(got, want, 0.01)

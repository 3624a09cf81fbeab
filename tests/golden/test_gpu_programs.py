"""Programs that the rules for GPUs make: a tiled convolution with copies ahead, a product on
tensor cores, one by groups of warps, rows. `pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import pytest

from autotune.program.text import print_program
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.contracts.test_rules import conv
from tests.golden.test_texts import same
from tests.unit.codegen.kernels import matmul, unary

TILE = {"tile_m": 4, "tile_n": 8, "threads_m": 4, "threads_n": 8, "depth": 8, "unroll": 4}
WARPS = {"algorithm": "bf16", "tile_m": 2, "tile_n": 4, "threads_m": 2, "depth": 32}
GROUPS = {"algorithm": "wgmma", "tile_n": 2, "threads_m": 2, "depth": 64, "stages": 2,
          "layout": "swizzled"}  # fmt: skip
CONVOLUTION = conv((1, 8, 8, 16), (3, 3, 16, 64), (1, 8, 8, 64), pad=1, residual=True)
SOFTMAX = unary("softmax", (12, 256), axis=-1)
CASES: dict[str, tuple[Task, dict[str, str | int]]] = {
    "gpu_conv.program": (CONVOLUTION, TILE | {"stages": 3}),
    "gpu_tensor.program": (
        matmul(64, 64, 64),
        WARPS | {"threads_n": 2, "stages": 2, "layout": "swizzled"},
    ),
    "gpu_stream.program": (matmul(128, 192, 64), GROUPS),
    "gpu_rows.program": (SOFTMAX, {"threads": 64, "vector": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_gpu_program(request: pytest.FixtureRequest, name: str) -> None:
    made, wanted = CASES[name]
    arch = "sm_90a" if name == "gpu_stream.program" else "sm_80"
    target = load_target(arch).with_precision("bfloat16")
    rule = rule_for(made, target)
    space = rule.space(made, target)
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = apply_schedule(build_program(made), rule.schedule(made, target, config))
    same(request, name, print_program(program))

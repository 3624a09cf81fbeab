"""Steps for streams and groups of warps: what they make of a small product, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

PRODUCT = """program p
param x: float32[2, 32, 128]
param w: bfloat16[16, 128] constant
param y: float32[2, 32, 16] written
pack w: [128, 16] splits [] order [1, 0] as bfloat16
for b in 2 serial:
  for i in 32 serial:
    for n in 16 serial:
      y[b, i, n] = float32(0.0)
      for k in 128 serial:
        y[b, i, n] sum= mul(x[b, i, k], to_float32(w[n, k]))
"""
MATRIX = {"step": "cast_matrix", "buffer": "x", "tensor": "y"}
ROUNDED = [
    {"step": "fuse", "outer": "x_n0", "inner": "x_n1", "fused": "x_n"},
    {"step": "split", "loop": "x_n", "factor": 64, "outer": "x_b", "inner": "x_t"},
    {"step": "bind", "loop": "x_b", "axis": "block.x"},
    {"step": "bind", "loop": "x_t", "axis": "thread.x"},
]
TILE = [
    {"step": "fuse", "outer": "b", "inner": "i", "fused": "m"},
    {"step": "split", "loop": "m", "factor": 64, "outer": "mb", "inner": "ml"},
    {"step": "split", "loop": "ml", "factor": 16, "outer": "mq", "inner": "mf"},
    {"step": "split", "loop": "n", "factor": 8, "outer": "ni", "inner": "nf"},
    {"step": "reorder", "loops": ["mb", "mq", "mf", "ni", "nf"]},
    {"step": "reorder", "loops": ["mb", "mq", "ni", "mf", "nf"]},
    {"step": "split", "loop": "k", "factor": 64, "outer": "ko", "inner": "ki"},
    {"step": "split", "loop": "ki", "factor": 16, "outer": "km", "inner": "kf"},
    {"step": "cache_write", "buffer": "y", "loops": ["mq", "ni", "mf", "nf"]},
    {"step": "reorder", "loops": ["mq", "km", "ni", "mf", "nf", "kf"]},
]
DEPTH = ["km", "kf"]
SHARED = {
    "step": "shared", "loop": "ko", "buffers": ["x.rows", "w"],
    "axes": [[["mq", "mf"], DEPTH], [["ni", "nf"], DEPTH]], "pads": [0, 0],
}  # fmt: skip
WARPS = [
    {"step": "bind", "loop": "mb", "axis": "block.x"},
    *({"step": "bind", "loop": f"mq{k}", "axis": "warp"} for k in ("_init", "", "_out")),
    *({"step": "unroll", "loops": [f"ni{k}"]} for k in ("_init", "_out", "")),
    {"step": "unroll", "loops": ["km"]},
    {"step": "privatize", "buffer": "y.reg"},
    {"step": "tensorize", "buffer": "y.reg", "loops": ["mf", "nf", "kf"],
     "rows": ["mf_init", "mf_out"], "columns": ["nf_init", "nf_out"]},
]  # fmt: skip
GROUP = {"step": "warpgroup", "loop": "ni"}
STREAM = {"step": "async_pipeline", "loop": "ko", "stages": 2}
WHOLE = [MATRIX, *ROUNDED, *TILE, SHARED, *WARPS, GROUP, STREAM]
Steps = list[dict[str, object]]


def refused(steps: Steps) -> str:
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(parse_program(PRODUCT), schedule_from_json(steps))
    return str(caught.value)


def test_a_product_becomes_a_stream_of_fetches() -> None:
    program = apply_schedule(parse_program(PRODUCT), schedule_from_json(WHOLE))
    verify(program)
    text = print_program(program)
    assert "fetch [64, 64] x.rows.shared[(ko % 2), 0, 0] from x.rows[64*mb, 64*ko]" in text
    assert "fetch [16, 64] w.shared[(ko % 2), 0, 0] from w[0, 64*ko]" in text
    assert "wgmma 2 y.reg[0, 0, 0], x.rows.shared[(ko % 2), 16*mq, 16*km]" in text
    assert "barrier" not in text
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 32, 128)).astype(np.float32)
    w = rng.standard_normal((128, 16)).astype(np.float32)
    want = x.astype(np.float64) @ w
    assert np.max(np.abs(run(program, {"x": x, "w": w}) - want)) < 1e-2 * np.max(want)


def test_rows_of_all_dimensions_become_those_of_a_matrix() -> None:
    program = apply_schedule(parse_program(PRODUCT), schedule_from_json([MATRIX]))
    text = print_program(program)
    assert "x.rows[x_n0, x_n1] = to_bfloat16(x[(x_n0 // 32), (x_n0 % 32), x_n1])" in text
    assert "mul(to_float32(x.rows[32*b + i, k]), to_float32(w[n, k]))" in text


def changed(step: dict[str, object], **fields: object) -> Steps:
    return [{**s, **fields} if s is step else s for s in WHOLE]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{**MATRIX, "buffer": "w"}], "not a float32 input"),
        ([{**MATRIX, "tensor": "z"}], "no sum into z"),
        ([s for s in WHOLE if s is not GROUP], "more than products of four warps"),
        (changed(STREAM, stages=3), "3 stages in 2 iterations"),
        (changed(STREAM, stages=1), "1 stages in 2 iterations"),
        (changed(SHARED, pads=[8, 8]), "rows of x.rows.shared are padded"),
        (changed(GROUP, loop="km"), "alone"),
        (changed(TILE[6], factor=32), "rows of 128 bytes"),
        (changed(TILE[1], factor=32), "four by four"),
    ],
)
def test_what_cannot_be_streamed_is_refused(steps: Steps, words: str) -> None:
    assert words in refused(steps)


def test_operands_that_are_not_rounded_have_no_groups() -> None:
    plain = PRODUCT.replace("to_float32(w[n, k])", "w[n, k]").replace("as bfloat16", "")
    plain = plain.replace("w: bfloat16", "w: float32")
    steps: Steps = [
        {**s, "factor": 8} if s is TILE[7] else s for s in [*TILE, SHARED, *WARPS, GROUP]
    ]
    steps = [{**s, "buffers": ["x", "w"]} if s["step"] == "shared" else s for s in steps]
    with pytest.raises(ScheduleError, match="matrices of bfloat16"):
        apply_schedule(parse_program(plain), schedule_from_json(steps))

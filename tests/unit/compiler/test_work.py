"""What kernels have to do: operations of the chosen algorithm, bytes counted once."""

from __future__ import annotations

import pytest

from autotune.compiler.work import Work, work_of
from autotune.schedule import apply_schedule
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.unit.attentions import attention
from tests.unit.codegen.kernels import node, task, value
from tests.unit.schedule.test_winograd import conv

TARGET = host_target()


def work(case: Task, **params: int | str) -> Work:
    """Of the default config with some params changed."""
    rule = rule_for(case, TARGET)
    space = rule.space(case, TARGET)
    rows = [space.config(r) for r in space.rows(space.raw_size, None)]  # type: ignore[arg-type]
    config = next(c for c in rows if all(c[k] == v for k, v in params.items()))
    schedule = rule.schedule(case, TARGET, config)
    return work_of(case, schedule, apply_schedule(build_program(case), schedule).packs)


def test_direct_code_does_what_the_task_says() -> None:
    case = conv(8, 8, channels=16, filters=16)
    found = work(case, algorithm="direct", vectors=1, lanes=TARGET.lanes())
    assert (found.algorithm, found.flops) == ("direct", task_flops(case))
    assert found.input_bytes == found.output_bytes == 8 * 8 * 16 * 4
    assert found.weight_bytes == (9 * 16 * 16 + 16) * 4


def test_winograd_does_fewer_operations_with_more_weights() -> None:
    case = conv(8, 8, channels=64, filters=64)
    found = work(case, algorithm="winograd4", vectors=1, lanes=TARGET.lanes())
    assert found.algorithm == "winograd4"
    products = 2 * 4 * 36 * 64 * 64
    assert products < found.flops < task_flops(case) * 0.6
    assert found.weight_bytes == (36 * 64 * 64 + 64) * 4


def test_oblong_tiles_are_named_by_both_sides() -> None:
    case = conv(8, 8, channels=16, filters=16)
    found = work(case, algorithm="winograd4x2", vectors=1, lanes=TARGET.lanes())
    assert found.algorithm == "winograd4x2"
    assert found.weight_bytes == (24 * 16 * 16 + 16) * 4


def test_a_gather_reads_the_rows_it_takes() -> None:
    table, ids, out = (50_000, 16), (1, 8), (1, 8, 16)
    case = task(
        [node("gather", "i0 i1", "o0", axis=0)],
        value("i0", table),
        value("i1", ids, "int64"),
        value("o0", out),
    )
    found = work_of(case, (), ())
    assert found.input_bytes == 8 * 16 * 4 + 8 * 8
    assert found.algorithm == "direct"


@pytest.mark.parametrize("op", ["softmax", "reduce_mean"])
def test_every_kind_of_task_has_its_work(op: str) -> None:
    shape = (4, 32) if op == "softmax" else (4,)
    attrs = {"axis": -1} if op == "softmax" else {"axes": (1,), "keepdims": False}
    case = task([node(op, "i0", "o0", **attrs)], value("i0", (4, 32)), value("o0", shape))
    found = work_of(case, (), ())
    assert found.flops == task_flops(case) > 0
    assert found.input_bytes == 4 * 32 * 4


def test_attention_leaves_out_blocks_that_a_causal_mask_hides() -> None:
    case = attention((2,), 64, 128, 16, 16, causal=64)
    whole = work(case, rows=32, keys=128)
    half = work(case, rows=32, keys=64)
    assert (whole.algorithm, whole.flops) == ("attention", task_flops(case))
    assert half.flops == whole.flops
    case = attention((2,), 128, 128, 16, 16, causal=0)
    assert work(case, rows=64, keys=64).flops == task_flops(case) * 3 // 4

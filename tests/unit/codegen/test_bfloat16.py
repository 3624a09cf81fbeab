"""bfloat16 contractions: machine code, its emulation and the interpreter agree."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.codegen import BACKENDS
from autotune.errors import ScheduleError, TargetError
from autotune.machine import Machine
from autotune.measure.execute import NativeExecutor
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.program.text import print_program
from autotune.schedule import STEPS, Schedule, apply_schedule
from autotune.stored import bfloat16_bits, widen_bfloat16
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import node, task, value
from tests.unit.measure import tasks

TARGET = host_target().with_precision("bf16")
CASES = {
    "matmul": tasks.matmul(7, 24, 20),
    "convolution": tasks.conv(6, 8),
    "ragged activations": task(
        [node("matmul", "i0 i1", "o0", transpose_b=True)],
        value("i0", (2, 5, 8)),
        value("i1", (2, 19, 8)),
        value("o0", (2, 5, 19)),
    ),
}


def narrow(task: Task, target: Target) -> Schedule:
    rule = rule_for(task, target)
    items = dict(cost_model.default(task, Machine.of(target), rule).items) | {
        "algorithm": "bf16", "tile_w": 2, "tile_h": 1, "vectors": 1, "unroll": 1, "block": 1,
        "lanes": target.lanes(), "order": "channels_first",
    }  # fmt: skip
    return rule.schedule(task, target, Config(tuple(items.items())))


@pytest.mark.parametrize("name", CASES)
def test_interpreter_stays_within_the_rounding(name: str) -> None:
    task = CASES[name]
    program = apply_schedule(build_program(task), narrow(task, TARGET))
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(task, 3)
    got, wanted = run(program, arrays), evaluate_task(task, arrays)
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert 1e-6 < error < 3e-2


NO_PAIRS = {
    "groups of one channel": task(
        [node("conv2d", "i0 c0", "o0", groups=3)],
        value("i0", (1, 4, 5, 12)),
        value("c0", (2, 2, 4, 3)),
        value("o0", (1, 3, 4, 3)),
    ),
    "a product with itself": task(
        [node("matmul", "i0 i0", "o0", transpose_b=True)],
        value("i0", (3, 9, 16)),
        value("o0", (3, 9, 9)),
    ),
    "zeros that the data lack": task(
        [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
        value("i0", (1, 4, 4, 8)),
        value("c0", (3, 3, 8, 8)),
        value("o0", (1, 4, 4, 8)),
    ),
}


@pytest.mark.parametrize("name", NO_PAIRS)
def test_pairs_are_no_choice_where_data_cannot_be_rounded_in_a_copy(name: str) -> None:
    made = NO_PAIRS[name]
    rule = rule_for(made, TARGET)
    choices = {p.name: p.choices for p in rule.space(made, TARGET).params}["algorithm"]
    assert "bf16" not in choices
    assert "direct" in choices
    apply_schedule(
        build_program(made),
        rule.schedule(made, TARGET, cost_model.default(made, Machine.of(TARGET), rule)),
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("instruction", [True, False])
def test_machine_code_is_right(name: str, instruction: bool) -> None:
    task, target = CASES[name], TARGET
    if not instruction:
        features = target.features.replace("+avx512bf16", "-avx512bf16")
        target = dataclasses.replace(target, features=features)
    executor = NativeExecutor()
    request = MeasureRequest(
        task=task, schedule=narrow(task, target), target=target,
        timing=Timing(min_repeats=1, max_repeats=1, budget_s=0.01),
    )  # fmt: skip
    result = executor.check_and_time(request, executor.build(request))
    assert result.status == Status.OK, result.error
    assert result.max_error > 1e-6


def test_the_instruction_is_used_where_the_target_has_it() -> None:
    target = dataclasses.replace(TARGET, features="+avx512f,+avx512bf16", vector_bytes=64)
    program = apply_schedule(build_program(CASES["matmul"]), narrow(CASES["matmul"], target))
    text = BACKENDS.get("llvm").source(program, target, "k")
    assert "dpbf16ps.512" in text
    other = dataclasses.replace(target, features="+avx512f")
    assert "dpbf16ps" not in BACKENDS.get("llvm").source(program, other, "k")


def test_float32_targets_are_not_offered_bf16() -> None:
    task = CASES["matmul"]
    algorithm = rule_for(task, host_target()).space(task, host_target()).params[0]
    assert "bf16" not in algorithm.choices
    assert "bf16" in rule_for(task, TARGET).space(task, TARGET).params[0].choices


def test_records_of_precisions_do_not_mix() -> None:
    assert TARGET.key != host_target().key
    with pytest.raises(TargetError, match="float32, bf16, f16, tf32 or int8"):
        host_target().with_precision("int3")


def test_dot_takes_two_products_of_one_sum() -> None:
    program = build_program(CASES["matmul"])
    with pytest.raises(ScheduleError, match=r"not \(2, 4, 8\) iterations"):
        STEPS.get("dot")(loop="o0_k").apply(program)
    with pytest.raises(ScheduleError, match="not a float32 input"):
        STEPS.get("cast")(buffer="c0", tensor="o0").apply(program)


def test_rounding_is_to_nearest_even() -> None:
    exact = np.array([1.0, -2.5, 0.0, np.inf, -np.inf], np.float32)
    assert np.array_equal(widen_bfloat16(bfloat16_bits(exact)), exact)
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    assert widen_bfloat16(bfloat16_bits(halves)).tolist() == [1.0, 1 + 2**-6]
    assert np.isnan(widen_bfloat16(bfloat16_bits(np.array([np.nan], np.float32))))[0]

"""Kernels between which tensors are short floats, on an emulated GPU; ptxas takes their PTX."""

from __future__ import annotations

import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.launch import launches
from autotune.program.text import print_program
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.contracts.test_cuda_rules import LAYERS, assembled, grouped, scheduled
from tests.contracts.test_rules import TASKS, batched, conv
from tests.emulator import bank_use, run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.short_tasks import short
from tests.unit.codegen.kernels import assert_close, matmul, node, task, value

SM80 = load_target("sm_80").with_precision("bfloat16")
SM90 = load_target("sm_90a").with_precision("bfloat16")
FLOATS = [n for n, t in TASKS.items() if all(v.type.dtype == "float32" for v in t.values)]
LIMIT = {"bfloat16": 2e-2, "float16": 4e-3}
PAIRS = [(n, "bfloat16") for n in FLOATS]
PAIRS += [(n, "float16") for n in ("conv 3x3 residual", "matmul", "max pool", "softmax")]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_the_default_is_correct(name: str, dtype: str) -> None:
    made = short(TASKS[name], dtype)
    target, arrays = SM80.with_precision(dtype), random_inputs(made, 1)
    rule, want = rule_for(made, target), evaluate_task(made, arrays)
    program = scheduled(rule, made, target, cost_model.default(made, Machine.of(target), rule))
    assert_close(run_emulated(program, target, arrays), want, LIMIT[dtype])


@pytest.mark.parametrize("name", ["matmul", "max pool", "layer_norm"])
def test_the_interpreter_agrees(name: str) -> None:
    made = short(TASKS[name])
    arrays = random_inputs(made, 1)
    assert_close(run(build_program(made), arrays), evaluate_task(made, arrays), 2e-2)


@pytest.mark.parametrize("layout", ["padded", "swizzled"])
@pytest.mark.parametrize("name", ["conv 3x3 residual", "conv 1x1", "matmul", "matmul of inputs"])
def test_tensor_cores_take_them_as_they_are(name: str, layout: str) -> None:
    made = short(TASKS[name])
    arrays, rule = random_inputs(made, 1), rule_for(made, SM80)
    space = rule.space(made, SM80)
    wanted = {"algorithm": "bf16", "tile_n": 2, "depth": 16, "layout": layout}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = scheduled(rule, made, SM80, config)
    assert_close(run_emulated(program, SM80, arrays), evaluate_task(made, arrays), 2e-2)


def rows_of_a_batch() -> Task:
    """Rows of several matrices are those of one."""
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (3, 40, 128)),
        value("c0", (128, 96)),
        value("o0", (3, 40, 96)),
    )


def values_of_attention() -> Task:
    """Softmax times values, which lie by keys."""
    return task(
        [node("matmul", "i0 i1", "o0")],
        value("i0", (2, 9, 24)),
        value("i1", (2, 24, 16)),
        value("o0", (2, 9, 16)),
    )


@pytest.mark.parametrize("given", [
    {"tile_n": 1}, {"tile_n": 2, "layout": "swizzled", "stages": 2},
    {"tile_n": 2, "layout": "swizzled", "depth": 32},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_operands_that_lie_across_are_turned_by_the_load(
    dtype: str, given: dict[str, str | int]
) -> None:
    plain = values_of_attention()
    made = plain if dtype == "float32" else short(plain)
    arrays, rule = random_inputs(made, 1), rule_for(made, SM80)
    space = rule.space(made, SM80)
    wanted = {"algorithm": "bf16", "depth": 16, **given}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = scheduled(rule, made, SM80, config)
    want = evaluate_task(made, arrays)
    bank_use()
    assert_close(run_emulated(program, SM80, arrays), want, 2e-2)
    assert given.get("layout") != "swizzled" or bank_use().matrix_conflicts == 0
    assert_close(run(program, arrays), want, 2e-2)
    assert parse_program(print_program(program)) == program
    assembled(program, SM80)


GROUPED = {
    "matrix": (matmul(200, 128, 96), {"tile_m": 2, "stages": 2}),
    "rows of a batch": (rows_of_a_batch(), {"threads_m": 2, "tile_n": 2, "stages": 2}),
    "conv 1x1": (
        conv((2, 6, 7, 128), (1, 1, 128, 40), (2, 6, 7, 40), residual=True),
        {"stages": 2},
    ),
    "two inputs": (batched(72, 128, 40), {"tile_n": 2, "stages": 2}),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "bfloat16") for name in GROUPED), ("matrix", "float16")]
)
def test_groups_of_warps_fetch_them(name: str, dtype: str) -> None:
    """By one launch: nothing is rounded before."""
    plain, given = GROUPED[name]
    made, target = short(plain, dtype), SM90.with_precision(dtype)
    arrays, rule = random_inputs(made, 1), rule_for(made, target)
    program = scheduled(rule, made, target, grouped(made, target, given))
    want = evaluate_task(made, arrays)
    assert len(launches(program)) == 1
    assert_close(run_emulated(program, target, arrays), want, LIMIT[dtype])
    if name == "rows of a batch":
        assert_close(run(program, arrays), want, LIMIT[dtype])
    assert all(r.spill_bytes == 0 for r in assembled(program, target).values())


@pytest.mark.parametrize("target", [SM80, SM90], ids=lambda t: t.name)
@pytest.mark.parametrize("name", LAYERS)
def test_defaults_of_layers_do_not_spill(name: str, target: Target) -> None:
    made = short(LAYERS[name])
    rule = rule_for(made, target)
    program = scheduled(rule, made, target, cost_model.default(made, Machine.of(target), rule))
    for kernel, report in assembled(program, target).items():
        assert report.spill_bytes == report.stack_bytes == 0, f"{kernel}: {report}"
        assert not report.remarks, f"{kernel}: {report}"

"""Rules for GPUs as CUDA: configs compute the right thing on an emulated GPU, ptxas takes them.

Defaults of layers of real networks keep everything in registers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.program.ir import Program
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule, rule_for
from tests.contracts.test_rules import TASKS, arrays_of, batched, conv, default
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.ptxas import KernelReport, assemble
from tests.unit.codegen.kernels import assert_close, matmul, node, run_kernel, task, unary, value
from tests.unit.codegen.test_int8 import PLAIN as BYTES
from tests.unit.codegen.test_int8 import exact

SM80, SM90 = load_target("sm_80"), load_target("sm_90a")
SHORT = SM80.with_precision("bfloat16")
"""Contractions may use tensor cores."""
RANDOM = 20
"""Configs per rule and target that are assembled, dealt out to the rule's tasks."""
NAMED = [(r, n) for r in RULES.parts() for n, made in TASKS.items() if r.matches(made, SM80)]
each_target = pytest.mark.parametrize("target", [SM80, SM90], ids=lambda t: t.name)
TENSOR = [n for r, n in NAMED if "algorithm" in r.space(TASKS[n], SHORT).names]
"""Tasks whose rule has several algorithms."""
each_pair = pytest.mark.parametrize(
    ("rule", "made"),
    [(rule, TASKS[name]) for rule, name in NAMED],
    ids=[f"{rule.name}: {name}" for rule, name in NAMED],
)
LAYERS = {
    "conv 7x7/2": conv((1, 224, 224, 3), (7, 7, 3, 64), (1, 112, 112, 64), 3, strides=(2, 2)),
    "conv 3x3 64": conv((1, 56, 56, 64), (3, 3, 64, 64), (1, 56, 56, 64), 1, residual=True),
    "conv 3x3 128": conv((16, 28, 28, 128), (3, 3, 128, 128), (16, 28, 28, 128), 1),
    "conv 3x3 512": conv((1, 7, 7, 512), (3, 3, 512, 512), (1, 7, 7, 512), 1, residual=True),
    "conv 1x1": conv((1, 14, 14, 256), (1, 1, 256, 1024), (1, 14, 14, 1024)),
    "depthwise": conv((1, 56, 56, 144), (3, 3, 1, 144), (1, 56, 56, 144), 1, groups=144),
    "matmul 4096": matmul(4096, 4096, 4096),
    "matmul of BERT": matmul(128, 768, 3072),
    "attention": batched(128, 64, 128),
    "softmax": unary("softmax", (12, 128, 128), axis=-1),
    "gelu": unary("gelu", (128, 3072)),
}


def scheduled(rule: Rule, made: Task, target: Target, config: Config) -> Program:
    return apply_schedule(build_program(made), rule.schedule(made, target, config))


@functools.cache
def sampled(rule: Rule, made: Task, target: Target, count: int) -> list[Config]:
    space = rule.space(made, target)
    return [space.config(row) for row in space.sample(np.random.default_rng(0), count)]


def short(made: Task, target: Target) -> list[Target]:
    """The target that may round, where that is a choice."""
    return [target.with_precision("bfloat16")] * (made.op in ("conv2d", "matmul"))


def dealt(rule: Rule, count: int) -> int:
    """How many of a rule's configs one of its tasks gets, at least one."""
    return -(-count // sum(known is rule for known, _ in NAMED))


def assembled(program: Program, target: Target) -> dict[str, KernelReport]:
    reports = assemble(backend_for(target).source(program, target, "kernel"), target.arch)
    assert reports
    return reports


@each_pair
def test_the_default_is_correct(rule: Rule, made: Task) -> None:
    arrays, want = arrays_of(made)
    program = scheduled(rule, made, SM80, default(rule, made, SM80))
    assert_close(run_emulated(program, SM80, arrays), want, 1e-4)


@pytest.mark.parametrize("name", TENSOR)
def test_tensor_cores_round_as_they_may(name: str) -> None:
    made = TASKS[name]
    (arrays, want), rule = arrays_of(made), rule_for(made, SHORT)
    chosen = {c["algorithm"]: c for c in sampled(rule, made, SHORT, 40)}
    for config in chosen.values():
        program = scheduled(rule, made, SHORT, config)
        assert_close(run_emulated(program, SHORT, arrays), want, 2e-2)


GROUPED = (
    {"tile_n": 2, "threads_m": 2, "stages": 3}, {"tile_m": 2, "threads_n": 2, "stages": 2},
    {"threads_m": 2, "tile_n": 4, "stages": 2, "order": "columns_first"},
    {"split": 2, "stages": 2}, {"tile_n": 2, "stages": 2, "band": 2},
)  # fmt: skip
"""Params of products by groups of warps; the others are the least there are."""


def grouped(made: Task, target: Target, given: Mapping[str, str | int]) -> Config:
    """A config of products by groups of warps."""
    space = rule_for(made, target).space(made, target)
    values = {"algorithm": "wgmma", "depth": 64, "layout": "swizzled", **given}
    config = Config(tuple((p.name, values.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    return config


@pytest.mark.parametrize("given", GROUPED, ids=str)
@pytest.mark.parametrize("shape", [(256, 256, 128), (100, 256, 200)], ids=str)
def test_groups_of_warps_multiply_matrices(
    shape: tuple[int, int, int], given: dict[str, str | int]
) -> None:
    """On Hopper, where tiles do and do not divide the product."""
    made, wanted = matmul(*shape), SM90.with_precision("bfloat16")
    (arrays, want), rule = arrays_of(made), rule_for(made, wanted)
    config = grouped(made, wanted, given)
    program = scheduled(rule, made, wanted, config)
    assert_close(run_emulated(program, wanted, arrays), want, 2e-2)
    assert all(r.spill_bytes == 0 for r in assembled(program, wanted).values())


def test_groups_of_warps_multiply_points() -> None:
    """A 1x1 convolution; one of other points than there are is none of theirs."""
    made, wanted = (
        conv((2, 6, 7, 128), (1, 1, 128, 40), (2, 6, 7, 40)),
        SM90.with_precision("bf16"),
    )
    (arrays, want), rule = arrays_of(made), rule_for(made, wanted)
    program = scheduled(rule, made, wanted, grouped(made, wanted, {"stages": 2}))
    assert_close(run_emulated(program, wanted, arrays), want, 2e-2)
    other = conv((2, 6, 7, 128), (1, 1, 128, 40), (2, 8, 9, 40), pad=1)
    assert "wgmma" not in rule.space(other, wanted).params[0].choices


@pytest.mark.parametrize(
    ("data", "given"),
    [("uint8", {"tile_n": 2, "threads_m": 2}), ("int8", {"tile_m": 2, "split": 2}),
     ("uint8", {"tile_n": 4, "stages": 3})],
)  # fmt: skip
def test_groups_of_warps_multiply_bytes_exactly(data: str, given: dict[str, str | int]) -> None:
    made = task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (130, 512), data), value("c0", (512, 72), "int8"),
        value("o0", (130, 72), "int32"),
    )  # fmt: skip
    rule, arrays = rule_for(made, SM90), random_inputs(made, 3)
    config = grouped(made, SM90, {"depth": 128, "stages": 2, **given})
    program = scheduled(rule, made, SM90, config)
    assert np.array_equal(run(program, arrays), exact(made, arrays))
    assert np.array_equal(run_emulated(program, SM90, arrays), exact(made, arrays))
    for report in assembled(program, SM90).values():
        assert report.spill_bytes == 0
        assert not report.remarks
    older = dataclasses.replace(SM90, features="+ptx80")
    choices = rule.space(made, older).params[0].choices
    assert ("wgmma" in choices) == (data == "int8"), "bytes of one kind each, before PTX 8.4"


@pytest.mark.parametrize("algorithm", ["direct", "bf16"])
@pytest.mark.parametrize("order", ["rows_first", "columns_first"])
def test_lines_of_blocks_advance_together(order: str, algorithm: str) -> None:
    made = matmul(128, 32, 64)
    (arrays, want), rule = arrays_of(made), rule_for(made, SHORT)
    space = rule.space(made, SHORT)
    tile = {"tile_m": 1, "tile_n": 2, "depth": 16} if algorithm == "bf16" else {
        "tile_m": 4, "tile_n": 4, "threads_m": 4, "threads_n": 8, "depth": 16,
    }  # fmt: skip
    given = {"algorithm": algorithm, "order": order, "band": 2, **tile}
    config = Config(tuple((p.name, given.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = scheduled(rule, made, SHORT, config)
    assert_close(run_emulated(program, SHORT, arrays), want, 2e-2)


@pytest.mark.parametrize("side", [2, 4])
def test_winograd_is_correct_and_keeps_its_registers(side: int) -> None:
    made = conv((2, 8, 8, 16), (3, 3, 16, 24), (2, 8, 8, 24), 1, residual=True)
    rule = rule_for(made, SM80)
    space = rule.space(made, SM80)
    tile = {"tile_m": 4, "tile_n": 4, "threads_m": 4, "threads_n": 8, "depth": 8}
    wanted = tile | {"algorithm": f"winograd{side}", "unroll": 2, "stages": 2}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    arrays, want = arrays_of(made)
    program = scheduled(rule, made, SM80, config)
    assert_close(run_emulated(program, SM80, arrays), want, 1e-4)
    assert all(r.spill_bytes == 0 for r in assembled(program, SM80).values())
    assert_close(run_kernel(made, program, load_target("opencl"), arrays), want, 1e-4)


def test_tensor_cores_take_halves() -> None:
    made, target = TASKS["conv 3x3 residual"], SM80.with_precision("f16")
    (arrays, want), rule = arrays_of(made), rule_for(made, target)
    chosen = {c["algorithm"]: c for c in sampled(rule, made, target, 40)}
    program = scheduled(rule, made, target, chosen["f16"])
    assert_close(run_emulated(program, target, arrays), want, 4e-3)
    assembled(program, target)


@pytest.mark.parametrize("name", BYTES)
def test_tensor_cores_add_up_bytes_exactly(name: str) -> None:
    made, rule = BYTES[name], rule_for(BYTES[name], SM80)
    space = rule.space(made, SM80)
    tile = {"tile_m": 1, "tile_n": 2, "threads_m": 1, "threads_n": 1, "depth": 32}
    wanted = {"algorithm": "int8", "unroll": 1, "stages": 1, "layout": "swizzled", **tile}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    arrays, program = random_inputs(made, 3), scheduled(rule, made, SM80, config)
    assert np.array_equal(run_emulated(program, SM80, arrays), exact(made, arrays))
    assembled(program, SM80)


@pytest.mark.slow
@each_pair
def test_random_configs_are_correct(rule: Rule, made: Task) -> None:
    arrays, want = arrays_of(made)
    for config in sampled(rule, made, SM80, 6):
        program = scheduled(rule, made, SM80, config)
        assert_close(run_emulated(program, SM80, arrays), want, 1e-4)


@each_target
@pytest.mark.parametrize("name", LAYERS)
def test_defaults_of_layers_do_not_spill(name: str, target: Target) -> None:
    made = LAYERS[name]
    for wanted in (target, *short(made, target)):
        rule = rule_for(made, wanted)
        program = scheduled(rule, made, wanted, default(rule, made, wanted))
        for kernel, report in assembled(program, wanted).items():
            assert report.spill_bytes == report.stack_bytes == 0, f"{kernel}: {report}"
            assert not report.remarks, f"{kernel}: {report}"


@pytest.mark.slow
@each_target
@each_pair
def test_ptxas_accepts_random_configs(rule: Rule, made: Task, target: Target) -> None:
    reports = assembled(scheduled(rule, made, target, default(rule, made, target)), target)
    assert all(report.spill_bytes == 0 for report in reports.values())
    for config in sampled(rule, made, target, dealt(rule, RANDOM)):
        assembled(scheduled(rule, made, target, config), target)


@pytest.mark.slow
@each_target
@pytest.mark.parametrize("name", LAYERS)
def test_ptxas_accepts_random_configs_of_layers(name: str, target: Target) -> None:
    made = LAYERS[name]
    for wanted in (target, *short(made, target)):
        rule = rule_for(made, wanted)
        for config in sampled(rule, made, wanted, 2):
            assembled(scheduled(rule, made, wanted, config), wanted)

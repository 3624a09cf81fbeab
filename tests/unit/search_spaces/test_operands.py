"""Products of two activations: the right operand is packed, or read where it lies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.schedule import apply_schedule
from autotune.schedule.memory.copies import CacheRead
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value


def product(batch: int, points: int, depth: int, channels: int, transposed: bool = False) -> Task:
    right = (batch, channels, depth) if transposed else (batch, depth, channels)
    return task(
        [node("matmul", "i0 i1", "o0", transpose_b=transposed)],
        value("i0", (batch, points, depth)),
        value("i1", right),
        value("o0", (batch, points, channels)),
    )


def host(threads: int = 1) -> Target:
    sizes = {"l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    return dataclasses.replace(host_target(threads), **sizes)


def packs(case: Task, config: Config) -> bool:
    schedule = rule_for(case, host()).schedule(case, host(), config)
    return any(isinstance(step, CacheRead) for step in schedule)


def test_a_few_points_read_the_right_operand_where_it_lies() -> None:
    case = product(4, 128, 64, 128)
    default = cost_model.default(case, Machine.of(host()))
    assert default["weights"] == "plain"
    assert not packs(case, default)


def test_many_points_copy_rows_that_would_evict_each_other() -> None:
    case = product(1, 4096, 512, 1024)
    assert cost_model.default(case, Machine.of(host()))["weights"] == "packed"


@pytest.mark.parametrize(("points", "depth", "channels"), [(128, 64, 16384), (256, 1024, 1024)])
def test_far_rows_are_read_in_order(points: int, depth: int, channels: int) -> None:
    # A part of a row here and one there, from beyond the L2 cache, are waited for one by one.
    case = product(1, points, depth, channels)
    default = cost_model.default(case, Machine.of(host()))
    assert default["order"] == "points_first" or default["weights"] == "packed"


@pytest.mark.parametrize(("points", "depth", "channels"), [(19, 1024, 16900), (64, 512, 16384)])
def test_rows_in_memory_are_gone_through_once(points: int, depth: int, channels: int) -> None:
    # Each tile of points would wait for all of them again.
    case = product(1, points, depth, channels)
    default = cost_model.default(case, Machine.of(host()))
    assert default["order"] != "points_first" or default["weights"] == "packed"


def test_a_transposed_operand_is_always_packed() -> None:
    case = product(2, 16, 32, 48, transposed=True)
    default = cost_model.default(case, Machine.of(host()))
    assert "weights" not in dict(default.items)
    assert packs(case, default)


def test_configs_from_before_the_choice_pack() -> None:
    case = product(4, 128, 64, 128)
    default = cost_model.default(case, Machine.of(host()))
    assert packs(case, Config(items=tuple(i for i in default.items if i[0] != "weights")))


@pytest.mark.parametrize("threads", [1, 2])
def test_plain_operands_with_tails_give_the_product(threads: int) -> None:
    case, on = product(2, 13, 37, 45), host(threads)
    rule, arrays = rule_for(case, on), random_inputs(case, 0)
    space = rule.space(case, on)
    rows = space.rows(5000, np.random.default_rng(0))
    configs = [c for c in map(space.config, rows) if c["weights"] == "plain"]
    for config in configs[:: len(configs) // 6]:
        program = apply_schedule(build_program(case), rule.schedule(case, on, config))
        result = run_kernel(case, program, on, arrays)
        assert_close(result, evaluate_task(case, arrays), 1e-4)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("shape", [(40, 1), (2, 40, 1)])
def test_single_rows_of_a_batch_are_points_of_tiles(
    shape: tuple[int, ...], precision: str
) -> None:
    case = task(
        [node("matmul", "i0 c0", "t0"), node("add", "t0 c1", "o0")],
        value("i0", (*shape, 64)),
        value("c0", (64, 96)),
        value("t0", (*shape, 96)),
        value("c1", (96,)),
        value("o0", (*shape, 96)),
    )
    on = host().with_precision(precision)
    config = cost_model.default(case, Machine.of(on))
    assert config.number("tile_w") * config.number("vectors") >= 12
    arrays = random_inputs(case, 3)
    program = apply_schedule(build_program(case), rule_for(case, on).schedule(case, on, config))
    wanted = evaluate_task(case, arrays)
    error = np.abs(run_kernel(case, program, on, arrays) - wanted).max() / np.abs(wanted).max()
    assert error < (3e-2 if config["algorithm"] == "bf16" else 1e-5)


@pytest.mark.parametrize(("vectors", "points"), [(8, 3), (4, 7)])
def test_what_just_fits_into_registers_is_not_unrolled(vectors: int, points: int) -> None:
    # LLVM mixes the steps, and the sums then lie on the stack: up to 2.7 times as slow.
    case = product(1, 21 * 8, 64, 256)
    on = dataclasses.replace(host(), vector_bytes=64, vector_registers=32)
    rule = rule_for(case, on)
    settled = {"algorithm": "direct", "lanes": 16, "vectors": vectors, "tile_w": points}
    assert cost_model.default(case, Machine.of(on), rule, settled)["unroll"] == 1
    roomy = settled | {"vectors": 4, "tile_w": 5}
    assert cost_model.default(case, Machine.of(on), rule, roomy)["unroll"] > 1

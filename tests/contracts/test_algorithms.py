"""What every algorithm keeps to: right results within its stated error, work, a finite prior."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

import cost_model
from autotune.compiler.work import work_of
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule import Schedule, apply_schedule, schedule_from_json, schedule_to_json
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.amx import Amx
from search_spaces.algorithms.base import (
    ALGORITHMS,
    ON_CPUS,
    Algorithm,
    ContractionAlgorithm,
    algorithm_of,
)
from search_spaces.algorithms.gpu.base import GpuAlgorithm
from search_spaces.algorithms.matrix import Matrix
from search_spaces.cpu.contraction.shape import tiled_contraction
from search_spaces.rules import RULES, rule_for
from tests.contracts.algorithm_tasks import TASKS, pairs
from tests.contracts.test_rules import HOST, arrays_of
from tests.emulator.arm_matrices import emulated_matrices, with_matrices
from tests.emulator.tiles import emulated_tiles, with_tiles
from tests.unit.codegen.kernels import run_kernel

SAMPLED = 3
RULE = RULES.get("contraction")


SHORT = HOST.with_precision("bfloat16")
TARGETS = (HOST, SHORT, with_tiles(SHORT), with_matrices(SHORT), load_target("cortex-m4"))


def machine_of(algorithm: Algorithm) -> AbstractContextManager[object]:
    """What runs its kernels: an emulator where hardware may be missing."""
    if isinstance(algorithm, Matrix):
        return emulated_matrices()
    return emulated_tiles() if isinstance(algorithm, Amx) else nullcontext()


def sampled(
    algorithm: ContractionAlgorithm, made: Task, target: Target
) -> list[tuple[Schedule, Program]]:
    """Schedules of a few configs that chose it, and what they make of the task."""
    space = RULE.space(made, target)
    rows = space.rows(20_000, np.random.default_rng(0))
    own = rows[space.configs(rows)["algorithm"] == algorithm.name]
    assert len(own), "its configs are too rare to be found"
    picked = np.random.default_rng(0).permutation(len(own))[:SAMPLED]
    out = []
    for number in picked:
        schedule = RULE.schedule(made, target, space.config(own[number]))
        out.append((schedule, apply_schedule(build_program(made), schedule)))
    return out


PAIRS = pairs(RULE, ON_CPUS.members(), TASKS, TARGETS)
each_pair = pytest.mark.parametrize(
    ("algorithm", "name", "target"), PAIRS, ids=[f"{a.name}: {name}" for a, name, _ in PAIRS]
)


def test_every_algorithm_has_tasks() -> None:
    without = {a.name for a in ON_CPUS.members()} - {a.name for a, _, _ in PAIRS}
    assert not without, "add tasks that they apply to"


def test_names_and_numbers_differ() -> None:
    found = ON_CPUS.members()
    assert all(ALGORITHMS.get(a.name) is a for a in found)
    assert len({a.code for a in found}) == len({a.rank for a in found}) == len(found)


def test_what_is_not_the_definition_is_published() -> None:
    assert all(a.reference or a.is_direct for a in ON_CPUS.members())


@each_pair
def test_results_are_within_the_stated_error(
    algorithm: ContractionAlgorithm, name: str, target: Target
) -> None:
    made = TASKS[name]
    arrays, want = arrays_of(made)
    for _, program in sampled(algorithm, made, target):
        with machine_of(algorithm):
            got = run_kernel(made, program, target, arrays)
        worst = np.max(np.abs(got.astype(np.float64) - want))
        assert worst <= algorithm.error * np.max(np.abs(want))


@each_pair
def test_its_schedules_are_known_again(
    algorithm: ContractionAlgorithm, name: str, target: Target
) -> None:
    made = TASKS[name]
    for schedule, program in sampled(algorithm, made, target):
        logged = schedule_from_json(schedule_to_json(schedule))
        found, label = algorithm_of(logged)
        assert label == found.label(logged) != ""
        assert found is algorithm or not min_side(made) > 1  # of one row: by its other side
        work = work_of(made, logged, program.packs)
        assert work.algorithm == label
        assert work.flops > 0
        assert work.flops == task_flops(made) or not algorithm.is_direct


@each_pair
@pytest.mark.parametrize("threads", [1, 2])
def test_the_prior_is_finite(
    algorithm: ContractionAlgorithm, name: str, target: Target, threads: int
) -> None:
    made, target = TASKS[name], target.with_threads(threads)
    space, c = RULE.space(made, target), tiled_contraction(made)
    rows = space.rows(2_000, np.random.default_rng(0))
    configs = space.configs(rows)
    own = {k: v[configs["algorithm"] == algorithm.name] for k, v in configs.items()}
    cycles = algorithm.cycles(made, c, Machine.of(target), own)
    assert np.isfinite(cycles).all()
    assert (cycles > 0).all()
    assert 0 < algorithm.prefetch_gain(c, Machine.of(target)) < 2
    assert 0 < algorithm.layout_share <= 1


@each_pair
def test_its_configs_are_valid_by_its_own_word(
    algorithm: ContractionAlgorithm, name: str, target: Target
) -> None:
    made = TASKS[name]
    space, c = RULE.space(made, target), tiled_contraction(made)
    configs = space.configs(space.rows(2_000, np.random.default_rng(0)))
    own = {k: v[configs["algorithm"] == algorithm.name] for k, v in configs.items()}
    assert algorithm.valid(c, target, own).all()
    assert set(own["block"]) <= {1, *algorithm.blocks(c, target)}


def test_strict_accuracy_leaves_only_direct_code() -> None:
    target = HOST.with_accuracy("strict")
    for name in {name for _, name, _ in PAIRS}:
        found = ON_CPUS.applicable(TASKS[name], tiled_contraction(TASKS[name]), target)
        assert all(a.is_direct for a in found)
        assert found


def min_side(made: Task) -> int:
    """The shorter side of the anchor's window; 2 of a product."""
    anchor = made.nodes[made.anchor]
    return 2 if anchor.op != "conv2d" else min(made.value(anchor.inputs[1]).type.shape[:2])


OTHERS = [a for a in ALGORITHMS.parts() if not isinstance(a, (ContractionAlgorithm, GpuAlgorithm))]
"""Algorithms that a rule of their own has."""


@pytest.mark.parametrize("algorithm", OTHERS, ids=lambda a: a.name)
def test_an_algorithm_with_a_rule_of_its_own_is_right_and_known_again(
    algorithm: Algorithm,
) -> None:
    found = 0
    for made in (t for t in TASKS.values() if len(t.nodes) > 1):
        rule = rule_for(made, HOST)
        schedule = rule.schedule(made, HOST, cost_model.default(made, Machine.of(HOST), rule))
        logged = schedule_from_json(schedule_to_json(schedule))
        if algorithm_of(logged)[0] is not algorithm:
            continue
        found += 1
        program = apply_schedule(build_program(made), logged)
        assert 0 < work_of(made, logged, program.packs).flops <= task_flops(made)
        arrays, want = arrays_of(made)
        worst = np.max(np.abs(run_kernel(made, program, HOST, arrays).astype(np.float64) - want))
        assert worst <= algorithm.error * np.max(np.abs(want))
    assert found, "add tasks that its rule matches"
    assert algorithm.reference

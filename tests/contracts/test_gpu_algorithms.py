"""What every algorithm on GPUs keeps to: right results within its stated error, a finite prior."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.work import work_of
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule import Schedule, apply_schedule, schedule_from_json, schedule_to_json
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, algorithm_of
from search_spaces.algorithms.gpu.base import ON_GPUS, GpuAlgorithm
from search_spaces.cpu.contraction.shape import contraction_of
from search_spaces.rules import RULES
from search_spaces.space import Rows, Space
from tests.contracts.algorithm_tasks import GPU_TASKS, pairs
from tests.contracts.test_rules import arrays_of
from tests.emulator import run_emulated

DRAWN = 50_000
"""Choices that an algorithm's configs are looked for among."""
RULE = RULES.get("gpu_contraction")
SM80, SM90 = load_target("sm_80"), load_target("sm_90a")
PRECISIONS = ("bfloat16", "float16", "tf32")
TARGETS = [SM80, *(t.with_precision(p) for t in (SM80, SM90) for p in PRECISIONS)]
PAIRS = pairs(RULE, ON_GPUS.members(), GPU_TASKS, TARGETS)
each_pair = pytest.mark.parametrize(
    ("algorithm", "name", "target"), PAIRS, ids=[f"{a.name}: {name}" for a, name, _ in PAIRS]
)


def configs(algorithm: GpuAlgorithm, space: Space) -> Rows:
    """Valid configs that chose it."""
    rng, params = np.random.default_rng(0), space.params
    drawn = rng.integers(0, [len(p.choices) for p in params], (DRAWN, len(params)))
    drawn[:, space.names.index("algorithm")] = params[0].choices.index(algorithm.choice)
    own = drawn[space.valid(drawn)]
    assert len(own), "its configs are too rare to be found"
    return own


def scheduled(algorithm: GpuAlgorithm, made: Task, target: Target) -> tuple[Schedule, Program]:
    """The schedule of a config that chose it, and what it makes of the task."""
    space = RULE.space(made, target)
    config = space.config(configs(algorithm, space)[0])
    assert ON_GPUS.chosen_by(config) is algorithm
    schedule = RULE.schedule(made, target, config)
    return schedule, apply_schedule(build_program(made), schedule)


def test_every_algorithm_has_tasks() -> None:
    assert {a.name for a in ON_GPUS.members()} == {a.name for a, _, _ in PAIRS}, (
        "add tasks of its own"
    )


def test_names_and_places_differ() -> None:
    found = ON_GPUS.members()
    assert all(a.name == f"gpu_{a.choice}" and ALGORITHMS.get(a.name) is a for a in found)
    assert len({a.rank for a in found}) == len(found)


def test_what_is_not_the_definition_is_published() -> None:
    assert all(a.reference or a.is_direct for a in ON_GPUS.members())


@each_pair
def test_results_are_within_the_stated_error(
    algorithm: GpuAlgorithm, name: str, target: Target
) -> None:
    made = GPU_TASKS[name]
    arrays, want = arrays_of(made)
    _, program = scheduled(algorithm, made, target)
    got = run_emulated(program, target, arrays)
    worst = np.max(np.abs(got.astype(np.float64) - want))
    assert worst <= algorithm.error * np.max(np.abs(want))


@each_pair
def test_its_schedules_are_known_again(algorithm: GpuAlgorithm, name: str, target: Target) -> None:
    made = GPU_TASKS[name]
    schedule, program = scheduled(algorithm, made, target)
    logged = schedule_from_json(schedule_to_json(schedule))
    found, label = algorithm_of(logged)
    assert found is algorithm
    work = work_of(made, logged, program.packs)
    assert work.algorithm == label != ""
    assert work.flops > 0
    assert work.flops == task_flops(made) or not algorithm.is_direct


@each_pair
def test_its_prior_is_finite_and_its_configs_valid_by_its_own_word(
    algorithm: GpuAlgorithm, name: str, target: Target
) -> None:
    made = GPU_TASKS[name]
    space, c = RULE.space(made, target), contraction_of(made)
    own = space.configs(configs(algorithm, space))
    assert algorithm.valid(c, own).all()
    assert set(own["depth"]) <= set(algorithm.depths(c))
    assert set(own["layout"]) <= set(algorithm.layouts)
    cycles = algorithm.cycles(made, c, Machine.of(target), own)
    assert np.isfinite(cycles).all()
    assert (cycles > 0).all()
    assert (algorithm.blocks(own).shared_bytes <= target.shared_bytes).all()
    assert 0 < algorithm.layout_share <= 1


def test_strict_accuracy_leaves_only_direct_code() -> None:
    strict = SM80.with_accuracy("strict")
    for made in GPU_TASKS.values():
        found = ON_GPUS.applicable(made, contraction_of(made), strict)
        assert found
        assert all(a.is_direct for a in found)

"""What every algorithm keeps to: right results within its stated error, work, a finite prior."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

from autotune.compiler.work import work_of
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule import Schedule, apply_schedule, schedule_from_json, schedule_to_json
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.amx import Amx
from search_spaces.algorithms.base import (
    ALGORITHMS,
    ContractionAlgorithm,
    algorithm_of,
    applicable,
    of_contractions,
)
from search_spaces.cpu.contraction.shape import tiled_contraction
from search_spaces.rules import RULES
from tests.contracts.test_rules import CPU_TASKS, HOST, arrays_of, conv
from tests.emulator.tiles import emulated_tiles, with_tiles
from tests.unit.codegen.kernels import matmul, node, run_kernel, task, value

SAMPLED = 3
RULE = RULES.get("contraction")


def bytes_product() -> Task:
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (9, 16), "uint8"),
        value("c0", (16, 24), "int8"),
        value("o0", (9, 24), "int32"),
    )


TASKS = CPU_TASKS | {
    "conv of many": conv((1, 14, 14, 32), (3, 3, 32, 48), (1, 14, 14, 48), pad=1),
    "conv of fives": conv((1, 15, 15, 16), (3, 3, 16, 32), (1, 15, 15, 32), pad=1),
    "conv of sixes": conv((1, 12, 12, 16), (3, 3, 16, 32), (1, 12, 12, 32), pad=1),
    "product of many": matmul(64, 128, 128),
    "product of bytes": bytes_product(),
}
SHORT = HOST.with_precision("bfloat16")


TILED = with_tiles(SHORT)


def target_of(algorithm: ContractionAlgorithm) -> Target:
    if isinstance(algorithm, Amx):
        return TILED
    return SHORT if algorithm.name == "bf16" else HOST


def machine_of(algorithm: ContractionAlgorithm) -> AbstractContextManager[object]:
    """What runs its kernels: an emulator where hardware may be missing."""
    return emulated_tiles() if isinstance(algorithm, Amx) else nullcontext()


def tasks_of(algorithm: ContractionAlgorithm) -> list[str]:
    """Names of the tasks that it applies to, as far as these are contractions."""
    target = target_of(algorithm)
    return [
        name
        for name, made in TASKS.items()
        if RULE.matches(made, target)
        and algorithm in applicable(made, tiled_contraction(made), target)
    ]


def sampled(algorithm: ContractionAlgorithm, made: Task) -> list[tuple[Schedule, Program]]:
    """Schedules of a few configs that chose it, and what they make of the task."""
    target = target_of(algorithm)
    space = RULE.space(made, target)
    rows = space.rows(20_000, np.random.default_rng(0))
    own = rows[space.columns(rows)["algorithm"] == algorithm.name]
    assert len(own), "its configs are too rare to be found"
    picked = np.random.default_rng(0).permutation(len(own))[:SAMPLED]
    out = []
    for number in picked:
        schedule = RULE.schedule(made, target, space.config(own[number]))
        out.append((schedule, apply_schedule(build_program(made), schedule)))
    return out


PAIRS = [(a, name) for a in of_contractions() for name in tasks_of(a)]
each_pair = pytest.mark.parametrize(
    ("algorithm", "name"), PAIRS, ids=[f"{a.name}: {name}" for a, name in PAIRS]
)


def test_every_algorithm_has_tasks() -> None:
    without = {a.name for a in of_contractions()} - {a.name for a, _ in PAIRS}
    assert not without, "add tasks that they apply to"


def test_names_and_numbers_differ() -> None:
    found = of_contractions()
    assert all(ALGORITHMS.get(name).name == name for name in ALGORITHMS)
    assert len({a.code for a in found}) == len({a.rank for a in found}) == len(found)


def test_what_is_not_the_definition_is_published() -> None:
    assert all(a.reference or a.is_direct for a in of_contractions())


@each_pair
def test_results_are_within_the_stated_error(algorithm: ContractionAlgorithm, name: str) -> None:
    made = TASKS[name]
    arrays, want = arrays_of(made)
    for _, program in sampled(algorithm, made):
        with machine_of(algorithm):
            got = run_kernel(made, program, target_of(algorithm), arrays)
        worst = np.max(np.abs(got.astype(np.float64) - want))
        assert worst <= algorithm.error * np.max(np.abs(want))


@each_pair
def test_its_schedules_are_known_again(algorithm: ContractionAlgorithm, name: str) -> None:
    made = TASKS[name]
    for schedule, program in sampled(algorithm, made):
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
def test_the_prior_is_finite(algorithm: ContractionAlgorithm, name: str, threads: int) -> None:
    made, target = TASKS[name], target_of(algorithm).with_threads(threads)
    space, c = RULE.space(made, target), tiled_contraction(made)
    rows = space.rows(2_000, np.random.default_rng(0))
    columns = space.columns(rows)
    own = {k: v[columns["algorithm"] == algorithm.name] for k, v in columns.items()}
    cycles = algorithm.cycles(made, c, Machine.of(target), own)
    assert np.isfinite(cycles).all()
    assert (cycles > 0).all()
    assert 0 < algorithm.prefetch_gain(c, target) < 2
    assert 0 < algorithm.layout_share <= 1


@each_pair
def test_its_configs_are_valid_by_its_own_word(algorithm: ContractionAlgorithm, name: str) -> None:
    made, target = TASKS[name], target_of(algorithm)
    space, c = RULE.space(made, target), tiled_contraction(made)
    columns = space.columns(space.rows(2_000, np.random.default_rng(0)))
    own = {k: v[columns["algorithm"] == algorithm.name] for k, v in columns.items()}
    assert algorithm.valid(c, target, own).all()
    assert set(own["block"]) <= {1, *algorithm.blocks(c, target)}


def test_strict_accuracy_leaves_only_direct_code() -> None:
    target = HOST.with_accuracy("strict")
    for name in {name for _, name in PAIRS}:
        found = applicable(TASKS[name], tiled_contraction(TASKS[name]), target)
        assert all(a.is_direct for a in found)
        assert found


def min_side(made: Task) -> int:
    """The shorter side of the anchor's window; 2 of a product."""
    anchor = made.nodes[made.anchor]
    return 2 if anchor.op != "conv2d" else min(made.value(anchor.inputs[1]).type.shape[:2])

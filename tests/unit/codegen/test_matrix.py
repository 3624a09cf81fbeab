"""Products of small matrices (Arm's bfmmla, smmla, usmmla): on an emulator, and under qemu."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import cost_model
from autotune.codegen.llvm.backend import LlvmBackend
from autotune.errors import BuildError, ScheduleError
from autotune.machine import Machine
from autotune.measure.execute import build, make_case
from autotune.measure.types import MeasureRequest
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule
from autotune.schedule.memory.matrix_dot import MatrixDot
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, ContractionAlgorithm
from search_spaces.cpu.contraction.shape import tiled_contraction
from search_spaces.params import Config
from search_spaces.rules import RULES
from tests.contracts.algorithm_tasks import bytes_product
from tests.contracts.test_rules import conv
from tests.emulator.arm_matrices import emulated_matrices, with_matrices
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.needs import needs
from tests.unit.codegen.kernels import assert_close, matmul, run_kernel
from tests.unit.rpc_server.emulated import run_emulated

RULE = RULES.get("contraction")
HERE = with_matrices(host_target(1)).with_precision("bfloat16")
ARM = load_target("neoverse-v1").with_precision("bfloat16")


def config_of(algorithm: str, vectors: int, width: int, height: int = 1) -> Config:
    """A tile of so many vectors of channels, points and rows."""
    items = {
        "algorithm": algorithm, "lanes": 4, "vectors": vectors, "tile_w": width,
        "tile_h": height, "order": "channels_first", "unroll": 1, "block": 1, "prefetch": "none",
    }  # fmt: skip
    return Config(tuple(items.items()))


def program_of(made: Task, config: Config, target: Target) -> Program:
    program = apply_schedule(build_program(made), RULE.schedule(made, target, config))
    verify(program)
    return program


@st.composite
def tiled(draw: st.DrawFn) -> tuple[Task, Config]:
    """A product or convolution of any size, and a tile that it can have."""
    algorithm = draw(st.sampled_from(("matrix_bf16", "matrix_int8")))
    groups, points, filters = (draw(st.integers(*r)) for r in ((1, 6), (2, 20), (1, 20)))
    if algorithm == "matrix_int8":
        made = bytes_product(points, 8 * groups, filters)
    elif draw(st.booleans()):
        made = matmul(points, 4 * groups, filters)
    else:
        shape = (1, 5, points)
        made = conv((*shape, 4 * groups), (3, 3, 4 * groups, filters), (*shape, filters), pad=1)
    height = draw(st.integers(1, 2))
    config = config_of(algorithm, draw(st.integers(1, 3)), 2 * draw(st.integers(1, 4)), height)
    assume(RULE.space(made, HERE).contains(config))
    return made, config


@given(tiled(), st.sampled_from((1, 2)))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_any_tile_of_any_shape_is_right(case: tuple[Task, Config], threads: int) -> None:
    made, config = case
    target = HERE.with_threads(threads)
    arrays = random_inputs(made, 3)
    with emulated_matrices() as counts:
        got = run_kernel(made, program_of(made, config, target), target, arrays)
    assert counts["bfmmla" if config["algorithm"] == "matrix_bf16" else "usmmla"]
    assert_close(got, evaluate_task(made, arrays), 2.0**-7)


def test_the_interpreter_runs_them_as_loops() -> None:
    made = matmul(7, 16, 18)
    program = program_of(made, config_of("matrix_bf16", 2, 4), ARM)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(made, 0)
    assert_close(run(program, arrays), evaluate_task(made, arrays), 2.0**-7)


@needs("qemu", "aarch64-cc")
@pytest.mark.parametrize(
    ("made", "algorithm", "instruction"),
    [
        (bytes_product(9, 32, 22), "matrix_int8", "neon.usmmla"),
        (matmul(13, 24, 23), "matrix_bf16", "neon.bfmmla"),
    ],
)
def test_the_processor_computes_what_numpy_does(
    made: Task, algorithm: str, instruction: str, tmp_path: Path
) -> None:
    config = config_of(algorithm, 2, 4)
    assert instruction in LlvmBackend().source(program_of(made, config, ARM), ARM, "kernel")
    schedule = RULE.schedule(made, ARM, config)
    request = MeasureRequest(task=made, schedule=schedule, target=ARM, seed=5)
    case = make_case(made, request.seed)
    run_emulated(request, build(request), case, tmp_path)
    arrays = [case.arrays[name].astype(np.float64) for name in ("i0", "c0")]
    expected = arrays[0] @ arrays[1]
    found = ALGORITHMS.get(algorithm)
    worst = np.max(np.abs(case.output.view - expected))
    assert worst <= found.error * np.max(np.abs(expected))


@pytest.mark.parametrize(
    ("made", "name"),
    [(bytes_product(64, 256, 64), "matrix_int8"), (matmul(64, 256, 64), "matrix_bf16")],
)
def test_the_prior_takes_them_where_they_are(made: Task, name: str) -> None:
    assert cost_model.default(made, Machine.of(ARM), RULE)["algorithm"] == name
    older = dataclasses.replace(ARM, features="+neon,+fullfp16,+dotprod")
    found = ALGORITHMS.get(name)
    assert isinstance(found, ContractionAlgorithm)
    assert not found.applies(made, tiled_contraction(made), older)


def test_a_target_without_the_instruction_is_refused() -> None:
    made = matmul(8, 16, 8)
    program = program_of(made, config_of("matrix_bf16", 1, 4), ARM)
    lacking = dataclasses.replace(ARM, features="+neon,+i8mm")
    with pytest.raises(BuildError, match="no products of matrices of bfloat16 and bfloat16"):
        LlvmBackend().source(program, lacking, "kernel")


@pytest.mark.parametrize(
    "loops", [("at", "member"), ("member", "at", "group"), ("strip", "at", "member")]
)
def test_only_a_nest_of_such_loops_is_one(loops: tuple[str, ...]) -> None:
    made = matmul(8, 16, 8)
    steps = RULE.schedule(made, ARM, config_of("matrix_bf16", 1, 4))
    before = steps[: next(i for i, s in enumerate(steps) if isinstance(s, MatrixDot))]
    with pytest.raises(ScheduleError, match=r"loops of rows, lanes|in this order|hold a dot"):
        MatrixDot(loops=loops).apply(apply_schedule(build_program(made), before))

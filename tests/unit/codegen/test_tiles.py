"""Matrix tiles (Intel AMX): code on an emulator of the instructions; what refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autotune import tile_permission
from autotune.codegen import loader
from autotune.codegen.llvm import backend
from autotune.codegen.llvm.binding import binding
from autotune.errors import BuildError, ScheduleError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule
from autotune.schedule.memory.tile_dot import TileDot
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.algorithms.amx import Amx
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.cpu.contraction.shape import tiled_contraction
from search_spaces.cpu.contraction.tiles import ORDERS
from search_spaces.params import Config
from search_spaces.rules import RULES
from tests.contracts.test_rules import conv
from tests.emulator.tiles import emulated_tiles, with_tiles
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import assert_close, matmul, node, run_kernel, task, value

RULE = RULES.get("contraction")
TILED = with_tiles(host_target(1)).with_precision("bfloat16")
INTEL = with_tiles(load_target("x86-64-v4")).with_precision("bfloat16")


def config_of(
    made: Task,
    algorithm: str,
    vectors: int,
    width: int,
    height: int = 1,
    *,
    order: str = "channels_first",
) -> Config:
    """A tile of so many vectors of channels, points and rows."""
    plain = tiled_contraction(made).plain
    items = {
        "algorithm": algorithm, "lanes": 16, "vectors": vectors, "tile_w": width,
        "tile_h": height, "order": order, "unroll": 1, "block": 1, "prefetch": "none",
    }  # fmt: skip
    return Config((*items.items(), *([("weights", "packed")] if plain else [])))


def program_of(made: Task, config: Config, target: Target) -> Program:
    program = apply_schedule(build_program(made), RULE.schedule(made, target, config))
    verify(program)
    return program


def bytes_conv(height: int, channels: int, filters: int) -> Task:
    return task(
        [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
        value("i0", (1, height, 9, channels), "uint8", ((0, 0), (1, 1), (1, 1), (0, 0))),
        value("c0", (3, 3, channels, filters), "int8"),
        value("o0", (1, height, 9, filters), "int32"),
    )


@st.composite
def tiled(draw: st.DrawFn) -> tuple[Task, Config]:
    """A product or convolution of any size, and a tile that it can have."""
    algorithm = draw(st.sampled_from(("amx_bf16", "amx_int8")))
    groups = draw(st.integers(2, 20))
    points, filters = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    if algorithm == "amx_int8":
        made = bytes_conv(draw(st.integers(1, 6)), 4 * groups, filters)
    elif draw(st.booleans()):
        made = matmul(points, 2 * groups, filters, constant=draw(st.booleans()))
    else:
        width = draw(st.integers(3, 20))
        shape = (1, 5, width)
        made = conv((*shape, 2 * groups), (3, 3, 2 * groups, filters), (*shape, filters), pad=1)
    c = tiled_contraction(made)
    found = ALGORITHMS.get(algorithm)
    assert isinstance(found, Amx)
    width = draw(st.sampled_from(sorted(found.widths(c, INTEL))))
    vectors, height = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    order = draw(st.sampled_from(ORDERS))
    config = config_of(made, algorithm, vectors, width, height, order=order)
    columns = {name: np.array([choice]) for name, choice in config.items}
    assume(found.applies(made, c, INTEL) and found.valid(c, INTEL, columns)[0])
    return made, config


@given(tiled(), st.sampled_from((1, 2)))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_any_tile_of_any_shape_is_right(case: tuple[Task, Config], threads: int) -> None:
    made, config = case
    target = TILED.with_threads(threads)
    arrays = random_inputs(made, 3)
    with emulated_tiles() as tiles:
        got = run_kernel(made, program_of(made, config, target), target, arrays)
    assert tiles.counts["tdpbf16ps" if config["algorithm"] == "amx_bf16" else "tdpbusd"]
    assert_close(got, evaluate_task(made, arrays), 2.0**-7)


def test_the_interpreter_runs_tiles_as_loops() -> None:
    made = matmul(7, 16, 18)
    program = program_of(made, config_of(made, "amx_bf16", 2, 6), INTEL)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(made, 0)
    assert_close(run(program, arrays), evaluate_task(made, arrays), 2.0**-7)


def test_operands_are_loaded_once_for_four_products() -> None:
    made = matmul(64, 64, 64)
    with emulated_tiles() as tiles:
        program = program_of(made, config_of(made, "amx_bf16", 2, 32), TILED)
        run_kernel(made, program, TILED, random_inputs(made, 0))
    steps = 2 * (64 // 32) ** 3  # of two calls
    assert tiles.counts == {
        "ldtilecfg": 2, "tilerelease": 2, "tilezero": 32, "load": 4 * steps,
        "tdpbf16ps": 4 * steps, "store": 32,
    }  # fmt: skip


def test_shapes_of_a_ragged_end_are_set_for_it_alone() -> None:
    made = matmul(37, 64, 16)
    with emulated_tiles() as tiles:
        program = program_of(made, config_of(made, "amx_bf16", 1, 16), TILED)
        run_kernel(made, program, TILED, random_inputs(made, 0))
    assert tiles.counts["ldtilecfg"] == 2 * 3, "the kernel's, the end's, the kernel's again"


def test_real_code_has_the_instructions() -> None:
    made = matmul(64, 64, 64)
    text = backend.LlvmBackend().source(
        program_of(made, config_of(made, "amx_bf16", 2, 32), INTEL), INTEL, "kernel"
    )
    machine = backend.target_machine(INTEL.triple, INTEL.cpu, INTEL.features)
    assembly = machine.emit_assembly(binding().parse_assembly(text))
    for name in ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"):
        assert f"\t{name}" in assembly


# ------------------------------------------------------------------------------------ what refuses


def test_a_target_without_the_instruction_is_refused() -> None:
    made = matmul(64, 64, 64)
    lacking = dataclasses.replace(INTEL, features=INTEL.features.replace(",+amx-bf16", ""))
    program = program_of(made, config_of(made, "amx_bf16", 2, 32), INTEL)
    with pytest.raises(BuildError, match="no matrix tiles of bfloat16 and bfloat16"):
        backend.LlvmBackend().source(program, lacking, "kernel")
    assert not ALGORITHMS.get("amx_bf16").applies(made, tiled_contraction(made), lacking)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("vectors", "width", "reason"), [(3, 32, "11 matrix tiles are needed"), (1, 64, "9 matrix")]
)
def test_more_tiles_than_there_are_are_refused(vectors: int, width: int, reason: str) -> None:
    made = matmul(64, 64, 64)
    program = program_of(made, config_of(made, "amx_bf16", vectors, width), INTEL)
    with pytest.raises(BuildError, match=reason):
        backend.LlvmBackend().source(program, INTEL, "kernel")


@pytest.mark.parametrize(
    "loops", [("at", "lane"), ("lane", "at", "group"), ("vector", "at", "lane")]
)
def test_only_a_nest_of_a_tile_s_loops_is_one(loops: tuple[str, ...]) -> None:
    made = matmul(64, 64, 64)
    steps = RULE.schedule(made, INTEL, config_of(made, "amx_bf16", 2, 32))
    before = steps[: next(i for i, s in enumerate(steps) if isinstance(s, TileDot))]
    with pytest.raises(
        ScheduleError, match=r"loops of rows, lanes|in this order|do not hold a dot"
    ):
        TileDot(loops=loops).apply(apply_schedule(build_program(made), before))


def test_code_with_tiles_is_not_loaded_where_the_system_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = matmul(16, 64, 16)
    built = backend.LlvmBackend().build(
        program_of(made, config_of(made, "amx_bf16", 1, 16), INTEL), INTEL, "kernel"
    )
    monkeypatch.setattr(tile_permission, "request", lambda: "a person says no")
    with pytest.raises(BuildError, match="no matrix tiles here: a person says no; compile for a"):
        loader.load([built.code], INTEL)


def test_code_without_tiles_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, here = matmul(16, 64, 16), host_target()
    built = backend.LlvmBackend().build(build_program(made), here, "kernel")
    monkeypatch.setattr(tile_permission, "request", lambda: pytest.fail("asked"))
    loader.load([built.code], here)


def test_a_window_s_columns_are_one_run_where_they_lie_side_by_side() -> None:
    """Of few channels: 7 taps of 4 bytes are summed at a time, not one."""
    made = task(
        [node("conv2d", "i0 c0", "o0", strides=(2, 2))],
        value("i0", (1, 11, 19, 4), "uint8"),
        value("c0", (7, 7, 4, 24), "int8"),
        value("o0", (1, 3, 7, 24), "int32"),
    )
    with emulated_tiles() as tiles:
        program = program_of(made, config_of(made, "amx_int8", 2, 7), TILED)
        got = run_kernel(made, program, TILED, arrays := random_inputs(made, 0))
    assert tiles.counts["tdpbusd"] == 2 * 7 * 3 * 2, "calls, rows of the window, rows, vectors"
    assert_close(got, evaluate_task(made, arrays))

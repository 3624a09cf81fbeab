"""Contractions of bytes: machine code, its emulations, the interpreter and numpy agree exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.codegen import BACKENDS
from autotune.codegen.llvm.value import unrounded
from autotune.machine import Machine
from autotune.measure.execute import NativeExecutor
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.program.ir import Const, Load, fn
from autotune.program.text import print_program
from autotune.schedule import Schedule, apply_schedule
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.emulator.byte_dots import emulated_byte_dots
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import node, run_kernel, task, value

TARGET = host_target()
PLAIN = {
    "matmul": task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (7, 24), "uint8"),
        value("c0", (24, 20), "int8"),
        value("o0", (7, 20), "int32"),
    ),
    "transposed": task(
        [node("matmul", "i0 c0", "o0", transpose_b=True)],
        value("i0", (3, 8), "uint8"),
        value("c0", (18, 8), "int8"),
        value("o0", (3, 18), "int32"),
    ),
    "convolution": task(
        [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1), strides=(2, 2))],
        value("i0", (1, 6, 5, 8), "uint8", ((0, 0), (1, 1), (1, 1), (0, 0))),
        value("c0", (3, 3, 8, 33), "int8"),
        value("o0", (1, 3, 3, 33), "int32"),
    ),
    "groups": task(
        [node("conv2d", "i0 c0", "o0", groups=2)],
        value("i0", (1, 4, 4, 16), "uint8"),
        value("c0", (2, 2, 8, 24), "int8"),
        value("o0", (1, 3, 3, 24), "int32"),
    ),
}
REQUANTISED = task(
    [
        node("conv2d", "i0 c0", "t0"),
        node("to_float32", "t0", "t1"),
        node("mul", "t1 c1", "t2"),
        node("add", "t2 c2", "t3"),
        node("to_float32", "i1", "t4"),
        node("mul", "t4 c3", "t5"),
        node("add", "t3 t5", "t6"),
        node("round", "t6", "t7"),
        node("clip", "t7", "t8", min=0, max=255),
        node("to_uint8", "t8", "o0"),
    ],
    value("i0", (1, 5, 6, 12), "uint8"),
    value("c0", (1, 1, 12, 40), "int8"),
    value("c1", (40,)),
    value("c2", (40,)),
    value("i1", (1, 5, 6, 40), "uint8"),
    value("c3", (1,)),
    *(value(f"t{n}", (1, 5, 6, 40), "int32" if n == 0 else "float32") for n in range(4)),
    *(value(f"t{n}", (1, 5, 6, 40)) for n in range(4, 9)),
    value("o0", (1, 5, 6, 40), "uint8"),
)


def schedule(task: Task, target: Target) -> Schedule:
    rule = rule_for(task, target)
    assert rule.name == "contraction"
    items = dict(cost_model.default(task, Machine.of(target), rule).items) | {
        "tile_w": 2, "tile_h": 1, "vectors": 1, "unroll": 1, "lanes": target.lanes(),
    }  # fmt: skip
    return rule.schedule(task, target, Config(tuple(items.items())))


def exact(task: Task, arrays: dict[str, Array]) -> Array:
    """The sums in 64-bit integers, by numpy alone."""
    x, w = (arrays[n].astype(np.int64) for n in ("i0", "c0"))
    attrs = dict(task.nodes[0].attrs)
    if task.op == "matmul":
        return np.asarray(x @ (w.T if attrs.get("transpose_b") else w))
    pads, groups = attrs.get("pads", (0,) * 4), attrs.get("groups", 1)
    x = np.pad(x, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
    step, (kh, kw, per_group, channels) = attrs.get("strides", (1, 1))[0], w.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(1, 2))
    windows = windows[:, ::step, ::step]
    parts = []
    for g in range(groups):
        data = windows[:, :, :, g * per_group : (g + 1) * per_group]
        mine = w[..., g * (channels // groups) : (g + 1) * (channels // groups)]
        parts.append(np.einsum("nhwcij,ijco->nhwo", data, mine))
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("name", PLAIN)
def test_the_scheduled_program_is_exact(name: str) -> None:
    task = PLAIN[name]
    program = apply_schedule(build_program(task), schedule(task, TARGET))
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(task, 3)
    assert arrays["i0"].max() > 200
    assert arrays["c0"].min() < -90
    assert np.array_equal(run(program, arrays), exact(task, arrays))
    assert np.array_equal(evaluate_task(task, arrays), exact(task, arrays))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("without", ["", "+avx512vnni", "+avx512bw", "+avx2"])
def test_machine_code_is_exact(name: str, without: str) -> None:
    task, target = PLAIN[name], TARGET
    if without:
        taken = ("+avx512vnni", "+avxvnni", *([without] if without != "+avx512vnni" else []))
        features = [f for f in target.features.split(",") if f not in taken]
        target = dataclasses.replace(target, features=",".join(features))
    program = apply_schedule(build_program(task), schedule(task, target))
    arrays = random_inputs(task, 5)
    assert np.array_equal(run_kernel(task, program, target, arrays), exact(task, arrays))


def test_groups_that_make_one_channel_each_are_exact() -> None:
    """No lanes share bytes there, as the instructions for sums of four products want it."""
    made = task(
        [node("conv2d", "i0 c0", "o0", groups=3)],
        value("i0", (1, 4, 5, 12), "uint8"),
        value("c0", (2, 2, 4, 3), "int8"),
        value("o0", (1, 3, 4, 3), "int32"),
    )
    rule, arrays = rule_for(made, TARGET), random_inputs(made, 5)
    steps = rule.schedule(made, TARGET, cost_model.default(made, Machine.of(TARGET), rule))
    program = apply_schedule(build_program(made), steps)
    assert np.array_equal(run_kernel(made, program, TARGET, arrays), exact(made, arrays))


def test_sums_return_to_bytes_in_the_same_kernel() -> None:
    executor = NativeExecutor()
    request = MeasureRequest(
        task=REQUANTISED, schedule=schedule(REQUANTISED, TARGET), target=TARGET,
        timing=Timing(min_repeats=1, max_repeats=1, budget_s=0.01),
    )  # fmt: skip
    result = executor.check_and_time(request, executor.build(request))
    assert result.status == Status.OK, result.error
    values = evaluate_task(REQUANTISED, random_inputs(REQUANTISED, 0))
    assert len(np.unique(values)) > 50, "the check must see bytes of all sizes"


@pytest.mark.parametrize("step", ["round", "floor"])
def test_what_is_rounded_becomes_bytes_in_one_instruction(step: str) -> None:
    nodes = tuple(
        dataclasses.replace(n, op=step) if n.op == "round" else n for n in REQUANTISED.nodes
    )
    task = dataclasses.replace(REQUANTISED, nodes=nodes)
    program = apply_schedule(build_program(task), schedule(task, TARGET))
    source = BACKENDS.get("llvm").source(program, TARGET, "k")
    assert ("@llvm.lrint" in source) == (step == "round")
    arrays = random_inputs(task, 5)
    got = run_kernel(task, program, TARGET, arrays)
    assert np.array_equal(got, evaluate_task(task, arrays))


@pytest.mark.parametrize(
    ("bound", "without"), [(255.0, True), (254.5, False), (float("inf"), False)]
)
def test_rounding_is_last_where_only_whole_numbers_limit_it(bound: float, without: bool) -> None:
    load, limit = Load("x", ()), Const(bound, "float32")
    assert unrounded(fn("min", fn("round", load), limit)) == (
        fn("min", load, limit) if without else None
    )


@pytest.mark.parametrize(
    ("features", "lanes", "expected"),
    [
        ("+avx512f,+avx512vnni", 64, "vpdpbusd.512"),
        ("+avx2,+avxvnni", 32, "vpdpbusd.256"),
        ("+avx512f,+avx512bw", 64, "pmaddw.d.512"),
        ("+avx2", 32, "pmadd.wd"),
    ],
)
def test_instructions_are_used_where_the_target_has_them(
    features: str, lanes: int, expected: str
) -> None:
    target = dataclasses.replace(TARGET, features=features, vector_bytes=lanes)
    program = apply_schedule(build_program(PLAIN["matmul"]), schedule(PLAIN["matmul"], target))
    assert expected in BACKENDS.get("llvm").source(program, target, "k")


@pytest.mark.parametrize("name", PLAIN)
def test_products_of_256_bits_are_exact_by_the_instruction_s_definition(name: str) -> None:
    made, target = PLAIN[name], load_target("x86-64-avx-vnni")
    rule, arrays = rule_for(made, target), random_inputs(made, 5)
    config = cost_model.default(made, Machine.of(target), rule)
    program = apply_schedule(build_program(made), rule.schedule(made, target, config))
    with emulated_byte_dots() as widths:
        assert np.array_equal(run_kernel(made, program, target, arrays), exact(made, arrays))
    assert set(widths) <= {"128", "256"}
    assert ("256" in widths) == (config.number("lanes") == 8)


def test_arm_code_uses_its_own_instruction() -> None:
    target = load_target("cortex-a72")
    target = dataclasses.replace(target, features=f"{target.features},+i8mm")
    program = apply_schedule(build_program(PLAIN["matmul"]), schedule(PLAIN["matmul"], target))
    assert "usmmla" in BACKENDS.get("llvm").source(program, target, "k")


def test_products_of_signed_bytes_alone_are_taken_where_there_are_no_others() -> None:
    target = load_target("cortex-a72")
    target = dataclasses.replace(target, features=f"{target.features},+dotprod")
    program = apply_schedule(build_program(PLAIN["matmul"]), schedule(PLAIN["matmul"], target))
    text = BACKENDS.get("llvm").source(program, target, "k")
    assert text.count("call <4 x i32> @llvm.aarch64.neon.sdot") % 3 == 0
    assert "usdot" not in text

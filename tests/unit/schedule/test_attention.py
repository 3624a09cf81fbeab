"""Attention in one kernel: the step against the naive loops, what it refuses, and machine code."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

import cost_model
from autotune.codegen.llvm.kernel import write_kernel
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.program.ir import For, If, Program, walk
from autotune.program.text import print_program
from autotune.schedule import STEPS, apply_schedule
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task, freeze_attrs
from search_spaces.rules import RULES
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.attentions import attention
from tests.unit.codegen.kernels import assert_close, run_kernel

ELEMENTWISE = ("mul", "add", "where", "ne", "causal")
PLAIN = attention((2,), 4, 6, 3, 5)


def with_causal_mask(arrays: dict[str, Array]) -> dict[str, Array]:
    """Every row has a score that counts."""
    return {k: np.tril(np.ones_like(v)) if v.dtype == bool else v for k, v in arrays.items()}


def chained(case: Task) -> Program:
    """The naive program with what lies between the product and the softmax as one nest."""
    program = build_program(case)
    made = [n.outputs[0] for n in case.nodes[:-1] if n.op in ELEMENTWISE]
    softmax = next(n for n in case.nodes if n.op == "softmax")
    for name in made:
        if name not in (*softmax.inputs, "t10"):
            program = STEPS.get("inline")(buffer=name).apply(program)
    return program


def attend(case: Task, rows: int, keys: int, lanes: int = 2) -> Program:
    mix = case.nodes[case.anchor].outputs[0]
    step = STEPS.get("flash_attention")
    made = step(scores="t0", weights="t5", mix=mix, rows=rows, keys=keys, lanes=lanes)
    return made.apply(chained(case))


@pytest.mark.parametrize(
    ("case", "rows", "keys"),
    [
        (PLAIN, 2, 6),
        (PLAIN, 4, 3),
        (PLAIN, 3, 2),
        (attention((), 3, 11, 2, 3), 2, 11),
        (attention((1, 2), 3, 4, 2, 3, mask=(1, 1, 1, 4), transposed=False), 2, 2),
        (attention((2,), 3, 4, 2, 3, where=(3, 4), residual=True), 2, 4),
        (attention((2,), 5, 8, 2, 3, causal=0), 2, 2),
        (attention((), 5, 8, 2, 3, mask=(5, 8), causal=2), 3, 4),
    ],
)
def test_equals_the_naive_loops(case: Task, rows: int, keys: int) -> None:
    program = attend(case, rows, keys)
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = with_causal_mask(random_inputs(case, 1))
    np.testing.assert_allclose(run(program, arrays), evaluate_task(case, arrays), atol=1e-5)


def test_a_block_of_keys_that_are_all_masked_changes_nothing() -> None:
    case = attention((), 3, 6, 2, 3, mask=(3, 6))
    arrays = random_inputs(case, 1)
    arrays["i2"][:] = 0
    arrays["i2"][:, :2] = -np.inf
    got = run(attend(case, 2, 2), arrays)
    np.testing.assert_allclose(got, evaluate_task(case, arrays), atol=1e-5)


def test_keys_that_come_later_are_left_out() -> None:
    case = attention((), 4, 8, 2, 3, causal=1)
    guards = [s for s in walk(attend(case, 2, 2).body) if isinstance(s, If)]
    blocks = [str(g.bounds[0].index) for g in guards if "att_k" in g.bounds[0].index.vars()]
    arrays = random_inputs(case, 1)
    arrays["i1"][5:] = arrays["i3"][5:] = np.nan
    assert len(blocks) == 1
    assert np.isfinite(run(attend(case, 2, 2), arrays)[:2]).all()


@pytest.mark.parametrize("keys", [6, 2])
def test_rows_without_scores_give_zeros_where_that_is_asked_for(keys: int) -> None:
    case = attention((), 3, 6, 2, 3, mask=(3, 6), guarded=True)
    arrays = random_inputs(case, 1)
    arrays["i2"][1] = -np.inf
    got = run(attend(case, 2, keys), arrays)
    np.testing.assert_allclose(got, evaluate_task(case, arrays), atol=1e-5)
    assert not got[1].any()


@pytest.mark.parametrize("keys", [6, 2])
@pytest.mark.parametrize("guarded", [False, True])
def test_rows_of_no_numbers_are_none_or_zeros_where_that_is_asked_for(
    keys: int, guarded: bool
) -> None:
    case = attention((), 3, 6, 2, 3, mask=(3, 6), guarded=guarded)
    arrays = random_inputs(case, 1)
    arrays["i2"][1, 4], arrays["i2"][2, 1] = np.nan, np.inf
    got = run(attend(case, 2, keys), arrays)
    np.testing.assert_allclose(got, evaluate_task(case, arrays), atol=1e-5)
    assert np.all(got[1:] == 0) if guarded else np.all(np.isnan(got[1:]))


def columns(case: Task) -> Task:
    """The same, with a softmax over the rows."""
    nodes = tuple(
        dataclasses.replace(n, attrs=freeze_attrs({"axis": 1})) if n.op == "softmax" else n
        for n in case.nodes
    )
    return dataclasses.replace(case, nodes=nodes)


@pytest.mark.parametrize(
    ("case", "keys", "message"),
    [
        (PLAIN, 4, "blocks of 4 keys do not divide 6"),
        (columns(PLAIN), 6, "t5 is not the softmax of the rows of t2"),
    ],
)
def test_what_is_no_attention_is_refused(case: Task, keys: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        attend(case, 2, keys)


@pytest.mark.parametrize(
    "target",
    [host_target(1), host_target(2), host_target(3), load_target("c")],
    ids=lambda t: f"{t.kind}{t.threads}",
)
@pytest.mark.parametrize(
    "case",
    [
        attention((1, 2), 40, 128, 16, 24, mask=(1, 1, 40, 128), residual=True),
        attention((9,), 17, 33, 8, 16, where=(17, 33)),
        attention((), 33, 70, 12, 20, guarded=True),
        attention((2,), 192, 192, 8, 16, causal=0),
        attention((1, 3), 37, 64, 8, 16, mask=(37, 64)),
        attention((5,), 64, 64, 8, 16, causal=0),
    ],
    ids=["blocks", "ragged", "flat", "causal", "odd masked", "odd causal"],
)
def test_scheduled_machine_code(case: Task, target: Target) -> None:
    rule, arrays = RULES.get("attention"), with_causal_mask(random_inputs(case, 2))
    space = rule.space(case, target)
    config = space.config(space.sample(np.random.default_rng(0), 1)[0])
    program = apply_schedule(build_program(case), rule.schedule(case, target, config))
    verify(program)
    assert_close(run_kernel(case, program, target, arrays), evaluate_task(case, arrays))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("batch", [(), (1, 3), (5,), (7,), (13,)])
def test_threads_share_blocks_of_rows_of_few_or_uneven_heads(
    batch: tuple[int, ...], threads: int
) -> None:
    case, rule, target = attention(batch, 197, 64, 8, 16), RULES.get("attention"), host_target(1)
    target = target.with_threads(threads)
    config = cost_model.default(case, Machine.of(target), rule)
    program = apply_schedule(build_program(case), rule.schedule(case, target, config))
    text = write_kernel(program, target, "kernel").function
    pieces = [int(n) for n in re.findall(r"@autotune_claim\(.*, i64 (\d+)\)", text)]
    heads, blocks = math.prod(batch), -(-197 // config.number("rows"))
    assert len(pieces) == 3  # keys, values, rows
    assert pieces[-1] == heads * blocks
    assert min(pieces) >= threads


@pytest.mark.parametrize(("heads", "threads"), [(12, 1), (3, 1), (12, 2), (12, 3), (31, 2)])
def test_threads_share_heads_that_come_out_even(heads: int, threads: int) -> None:
    case, rule, target = (
        attention((heads,), 197, 64, 8, 16),
        RULES.get("attention"),
        host_target(1),
    )
    target = target.with_threads(threads)
    program = apply_schedule(
        build_program(case),
        rule.schedule(case, target, cost_model.default(case, Machine.of(target), rule)),
    )
    (loop,) = program.body
    assert isinstance(loop, For)
    assert loop.extent == heads
    assert loop.kind == ("parallel" if threads > 1 else "serial")

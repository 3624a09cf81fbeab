"""Tiles of products of bytes by Helium's vectors: exact on a simulated Cortex-M55, whole vectors
and parts of one, packed weights and rows that lie in one piece; fewer cycles than by pairs."""

from __future__ import annotations

import dataclasses

import pytest

import cost_model
from autotune.codegen.c.dot_tile import DotTile, Side
from autotune.codegen.c.source import CSource
from autotune.codegen.c.vector_tile import VECTORS, vector_lines
from autotune.machine import Machine
from autotune.measure.build_task import build_task
from autotune.measure.simulator.executor import QemuExecutor
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import SOURCE, Target, load_target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value
from tests.unit.codegen.test_dot_tile import POINTWISE, REQUANTIZED, WINDOW
from tests.unit.search_spaces.algorithms.test_int8_interleaved import convolution

TARGET = load_target("cortex-m55")
PAIRS = dataclasses.replace(TARGET, features="+dsp")


def product(depth: int) -> Task:
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (3, depth), "uint8"), value("c0", (depth, 5), "int8"),
        value("o0", (3, 5), "int32"),
    )  # fmt: skip


def request(made: Task, target: Target) -> MeasureRequest:
    rule = rule_for(made, target)
    config = cost_model.default(made, Machine.of(target), rule)
    schedule = rule.schedule(made, target, config)
    return MeasureRequest(task=made, schedule=schedule, target=target, timing=Timing())


@needs("cortex-m", "cc")
@pytest.mark.parametrize("made", [POINTWISE, WINDOW, REQUANTIZED, product(20), product(64)],
                         ids=["pointwise", "window", "requantized", "part", "whole"])  # fmt: skip
def test_vectors_are_exact(made: Task) -> None:
    executor, asked = QemuExecutor(), request(made, TARGET)
    source = build_task(made, asked.schedule, dataclasses.replace(TARGET, arch=SOURCE)).code
    assert VECTORS in CSource.decode(source).body
    result = executor.check_and_time(asked, executor.build(asked))
    assert result.status is Status.OK, result.error
    if made is POINTWISE:
        by_pairs = request(made, PAIRS)
        slow = executor.check_and_time(by_pairs, executor.build(by_pairs))
        assert slow.median_s > 1.5 * result.median_s


def side(**about: object) -> Side:
    usual = {"pointer": "x", "kind": "u8", "dtype": "uint8", "offsets": (0, 64), "step": 4}
    return Side(**{**usual, **about})  # type: ignore[arg-type]


def test_bytes_of_one_sign_need_no_correction_and_words_that_may_lie_anywhere_no_vector() -> None:
    sums = (("a", "b"), ("c", "d"))
    tile = DotTile(rows=side(), columns=side(), sums=sums, words=8)
    text = "\n".join(vector_lines(tile) or [])
    assert "vmladavaq_u8" in text
    assert "veorq" not in text
    packed = side(dtype="int8", kind="i8", step=8, offsets=(0, 4))
    assert vector_lines(dataclasses.replace(tile, columns=packed)) is None
    known = dataclasses.replace(packed, aligned=True)
    text = "\n".join(vector_lines(dataclasses.replace(tile, columns=known, words=7)) or [])
    assert "gather_offset_z_s32" in text
    assert "128u * (u32)th1" in text


@needs("cortex-m", "cc")
def test_the_prior_takes_tiles_whose_sums_have_registers() -> None:
    """One that eight instructions add to at most, every other register of the core's."""
    made = convolution((12, 8, 16), 12)
    executor, asked = QemuExecutor(), request(made, TARGET)
    rule = rule_for(made, TARGET)
    chosen = dict(cost_model.default(made, Machine.of(TARGET), rule).items)
    points, channels = chosen["tile_w"] * chosen["tile_h"], chosen["vectors"]
    assert points * channels + channels <= 8
    crowded = Config(items=tuple((chosen | {"vectors": 3, "tile_h": 2, "tile_w": 1}).items()))
    other = dataclasses.replace(asked, schedule=rule.schedule(made, TARGET, crowded))
    fast, slow = (executor.check_and_time(r, executor.build(r)) for r in (asked, other))
    assert fast.median_s < slow.median_s

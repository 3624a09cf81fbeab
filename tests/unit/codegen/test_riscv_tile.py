"""Products of bytes by RISC-V's vectors: exact on simulated cores, whose vectors are of 128 and of
256 bits, in fewer instructions than by plain C."""

from __future__ import annotations

import dataclasses
import re

import pytest

import cost_model
from autotune.codegen.c.dot_tile import DotTile, Side
from autotune.codegen.c.riscv_tile import VECTORS, vector_lines
from autotune.codegen.c.shared_kernels import shared_kernels
from autotune.codegen.c.source import CSource
from autotune.machine import Machine
from autotune.measure.build_task import build_task
from autotune.measure.simulator.cores import Core
from autotune.measure.simulator.executor import SimulatedExecutor
from autotune.measure.simulator.qemu_engine import QemuEngine
from autotune.measure.simulator.riscv import block_cost
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import SOURCE, Target, load_target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value
from tests.unit.codegen.test_column_tile import window
from tests.unit.codegen.test_dot_tile import POINTWISE, REQUANTIZED, SHORT_ROWS, WINDOW
from tests.unit.codegen.test_vector_tile import product

TARGET, PLAIN = load_target("rv32imac-v"), load_target("rv32imac")


def pointwise(rows: int, columns: int, inner: int, channels: int) -> Task:
    """Products of points of bytes, scaled by nothing."""
    return task(
        [node("conv2d", "i0 c0", "o0")],
        value("i0", (1, rows, columns, inner), "uint8"),
        value("c0", (1, 1, inner, channels), "int8"),
        value("o0", (1, rows, columns, channels), "int32"),
    )


class LongVectors(QemuEngine):
    """Cores whose vectors are of 256 bits."""

    def core(self, target: Target) -> Core:
        core = super().core(target)
        longer = tuple(word.replace("vlen=128", "vlen=256") for word in core.machine)
        return dataclasses.replace(core, machine=longer)


def request(made: Task, target: Target, **params: int | str) -> MeasureRequest:
    rule = rule_for(made, target)
    config = cost_model.default(made, Machine.of(target), rule)
    config = Config(items=tuple((dict(config.items) | params).items()))
    schedule = rule.schedule(made, target, config)
    return MeasureRequest(task=made, schedule=schedule, target=target, timing=Timing())


def instructions(asked: MeasureRequest, engine: QemuEngine) -> int:
    executor = SimulatedExecutor(engine)
    result = executor.check_and_time(asked, executor.build(asked))
    assert result.status is Status.OK, result.error
    (count,) = re.findall(r"(\d+) instructions", result.conditions)
    return int(count)


def check_vectors(made: Task, asked: MeasureRequest) -> None:
    """They are there, right at two lengths, and fewer instructions than plain C."""
    source = build_task(made, asked.schedule, dataclasses.replace(TARGET, arch=SOURCE)).code
    assert VECTORS in CSource.decode(source).body
    by_vectors = instructions(asked, QemuEngine())
    assert instructions(asked, LongVectors()) <= by_vectors
    assert by_vectors < instructions(request(made, PLAIN), QemuEngine())


@needs("riscv32", "cc")
@pytest.mark.parametrize(
    ("made", "params"),
    [
        (POINTWISE, {}), (POINTWISE, {"vectors": 1, "tile_w": 4, "tile_h": 1}),
        (POINTWISE, {"vectors": 2, "tile_w": 1, "tile_h": 1}), (WINDOW, {}), (SHORT_ROWS, {}),
        (REQUANTIZED, {}), (product(20), {}), (product(64), {}),
    ],
)  # fmt: skip
def test_tiles_are_exact(made: Task, params: dict[str, int]) -> None:
    asked = request(made, TARGET, **params)
    check_vectors(made, asked)


@needs("riscv32", "cc")
@pytest.mark.parametrize(
    ("made", "tile_w"),
    [(window((3, 3), 1, channels=n), 5) for n in (16, 20)]
    + [(window((3, 3), 2, channels=40), 2), (window((2, 3), 1, channels=3), 5)],
)
def test_windows_of_neighbouring_channels_are_exact(made: Task, tile_w: int) -> None:
    """Whole vectors of channels, and a part of one."""
    asked = request(made, TARGET, vectors=1, tile_w=tile_w, tile_h=1, order="rows_first")
    check_vectors(made, asked)


@needs("riscv32", "cc")
def test_the_prior_takes_vectors_of_channels() -> None:
    made = window((3, 3), 1, channels=32)
    assert VECTORS in CSource.decode(
        build_task(
            made, request(made, TARGET).schedule, dataclasses.replace(TARGET, arch=SOURCE)
        ).code
    ).body  # fmt: skip


def source(made: Task, target: Target, **params: int | str) -> CSource:
    asked = request(made, target, **params)
    built = build_task(made, asked.schedule, dataclasses.replace(target, arch=SOURCE))
    return CSource.decode(built.code)


@pytest.mark.parametrize(
    ("pair", "params"),
    [
        (
            [pointwise(6, 8, 64, 8), pointwise(9, 16, 32, 24)],
            {"tile_w": 2, "tile_h": 3, "order": "points_first"},
        ),
        (
            [window((3, 3), 1, channels=n) for n in (16, 40)],
            {"tile_w": 5, "tile_h": 1, "order": "rows_first"},
        ),
    ],
)
def test_tiles_that_differ_by_sizes_only_are_one_function(
    pair: list[Task], params: dict[str, int | str]
) -> None:
    kernels = [source(made, TARGET, vectors=1, **params) for made in pair]
    assert all(VECTORS in kernel.body for kernel in kernels)
    assert len(shared_kernels(kernels, [])[0]) == 1


def test_rows_that_no_load_takes_are_no_tile() -> None:
    usual = Side(pointer="x", kind="i8", dtype="int8", offsets=(0, 64), step=4)
    tile = DotTile(rows=usual, columns=usual, sums=(("a", "b"), ("c", "d")), words=8)
    assert "vlseg2e32" not in "\n".join(vector_lines(tile) or [])
    in_turn = dataclasses.replace(usual, offsets=(0, 4), step=8)
    assert vector_lines(dataclasses.replace(tile, columns=in_turn)) is None
    known = dataclasses.replace(tile, columns=dataclasses.replace(in_turn, aligned=True))
    assert "vlseg2e32" in "\n".join(vector_lines(known) or [])
    three = dataclasses.replace(usual, offsets=(0, 64, 128))
    many = dataclasses.replace(tile, rows=three, columns=three, sums=(("a", "b", "c"),) * 3)
    assert vector_lines(many) is None


def test_cycles_of_vectors_grow_with_their_groups() -> None:
    bytes_in, widened, added = 0x02058007, 0x4A13A057, 0xF6022457
    halves = 0x0C92F2D7  # vsetvli t0, t0, e16, m2, ta, ma

    def cycles(*words: int) -> int:
        return block_cost(b"".join(w.to_bytes(4, "little") for w in words)).cycles

    assert cycles(bytes_in) == 3
    assert cycles(halves, bytes_in) == cycles(halves) + 3
    assert cycles(halves, widened) == 1 + 4
    assert cycles(halves, added) == 1 + 8

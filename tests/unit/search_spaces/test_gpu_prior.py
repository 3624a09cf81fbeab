"""What the prior of rows and plain nests expects of a GPU, without one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.machine.gpu import LaunchShape, coalescing_factor, held_blocks, launch_cycles, waves
from autotune.target import load_target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.gpu.base import GpuAlgorithm
from search_spaces.gpu.contraction.prior import resident_blocks as blocks_of_products
from search_spaces.gpu.window.prior import Windows, resident_blocks, sectors_of, window_cycles
from search_spaces.rules import rule_for
from tests.contracts.test_rules import conv
from tests.unit.codegen.kernels import matmul, node, task, unary, value

SM80 = load_target("sm_80")
A100 = Machine.of(SM80)
LARGE = matmul(4096, 4096, 4096)


def default(made: Task, rule: str) -> dict[str, object]:
    found = rule_for(made, SM80)
    assert found.name == rule
    return dict(cost_model.default(made, Machine.of(SM80), found).items)


def columns(*numbers: float) -> np.ndarray:
    return np.asarray(numbers)


def test_strided_reads_move_whole_sectors() -> None:
    assert [coalescing_factor(A100, stride) for stride in (0, 1, 2, 8, 4096)] == [1, 1, 2, 8, 8]


def test_threads_limit_the_blocks_held_and_the_last_wave_counts_whole() -> None:
    threads = columns(32, 256, 1024)
    np.testing.assert_array_equal(held_blocks(A100, threads), [32, 8, 2])
    blocks = 8 * SM80.multiprocessors
    np.testing.assert_array_equal(waves(A100, blocks, threads), [1, 1, 4])
    np.testing.assert_array_equal(waves(A100, blocks + 1, threads), [1, 2, 5])


def test_a_stream_takes_as_long_as_its_bytes() -> None:
    one, two = (
        launch_cycles(A100, LaunchShape(
            blocks=1 << 16, threads=columns(256), vector=columns(4),
            block_bytes=nbytes, passes=1, steps=columns(2),
        ))[0]
        for nbytes in (1 << 14, 1 << 15)
    )  # fmt: skip
    assert 1.8 < two / one < 2.1


def test_one_long_row_is_shared_by_blocks_and_many_are_not() -> None:
    def total(rows: int, length: int) -> Task:
        return task(
            [node("reduce_sum", "i0", "o0", axes=(1,), keepdims=False)],
            value("i0", (rows, length)),
            value("o0", (rows,)),
        )

    shared, alone = (default(total(*s), "gpu_rows") for s in ((1, 1 << 22), (1 << 14, 256)))
    assert shared["split"] >= 64  # type: ignore[operator]
    assert alone["split"] == 1


@pytest.mark.parametrize(("length", "least", "most"), [(128, 32, 64), (1 << 16, 128, 1024)])
def test_longer_rows_get_more_threads(length: int, least: int, most: int) -> None:
    found = default(unary("softmax", (512, length), axis=-1), "gpu_rows")
    assert least <= found["threads"] <= most  # type: ignore[operator]


def test_large_tensors_are_read_in_vectors_by_full_blocks() -> None:
    found = default(unary("gelu", (4096, 4096)), "gpu_nests")
    assert found["vector"] == 4
    assert found["threads"] >= 128  # type: ignore[operator]


def depthwise(batch: int, side: int, channels: int) -> Task:
    shape = (batch, side, side, channels)
    return conv(shape, (3, 3, 1, channels), shape, 1, groups=channels)


def windows(**given: float) -> Windows:
    known = {"elements": 1 << 22, "channels": 64, "terms": 9, "stride": 1, "weighted": True}
    return Windows(**{**known, "moved_bytes": 1.0, **given})  # type: ignore[arg-type]


def test_threads_that_read_channels_of_points_apart_touch_more_sectors() -> None:
    tile_w = columns(1, 4)
    few, many = (sectors_of(windows(channels=c), A100, columns(1, 1), tile_w) for c in (3, 64))
    assert few[0] == many[0] == many[1] == 4
    assert few[1] > 8


def test_sums_that_fill_the_registers_leave_room_for_fewer_blocks() -> None:
    blocks = resident_blocks(A100, columns(256, 256, 256), columns(1, 32, 64))
    assert blocks[0] == 8
    assert blocks[0] > blocks[1] > blocks[2] >= 1


def test_what_a_window_moves_counts_where_little_is_computed() -> None:
    one, two = (
        window_cycles(
            windows(moved_bytes=nbytes), A100, vector=columns(4), tile_w=columns(4),
            tile_h=columns(1), threads=columns(256), loads=columns(18),
        )[0]
        for nbytes in (1e9, 2e9)
    )  # fmt: skip
    assert 1.8 < two / one < 2.1


def test_few_points_get_a_thread_each_and_many_share_what_they_read() -> None:
    few, many = (default(depthwise(*s), "gpu_window") for s in ((1, 7, 512), (16, 112, 32)))
    assert (few["tile_h"], few["tile_w"]) == (1, 1)
    assert many["tile_h"] * many["tile_w"] >= 4  # type: ignore[operator]
    assert many["threads"] >= 64  # type: ignore[operator]


def test_groups_of_warps_multiply_wide_pieces() -> None:
    """Narrow ones read more of shared memory than it gives."""
    target = load_target("sm_90a").with_precision("bf16")
    config = dict(cost_model.default(LARGE, Machine.of(target)).items)
    assert config["algorithm"] == "wgmma"
    assert config["tile_n"] in (4, 8)


def test_blocks_of_exactly_half_of_shared_memory_are_not_held_together() -> None:
    """CUDA takes 1 KiB of each for itself."""
    given = {
        "algorithm": np.array(["bf16"], object), "tile_m": 1, "tile_n": 1, "threads_m": 1,
        "threads_n": 1, "depth": 64, "stages": 2, "layout": np.array(["swizzled"], object),
    }  # fmt: skip
    used = {name: np.broadcast_to(np.asarray(v), 1) for name, v in given.items()}
    algorithm = ALGORITHMS.get("gpu_bf16")
    assert isinstance(algorithm, GpuAlgorithm)
    blocks = algorithm.blocks(used)
    half = int(blocks.shared_bytes[0])
    board = dataclasses.replace(SM80, shared_bytes=2 * half)
    assert blocks_of_products(Machine.of(board), blocks)[0] == 1
    other = dataclasses.replace(board, kind="opencl")
    assert blocks_of_products(Machine.of(other), blocks)[0] == 2

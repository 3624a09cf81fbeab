"""What the prior of rows and plain nests expects of a GPU, without one."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.target import load_target
from autotune.types import Task
from search_spaces.rules import rule_for
from search_spaces.rules._gpu_rows_cost import coalesced, held_blocks, stream_cycles, waves
from tests.unit.codegen.kernels import node, task, unary, value

SM80 = load_target("sm_80")


def default(made: Task, rule: str) -> dict[str, object]:
    found = rule_for(made, SM80)
    assert found.name == rule
    return dict(found.default(made, SM80).items)


def columns(*numbers: float) -> np.ndarray:
    return np.asarray(numbers)


def test_strided_reads_move_whole_sectors() -> None:
    assert [coalesced(stride) for stride in (0, 1, 2, 8, 4096)] == [1, 1, 2, 8, 8]


def test_threads_limit_the_blocks_held_and_the_last_wave_counts_whole() -> None:
    threads = columns(32, 256, 1024)
    np.testing.assert_array_equal(held_blocks(threads), [32, 8, 2])
    blocks = 8 * SM80.multiprocessors
    np.testing.assert_array_equal(waves(SM80, blocks, threads), [1, 1, 4])
    np.testing.assert_array_equal(waves(SM80, blocks + 1, threads), [1, 2, 5])


def test_a_stream_takes_as_long_as_its_bytes() -> None:
    one, two = (
        stream_cycles(
            SM80, blocks=1 << 16, threads=columns(256), vector=columns(4),
            block_bytes=nbytes, passes=1, steps=columns(2),
        )[0]
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

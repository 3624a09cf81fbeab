"""What a kernel touches, in the order in which its model touched it."""

from __future__ import annotations

import numpy as np

from autotune.measure.cache_footprint import ALWAYS, Piece, moved, pieces_of
from autotune.measure.storage import GuardedTensor
from autotune.measure.types import Timing
from autotune.placement.reuse_distance import CODE
from autotune.target import host_target
from autotune.types import Array

TARGET = host_target()
NOTHING = np.zeros(0, np.uint8)


def storage(nbytes: int, touched: int | None = None) -> GuardedTensor:
    block = np.zeros(nbytes, np.uint8)
    return GuardedTensor(block, block[: nbytes if touched is None else touched], block.ctypes.data)


def pieces(timing: Timing, value: GuardedTensor, workspace: Array = NOTHING) -> tuple[Piece, ...]:
    return pieces_of(
        timing, TARGET, inputs={"i0": value}, constants={"c0": storage(128)},
        output=("o0", storage(256)), workspace=workspace, code=np.zeros(64, np.uint8),
    )  # fmt: skip


def test_without_a_model_weights_and_code_are_old_and_inputs_new() -> None:
    found = pieces(Timing(), storage(1024))
    assert [len(p.block) for p in found] == [64, 128, 256, 1024]
    assert [p.age_bytes for p in found][:2] == [ALWAYS, ALWAYS]
    assert found[-1].age_bytes == 0


def test_a_value_is_cut_by_age_its_beginning_the_oldest() -> None:
    known = (("i0", 0, 0.0, 0.25), ("i0", 4096, 0.001, 0.75), (CODE, 0, 0.0, 1.0))
    value = storage(1024)
    mine = [p for p in pieces(Timing(reuse_distances=known), value) if p.block.base is value.block]
    assert [(len(p.block), p.age_bytes, p.age_s) for p in mine] == [
        (768, 4096, 0.001),
        (256, 0, 0),
    ]
    assert mine[0].block.ctypes.data == value.address


def test_of_a_block_that_is_mostly_others_only_the_values_own_are_touched() -> None:
    value = storage(4096, touched=512)
    (mine,) = [p for p in pieces(Timing(), value) if p.sparse is value.view]
    assert mine.touched.nbytes == 512


def test_a_workspace_beyond_the_second_cache_is_old() -> None:
    near = TARGET.l2_bytes * TARGET.threads
    found = pieces(Timing(), storage(64), np.zeros(near + 640, np.uint8))
    assert {len(p.block) for p in found if p.age_bytes == ALWAYS} == {128, 64, 640}


def test_other_data_passes_between_pieces_as_much_as_the_model_moves() -> None:
    old, young = (
        Piece(block=np.zeros(100, np.uint8), age_bytes=age, age_s=0.0) for age in (700, 300)
    )
    assert list(moved((old, young), 1000)) == [300, old, 300, young, 200]
    assert list(moved((old, young), 200)) == [old, young]
    assert list(moved((), 50)) == [50]

"""The arena plan: values that are alive together never share memory, dead ones do."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import VerifyError
from autotune.placement.memory_plan import (
    ALIGNMENT,
    Block,
    MemoryPlan,
    _best_gap,
    _smallest_plan,
    find_in_place,
    lifetimes,
    plan_memory,
    storage_bytes,
)
from autotune.placement.types import Partition
from tests.unit.runtime.partitions import partition_of

SHAPES = ((4, 5), (3, 7), (40, 2), (1, 1))


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """Random graphs of up to 14 calls: each reads one or two earlier values."""
    shapes = {"x": draw(st.sampled_from(SHAPES))}
    calls: list[tuple[str, tuple[str, ...], str]] = []
    haloed = []
    for number in range(draw(st.integers(1, 14))):
        sources = draw(st.lists(st.sampled_from(sorted(shapes)), min_size=1, max_size=2))
        name = f"v{number:02}"
        same = draw(st.booleans())
        shapes[name] = shapes[sources[0]] if same else draw(st.sampled_from(SHAPES))
        equal = all(shapes[s] == shapes[name] for s in sources)
        op = ("neg" if len(sources) == 1 else "add") if equal else "matmul"
        calls.append((op, tuple(sources), name))
        if draw(st.booleans()):
            haloed.append(name)
    return partition_of(calls, shapes=shapes, haloed=haloed)


def overlap(plan: MemoryPlan, partition: Partition, one: str, other: str) -> bool:
    a, b = plan.offsets[one], plan.offsets[other]
    sizes = [storage_bytes(partition.storages[n]) for n in (one, other)]
    return a < b + sizes[1] and b < a + sizes[0]


@settings(max_examples=150)
@given(partitions(), st.booleans())
def test_storages_alive_together_never_share_memory(partition: Partition, lend: bool) -> None:
    plan, lives = plan_memory(partition, lend=lend), lifetimes(partition)
    handed_over = set(plan.in_place)
    for one, other in itertools.combinations(lives, 2):
        (first, last), (start, stop) = lives[one], lives[other]
        if first <= stop and start <= last and overlap(plan, partition, one, other):
            pair = (one, other) if last == start else (other, one)
            assert pair in handed_over
            assert plan.offsets[one] == plan.offsets[other]
            assert min(last, stop) == max(first, start)


@settings(max_examples=100)
@given(partitions(), st.lists(st.integers(1, 900), min_size=14, max_size=14))
def test_workspaces_share_memory_with_nothing_alive(
    partition: Partition, sizes: list[int]
) -> None:
    """And zeros around what lay there are written again."""
    wanted = {
        number: size for number, size in enumerate(sizes[: len(partition.calls)]) if size % 3
    }
    plan = plan_memory(partition, lend=True, workspaces=wanted)
    assert plan.workspaces.keys() == wanted.keys()
    lives, again = lifetimes(partition), {name for _, name in plan.cleared}
    for number, at in plan.workspaces.items():
        assert at % ALIGNMENT == 0
        assert 0 <= at <= plan.arena_bytes - wanted[number]
        for name, (first, last) in lives.items():
            start, nbytes = plan.offsets[name], storage_bytes(partition.storages[name])
            if start < at + wanted[number] and at < start + nbytes:
                assert not first <= number <= last
                shared = {n for n in again if plan.offsets[n] == start}
                assert shared or not partition.storages[name].zeroed


@settings(max_examples=150)
@given(partitions())
def test_halos_share_memory_only_with_the_same_layout(partition: Partition) -> None:
    plan = plan_memory(partition)
    for one, other in itertools.combinations(plan.offsets, 2):
        if overlap(plan, partition, one, other):
            a, b = partition.storages[one], partition.storages[other]
            assert (a.zeroed, a.sharing) == (b.zeroed, b.sharing)
            assert not a.zeroed or plan.offsets[one] == plan.offsets[other]


@settings(max_examples=150)
@given(partitions(), st.booleans())
def test_halos_are_zero_whenever_they_are_read(partition: Partition, lend: bool) -> None:
    plan = plan_memory(partition, lend=lend)
    arena = np.zeros(plan.arena_bytes // 4, np.float32)

    def block(name: str) -> np.ndarray:
        first = plan.offsets[name] // 4
        return arena[first : first + partition.storages[name].elements]

    def interior(name: str) -> np.ndarray:
        place, shape = partition.placements[name], partition.graph.types[name].shape
        strides = tuple(4 * s for s in place.layout.strides)
        return np.lib.stride_tricks.as_strided(block(name)[place.offset :], shape, strides)

    for number, call in itertools.chain(*[enumerate(partition.calls)] * 2):
        for name in (name for at, name in plan.cleared if at == number):
            kept = interior(name).copy()
            block(name)[:] = 0
            interior(name)[:] = kept
        for _, name in call.args:
            if name in plan.offsets:
                interior(name)[:] = 1
                if partition.storages[name].zeroed:
                    assert block(name).sum() == interior(name).size


@settings(max_examples=100)
@given(partitions())
def test_every_arena_storage_is_aligned_and_inside(partition: Partition) -> None:
    plan = plan_memory(partition)
    assert set(plan.offsets) == {n for n, s in partition.storages.items() if s.kind == "arena"}
    for name, offset in plan.offsets.items():
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= plan.arena_bytes - storage_bytes(partition.storages[name])


@settings(max_examples=100)
@given(partitions())
def test_arena_is_no_larger_than_separate_storages(partition: Partition) -> None:
    plan = plan_memory(partition)
    assert plan.arena_bytes <= sum(storage_bytes(partition.storages[n]) for n in plan.offsets)


def test_a_chain_of_contractions_needs_two_buffers() -> None:
    calls = [("matmul", (f"v{i}",), f"v{i + 1}") for i in range(6)]
    partition = partition_of(calls, shape=(8, 8))
    assert plan_memory(partition).arena_bytes == 2 * 8 * 8 * 4


@pytest.mark.parametrize("sizes", [(8, 8, 2, 7), (11, 7, 9, 11, 6), (6, 8, 11, 12, 10, 5, 10, 9)])
def test_a_chain_needs_what_is_alive_at_once(sizes: tuple[int, ...]) -> None:
    """Chains for which no greedy order alone finds it."""
    chain = [
        Block(storages=(f"v{i}",), nbytes=64 * size, first=i, last=i + 1)
        for i, size in enumerate(sizes)
    ]
    assert _smallest_plan(chain)[0] == 64 * max(a + b for a, b in itertools.pairwise(sizes))


def test_a_chain_of_elementwise_calls_runs_in_one_buffer() -> None:
    calls = [("neg", (f"v{i}",), f"v{i + 1}") for i in range(6)]
    partition = partition_of(calls, shape=(8, 8))
    assert plan_memory(partition).arena_bytes == 8 * 8 * 4
    assert plan_memory(partition, in_place=False).arena_bytes == 2 * 8 * 8 * 4


def test_an_input_read_again_later_is_not_overwritten() -> None:
    calls = [("neg", ("x",), "a"), ("neg", ("a",), "b"), ("add", ("a", "b"), "c"),
             ("neg", ("c",), "d")]  # fmt: skip
    pairs = plan_memory(partition_of(calls)).in_place
    assert ("a", "b") not in pairs
    assert ("a", "c") in pairs


def test_a_broadcast_input_is_not_overwritten() -> None:
    calls = [("neg", ("x",), "a"), ("neg", ("y",), "b"), ("add", ("a", "b"), "c"),
             ("neg", ("c",), "d")]  # fmt: skip
    shapes = {"x": (1, 5), "a": (1, 5)}
    assert plan_memory(partition_of(calls, shapes=shapes)).in_place == (("b", "c"),)


def test_another_element_order_is_not_overwritten() -> None:
    calls = [("neg", ("x",), "a"), ("neg", ("a",), "b"), ("neg", ("b",), "c")]
    partition = partition_of(calls, haloed=["a"])
    assert find_in_place(partition, lifetimes(partition)) == ()


def test_haloed_storages_hand_over_their_memory() -> None:
    calls = [("matmul", (f"v{i}",), f"v{i + 1}") for i in range(6)]
    partition = partition_of(calls, haloed=[f"v{i}" for i in range(1, 6)], shape=(8, 8))
    assert plan_memory(partition).arena_bytes == 2 * 448


def test_lent_memory_of_halos_is_used_by_others() -> None:
    calls = [("matmul", (f"v{i}",), f"v{i + 1}") for i in range(9)]
    partition = partition_of(calls, haloed=["v1", "v2"], shape=(8, 8))
    assert plan_memory(partition).arena_bytes == 2 * 448 + 2 * 256
    lent = plan_memory(partition, lend=True)
    assert lent.arena_bytes == 2 * 448
    assert lent.cleared == ((0, "v1"), (1, "v2"))
    assert plan_memory(partition).cleared == ()


def test_halos_that_nobody_disturbs_are_not_zeroed_again() -> None:
    calls = [("matmul", (f"v{i}",), f"v{i + 1}") for i in range(6)]
    partition = partition_of(calls, haloed=[f"v{i}" for i in range(1, 6)], shape=(8, 8))
    assert plan_memory(partition, lend=True).cleared == ()


def test_zeroed_storage_without_sharing_keeps_its_memory() -> None:
    calls = [("matmul", (f"v{i}",), f"v{i + 1}") for i in range(6)]
    partition = partition_of(calls, haloed=[f"v{i}" for i in range(1, 6)], shape=(8, 8))
    alone = {n: dataclasses.replace(s, sharing="") for n, s in partition.storages.items()}
    assert plan_memory(dataclasses.replace(partition, storages=alone)).arena_bytes == 5 * 448


def test_an_output_kept_in_the_arena_lives_to_the_end() -> None:
    calls = [("matmul", ("x",), "a"), ("matmul", ("a",), "b"), ("matmul", ("b",), "c"),
             ("matmul", ("c",), "d")]  # fmt: skip
    partition = partition_of(calls)
    graph = dataclasses.replace(partition.graph, outputs=(("a", "a"), ("d", "d")))
    assert lifetimes(dataclasses.replace(partition, graph=graph))["a"] == (0, 3)


def test_a_value_without_placement_is_an_error() -> None:
    partition = partition_of([("neg", ("x",), "a"), ("neg", ("a",), "b")])
    placements = {n: p for n, p in partition.placements.items() if n != "a"}
    with pytest.raises(VerifyError, match="value a has no placement"):
        plan_memory(dataclasses.replace(partition, placements=placements))


def test_a_block_lies_in_the_tightest_gap() -> None:
    taken = [(0, 10), (40, 50), (60, 70)]
    assert _best_gap(taken, 10) == 50
    assert _best_gap(taken, 11) == 10
    assert _best_gap(taken, 31) == 70

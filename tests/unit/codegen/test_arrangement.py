"""A program for any sizes arranged natively: lines are chosen as predicted, nothing that is alive
shares memory, and little more is taken than is alive at once.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.codegen.base import PLACED
from autotune.codegen.llvm.amounts import Row, StackedBlock, amounts_text
from autotune.codegen.llvm.arrangement import CLOSE, CROWDING, arrangement_text
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.loader import load
from autotune.memory import address
from autotune.runtime.image import ARENA, WORKSPACE
from autotune.runtime.open_code import WORD_BYTES, LoadedPlan
from autotune.runtime.open_image import AMOUNTS, ARRANGEMENT, ArenaTable, CallTable, OpenPlan
from autotune.sizes import symbol
from autotune.target import host_target

CALLS, BLOCKS = 14, 20


@dataclass(frozen=True)
class Case:
    """Blocks by (first, last, multiples of 64 bytes), stacked in that order; by call lines of
    (nanoseconds, multiples of 64 bytes that it works in, least size that it is for)."""

    blocks: list[tuple[int, int, int]]
    lines: list[list[tuple[int, int, int]]]

    @staticmethod
    def drawn(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        firsts = rng.integers(0, CALLS, BLOCKS).tolist()
        blocks = [
            (first, min(CALLS - 1, first + int(rng.integers(0, 6))), int(rng.integers(1, 40)))
            for first in firsts
        ]
        lines = [
            [(int(rng.integers(100, 200)), int(rng.integers(0, 3)) * 8, 1)]
            + [
                (int(rng.integers(50, 200)), int(rng.integers(0, 30)), int(rng.integers(1, 9)))
                for _ in range(2)
            ]
            for _ in range(CALLS)
        ]
        return Case(blocks, lines)


@dataclass(frozen=True)
class Found:
    starts: list[int]
    chosen: list[int]
    works: list[int]
    total: int
    stacked: int


def arranged(case: Case, size: int) -> Found:
    """What the native function makes of a case; argument 0 of each call's lines is a block, by
    turns, argument 1 the workspace, argument 2 tells the line."""
    n, rows = symbol("n", 1, 99), dict[Row, int]()

    def row(amount: int, block: int | None = None) -> int:
        return rows.setdefault(Row(amount, block), len(rows))

    flat = [line for several in case.lines for line in several]
    choices = np.arange(len(flat)).reshape(CALLS, -1)
    words, filled = np.zeros((len(flat), 2 + 2 * 4), np.int64), []
    for number in range(len(flat)):
        call = number // choices.shape[1]
        args = (ARENA, row(0, call)), (WORKSPACE, row(0)), (ARENA, row(number))
        words[number, 1] = len(args)
        for place, (base, distance) in enumerate(args):
            words[number, 2 + 2 * place] = base
            filled.append((number * words.shape[1] + 3 + 2 * place, distance))
    table = CallTable(
        drivers=(PLACED,) * len(flat),
        words=words,
        filled=np.array(filled, np.int64).T.copy(),
        choices=choices,
        strips=np.full(len(flat), row(n), np.int64),
        seconds=np.array([seconds * 1e-9 for seconds, _, _ in flat]),
        extents=np.full((len(flat), 1), row(n), np.int64),
        lengths=np.array([[least] for _, _, least in flat], np.int64),
        workspace=np.array([row(64 * n * works) for _, works, _ in flat], np.int64),
    )
    sized = [(k, row(64 * n * size)) for k, (_, _, size) in enumerate(case.blocks)]
    starts = [row(0, k) for k in range(BLOCKS)]
    lives = [(first, last) for first, last, _ in case.blocks]
    arena = ArenaTable(
        first=np.array([first for first, _ in lives], np.int64),
        last=np.array([last for _, last in lives], np.int64),
        starts=np.array(starts, np.int64),
        sized=np.array(sized, np.int64),
        moved=np.array([(at, r.block) for r, at in rows.items() if r.block is not None], np.int64),
        numbers=np.arange(CALLS),
    )
    stacks = [
        StackedBlock(
            nbytes=(64 * n * size,),
            below=tuple(j for j in range(k) if _meet(lives[j], lives[k])),
        )
        for k, (_, _, size) in enumerate(case.blocks)
    ]
    text = amounts_text(AMOUNTS, ("n",), stacks, tuple(rows)) + arrangement_text(ARRANGEMENT)
    target = host_target()
    library = load((compile_text(text, target),), target)
    plan = OpenPlan(
        amounts=AMOUNTS, rows=len(rows), inputs=(), outputs=(), output_bytes=(), table=table,
        arena=arena, objects=1,
    )  # fmt: skip
    loaded = LoadedPlan(plan, library)
    pointer = ctypes.c_void_p
    counts, work = np.array([size], np.int64), np.empty(loaded.work, np.int64)
    plain = ctypes.CFUNCTYPE(None, pointer, pointer)(library.address(AMOUNTS))
    plain(address(counts), address(work))
    stacked = int(work[len(rows)])
    out = np.full((loaded.calls, loaded.width), -1, np.int64)
    arrange = ctypes.CFUNCTYPE(None, *[pointer] * 5)(library.address(ARRANGEMENT))
    scratch = address(work) + WORD_BYTES * loaded.values
    arrange(address(counts), loaded.given, address(work), address(out), scratch)
    known = work.tolist()
    assert not out[:, 8:].any()
    assert out[:, 3].tolist() == [known[at] for at in starts[:CALLS]]
    return Found(
        starts=[known[at] for at in starts],
        chosen=out[:, 7].tolist(),
        works=out[:, 5].tolist(),
        total=known[len(rows)],
        stacked=stacked,
    )


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [1, 5, 40])
def test_what_is_alive_shares_no_memory_and_takes_little_more_than_it_is(
    seed: int, size: int
) -> None:
    case = Case.drawn(seed)
    found = arranged(case, size)
    blocks = [
        (first, last, start, start + 64 * size * nbytes)
        for (first, last, nbytes), start in zip(case.blocks, found.starts, strict=True)
    ]
    flat = [line for several in case.lines for line in several]
    works = [64 * size * flat[chosen][1] for chosen in found.chosen]
    blocks += [
        (call, call, start, start + nbytes)
        for call, (start, nbytes) in enumerate(zip(found.works, works, strict=True))
        if nbytes
    ]
    for one, other in itertools.combinations(blocks, 2):
        assert not _meet(one[:2], other[:2]) or one[3] <= other[2] or other[3] <= one[2]
    assert max(end for _, _, _, end in blocks) <= found.total <= found.stacked + max(works)
    alive = max(sum(e - s for f, la, s, e in blocks if f <= at <= la) for at in range(CALLS))
    assert alive <= found.total <= 1.15 * alive + alive / CLOSE


@pytest.mark.parametrize("size", [1, 5, 40])
def test_the_line_that_should_take_least_of_those_for_the_size_is_called(size: int) -> None:
    case = Case.drawn(size)
    found = arranged(case, size)
    for call, several in enumerate(case.lines):
        costs = [
            seconds * (1 + CROWDING * min(1.0, 64 * size * works / found.stacked))
            if size >= least
            else np.inf
            for seconds, works, least in several
        ]
        assert found.chosen[call] - 3 * call == int(np.argmin(costs))


def test_of_nearly_equal_lines_the_one_that_works_in_less_memory_is_called() -> None:
    lines = [(100, 4000, 1), (102, 1, 1), (104, 0, 1)]
    found = arranged(Case(Case.drawn(0).blocks, [lines] * CALLS), 9)
    assert [chosen - 3 * call for call, chosen in enumerate(found.chosen)] == [1] * CALLS

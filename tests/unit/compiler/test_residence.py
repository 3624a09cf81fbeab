"""Options whose bytes share a cache: as good as every combination tried, never worse than each
task's own favourite, and better the more cache there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.compiler.residence import Calls, Choices, Option

MB = 1 << 20
FOOTPRINTS = (4.0 * MB, 8.0 * MB, 16.0 * MB, 32.0 * MB, 64.0 * MB)


def calls(*options: tuple[float, float, float], count: int = 1) -> Calls:
    """Options of (MB of weights, seconds of arithmetic, MB a second beyond the cache), which is
    full at 16 MB."""
    made = []
    for megabytes, busy_s, speed in options:
        late_s = [megabytes / speed * (w > 16 * MB) for w in FOOTPRINTS]
        seconds = tuple(busy_s + s for s in late_s)
        made.append(Option(nbytes=int(megabytes * MB), seconds=seconds))
    return Calls(count=count, options=tuple(made))


def drawn(seed: int, tasks: int = 6, most: int = 4) -> Choices:
    """Options of which those with more weights mostly do less arithmetic."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(tasks):
        count = int(rng.integers(1, most + 1))
        sizes = np.sort(rng.uniform(0.2, 6.0, count))
        busy = np.sort(rng.uniform(0.05, 1.0, count))[::-1]
        speeds = rng.uniform(2, 20, count)
        options = [tuple(map(float, o)) for o in zip(sizes, busy, speeds, strict=True)]
        made.append(calls(*options, count=int(rng.integers(1, 4))))
    return Choices(tasks=tuple(made), footprints=FOOTPRINTS, fixed_bytes=2.0 * MB)


def least_s(choices: Choices) -> float:
    """Of all combinations."""
    each = (range(len(t.options)) for t in choices.tasks)
    return min(choices.total_s(c) for c in itertools.product(*each))


@pytest.mark.parametrize("seed", range(40))
def test_no_combination_is_much_better(seed: int) -> None:
    choices = drawn(seed)
    assert choices.total_s(choices.cheapest()) <= 1.02 * least_s(choices)


def test_most_of_the_time_none_is_better_at_all() -> None:
    found = [drawn(seed) for seed in range(40, 80)]
    exact = sum(c.total_s(c.cheapest()) <= least_s(c) * (1 + 1e-9) for c in found)
    assert exact >= 0.9 * len(found)


@pytest.mark.parametrize("seed", range(10))
def test_it_is_never_worse_than_what_tasks_like_by_themselves(seed: int) -> None:
    choices = drawn(seed, tasks=30)
    assert choices.total_s(choices.cheapest()) <= choices.total_s(choices.alone())


@pytest.mark.parametrize("seed", range(10))
def test_less_room_is_never_faster(seed: int) -> None:
    choices = drawn(seed)
    fuller = Choices(
        tasks=choices.tasks, footprints=FOOTPRINTS, fixed_bytes=choices.fixed_bytes + 8 * MB
    )
    assert least_s(fuller) >= least_s(choices)
    assert fuller.total_s(choices.cheapest()) >= least_s(choices)


def test_what_fits_takes_the_weights_that_save_arithmetic() -> None:
    one = calls((1.0, 1.0, 4.0), (6.0, 0.5, 4.0))
    roomy = Choices(tasks=(one, one), footprints=FOOTPRINTS)
    assert roomy.cheapest() == (1, 1)
    assert roomy.footprint((1, 1)) == 12 * MB


def test_one_task_gives_way_so_that_all_stay_in_the_cache() -> None:
    # Each by itself would take 6 MB, be it late; three of these and 2 MB do not fit into 16.
    small, large = (1.0, 1.0, 8.0), (6.0, 0.2, 8.0)
    cheap = calls((1.0, 0.9, 8.0), large)
    choices = Choices(
        tasks=(calls(small, large), calls(small, large), cheap), footprints=FOOTPRINTS,
        fixed_bytes=2.0 * MB,
    )  # fmt: skip
    assert choices.alone() == (1, 1, 1)
    assert choices.cheapest() == (1, 1, 0)


def test_nothing_to_choose_is_no_choice() -> None:
    empty = Choices(tasks=(), footprints=FOOTPRINTS)
    assert empty.cheapest() == ()
    assert empty.total_s(()) == 0.0

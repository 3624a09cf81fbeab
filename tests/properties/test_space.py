"""Spaces of random params and constraints: what every way of drawing configs keeps to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.errors import ScheduleError
from search_spaces.params import Config, Param
from search_spaces.space import Constraint, Space

SLOW = settings(max_examples=60)
NUMBERS = st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True).map(tuple)
WORDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    numbers = draw(st.lists(NUMBERS, min_size=1, max_size=4))
    params = [Param(name=f"n{i}", choices=c) for i, c in enumerate(numbers)]
    params += [Param(name=f"s{i}", choices=c) for i, c in enumerate(draw(st.lists(WORDS)))][:2]
    limit = draw(st.integers(1, 200))
    return Space(
        tuple(params),
        (
            Constraint("sum", lambda c: sum(c[p.name] for p in params[: len(numbers)]) <= limit),
            Constraint("first", lambda c: c["n0"] != limit),
        ),
    )


def every(space: Space) -> set[Config]:
    try:
        rows = space.rows(space.raw_size, np.random.default_rng(0))
    except ScheduleError:
        return set()
    return {space.config(row) for row in rows}


@SLOW
@given(spaces())
def test_enumeration_is_what_contains_says(space: Space) -> None:
    found = every(space)
    rng = np.random.default_rng(0)
    for _ in range(20):
        row = np.array([rng.integers(len(p.choices)) for p in space.params], np.int32)
        config = space.config(row)
        assert space.contains(config) == (config in found)
    assert len(found) == space.size


@SLOW
@given(spaces(), st.integers(1, 30), st.integers(0, 3))
def test_samples_are_valid_and_different(space: Space, n: int, seed: int) -> None:
    found = every(space)
    assume(found)
    rows = space.sample(np.random.default_rng(seed), n)
    configs = {space.config(row) for row in rows}
    assert len(configs) == len(rows) == min(n, len(found))
    assert configs <= found


@SLOW
@given(spaces(), st.integers(0, 3))
def test_mutants_and_neighbours_are_valid(space: Space, seed: int) -> None:
    found = every(space)
    assume(found)
    rng = np.random.default_rng(seed)
    row = space.sample(rng, 1)[0]
    assert space.config(space.mutate(rng, row)) in found
    near = space.neighbours(row)
    assert {space.config(r) for r in near} <= found
    assert ((near != row).sum(axis=1) == 1).all()


@SLOW
@given(spaces(), st.integers(0, 3))
def test_rows_and_configs_are_the_same_thing(space: Space, seed: int) -> None:
    assume(every(space))
    rows = space.sample(np.random.default_rng(seed), 5)
    for row in rows:
        config = space.config(row)
        np.testing.assert_array_equal(space.row(config), row)
        assert space.closest(config) == config
        configs = space.configs(row[None])
        assert {name: column[0] for name, column in configs.items()} == dict(config.items)


@SLOW
@given(spaces(), st.integers(10, 2000))
def test_every_raw_config_is_valid_or_rejected_once(space: Space, limit: int) -> None:
    assume(space.raw_size <= limit)
    rejected = space.survey(limit, np.random.default_rng(0))
    assert set(rejected) == {"sum", "first"}
    assert sum(rejected.values()) + (space.size or 0) == space.raw_size


@SLOW
@given(spaces(), st.integers(1, 40), st.integers(0, 3))
def test_drawing_from_a_space_too_large_to_walk(space: Space, limit: int, seed: int) -> None:
    found = every(space)
    assume(found and space.raw_size > limit and len(found) * 4 > space.raw_size)
    first, second = (space.rows(limit, np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    configs = [space.config(row) for row in first]
    assert set(configs) <= found
    assert len(set(configs)) == len(configs)


def test_an_empty_space_names_its_constraints() -> None:
    space = Space((Param(name="n", choices=(1, 2)),), (Constraint("never", lambda c: c["n"] > 9),))
    with pytest.raises(ScheduleError, match="never 2"):
        space.rows(10, np.random.default_rng(0))

"""The solver finds the least sum there is; where that would take too long, it says so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.placement.layout_solver import CostTable, solve

Problem = tuple[dict[str, int], list[CostTable]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to seven choices, and tables of up to three of them each, some entries infinite."""
    sizes = {f"v{n}": draw(st.integers(1, 3)) for n in range(draw(st.integers(1, 7)))}
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    tables = []
    for _ in range(draw(st.integers(0, 9))):
        names = draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3, unique=True))
        costs = np.asarray(rng.integers(0, 9, [sizes[n] for n in names]), np.float64)
        costs[rng.random(costs.shape) < 0.1] = np.inf
        tables.append(CostTable(names=tuple(names), costs=costs))
    return sizes, tables


def least(problem: Problem) -> float:
    """The least sum, by trying everything."""
    sizes, tables = problem
    every = itertools.product(*(range(size) for size in sizes.values()))
    return min(
        sum(t.at(dict(zip(sizes, options, strict=True))) for t in tables) for options in every
    )


@settings(max_examples=150)
@given(problems())
def test_the_sum_is_the_least_of_all(problem: Problem) -> None:
    found = solve(*problem)
    assert found.exact
    assert found.cost == least(problem)
    assert found.cost == sum(t.at(found.options) for t in problem[1])


def chain(length: int) -> Problem:
    """Neighbours would like to differ from each other, and the first to be the second option."""
    unlike = np.array([[1.0, 0.0], [0.0, 1.0]])
    sizes = {f"v{n}": 2 for n in range(length)}
    pairs = [CostTable(names=(f"v{n}", f"v{n + 1}"), costs=unlike) for n in range(length - 1)]
    return sizes, [*pairs, CostTable(names=("v0",), costs=np.array([1.0, 0.0]))]


def test_a_long_chain_needs_small_tables_only() -> None:
    sizes, tables = chain(400)
    found = solve(sizes, tables, most_entries=2)
    assert found.exact
    assert [found.options[v] for v in sizes] == [1, 0] * 200


def test_of_equal_options_the_first_is_taken() -> None:
    same = CostTable(names=("a", "b"), costs=np.ones((3, 2)))
    assert solve({"a": 3, "b": 2}, [same]).options == {"a": 0, "b": 0}


def test_too_large_tables_are_searched_downhill_and_told() -> None:
    sizes, tables = chain(3)
    tables.append(CostTable(names=tuple(sizes), costs=np.zeros((2, 2, 2))))
    found = solve(sizes, tables, most_entries=1)
    assert not found.exact
    assert found.cost <= sum(t.at(dict.fromkeys(sizes, 0)) for t in tables)
    assert found.cost == sum(t.at(found.options) for t in tables)


def test_a_table_names_each_of_its_dimensions() -> None:
    with pytest.raises(ValueError, match="one dimension"):
        CostTable(names=("a",), costs=np.zeros((2, 2)))

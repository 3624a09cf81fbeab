from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError
from search_spaces.params import Config, Param
from search_spaces.space import ENUMERABLE, Constraint, Space

TILE = Param(name="tile", choices=(1, 2, 4, 8))
ORDER = Param(name="order", choices=("mn", "nm"))


def large() -> Space:
    params = tuple(Param(name=f"p{n}", choices=tuple(range(10))) for n in range(12))
    return Space(params, (Constraint("even", lambda c: c["p0"] % 2 == 0),))


def test_columns_are_numbers_and_objects() -> None:
    configs = Space((TILE, ORDER)).configs(np.array([[2, 1]], np.int32))
    assert configs["tile"].dtype == np.float64
    assert configs["order"].dtype == object


def test_constraints_see_only_what_earlier_ones_left() -> None:
    seen: list[int] = []

    def second(configs: dict[str, np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
        seen.append(len(configs["tile"]))
        return configs["tile"] < 8

    space = Space(
        (TILE, ORDER),
        (Constraint("large", lambda c: c["tile"] > 1), Constraint("small", second)),
    )
    assert space.size == 4
    assert seen == [6]


def test_a_constraint_may_be_one_answer_for_all() -> None:
    constraint = Constraint("always", lambda _columns: np.bool_(True))
    assert Space((TILE, ORDER), (constraint,)).size == 8


def test_the_size_of_a_large_space_is_not_walked() -> None:
    assert large().raw_size > ENUMERABLE
    assert large().size is None


def test_a_large_space_is_sampled_heavily() -> None:
    rows = large().rows(20_000, np.random.default_rng(0))
    assert len(rows) > 5_000
    assert (rows[:, 0] % 2 == 0).all()


def test_rare_valid_configs_of_a_large_space_are_found() -> None:
    rare = Constraint("rare", lambda c: (c["p0"] + c["p1"] + c["p2"]) == 0)
    rows = Space(large().params, (rare,)).sample(np.random.default_rng(0), 5)
    assert len(rows) == 5


def test_closest_takes_the_nearest_number_by_ratio() -> None:
    config = Config((("tile", 7), ("order", "other")))
    assert Space((TILE, ORDER)).closest(config) == Config((("tile", 8), ("order", "mn")))


def test_configs_from_before_a_param_came_have_its_first_choice() -> None:
    space = Space((TILE, ORDER))
    today = space.as_of_today(Config((("tile", 8),)))
    assert today == Config((("tile", 8), ("order", ORDER.choices[0])))
    assert space.as_of_today(today) == today


def test_configs_with_a_param_or_choice_that_went_are_not_of_today() -> None:
    space = Space((TILE,))
    assert space.as_of_today(Config((("tile", 8), ("order", "mn")))) is None
    assert space.as_of_today(Config((("tile", 7),))) is None


def test_closest_is_none_where_it_would_not_be_valid() -> None:
    space = Space((TILE,), (Constraint("small", lambda c: c["tile"] < 8),))
    assert space.closest(Config((("tile", 64),))) is None


def test_a_mutant_of_a_lonely_config_is_itself() -> None:
    row = np.zeros(1, np.int32)
    space = Space((Param(name="only", choices=(3,)),))
    np.testing.assert_array_equal(space.mutate(np.random.default_rng(0), row), row)


@pytest.mark.parametrize(
    "items", [(("tile", 3), ("order", "mn")), (("tile", 1),), (("x", 1), ("order", "mn"))]
)
def test_a_config_of_another_space_is_refused(items: tuple[tuple[str, int | str], ...]) -> None:
    space = Space((TILE, ORDER))
    assert not space.contains(Config(items))
    with pytest.raises(ScheduleError, match="expected"):
        space.row(Config(items))


def test_param_names_must_differ() -> None:
    with pytest.raises(ValueError, match="differ"):
        Space((TILE, TILE))


def test_descent_ends_where_no_single_change_is_cheaper() -> None:
    params = (Param(name="a", choices=tuple(range(9))), Param(name="b", choices=tuple(range(9))))
    space = Space(params)
    found = space.descend(
        space.row(Config((("a", 8), ("b", 0)))),
        lambda configs: (configs["a"] - 3) ** 2 + (configs["b"] - 6) ** 2,
    )
    assert space.config(found) == Config((("a", 3), ("b", 6)))


def test_descent_keeps_to_valid_configs() -> None:
    params = (Param(name="a", choices=tuple(range(9))),)
    even = Constraint("even", lambda configs: np.asarray(configs["a"] % 2 == 0))
    space = Space(params, (even,))
    found = space.descend(space.row(Config((("a", 8),))), lambda configs: abs(configs["a"] - 3.1))
    assert space.config(found) == Config((("a", 4),))


def test_a_restricted_space_has_the_configs_of_the_settled_values() -> None:
    small = Constraint("small", lambda c: c["tile"] < 8)
    space = Space((TILE, ORDER), (small,)).restricted({"order": "nm"})
    found = {
        tuple(dict(space.config(row).items).values())
        for row in space.rows(9, np.random.default_rng(0))
    }
    assert found == {(1, "nm"), (2, "nm"), (4, "nm")}
    with pytest.raises(ScheduleError, match="configs of this space have no width"):
        space.restricted({"width": 1})
    with pytest.raises(ScheduleError, match="order is never 'mn'"):
        space.restricted({"order": "mn"})

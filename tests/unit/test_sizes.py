"""Sizes known at run time: arithmetic, equality and order are those of the integers they stand
for, whatever these are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UndecidedError
from autotune.shapes import broadcast_shapes
from autotune.sizes import (
    ceil_div,
    greatest,
    is_size,
    least,
    surely_at_most,
    surely_less,
    symbol,
    value_at,
)

H, W = symbol("H", 3, 40), symbol("W", 1, 25)
VALUES = st.fixed_dictionaries({"H": st.integers(3, 40), "W": st.integers(1, 25)})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from((-3, -1, 1, 2, 5, H, W))),
        st.tuples(st.just("mul"), st.sampled_from((1, 2, 3, 4, W))),
        st.tuples(st.just("div"), st.sampled_from((1, 2, 3, 4, 6))),
    ),
    max_size=5,
)


def built(steps: list[tuple[str, int]], start: int, values: dict[str, int] | None) -> int:
    """An expression step by step: of sizes, or of what they are. Never negative where it is
    divided, as sizes of tensors are not."""
    out = start
    for step, operand in steps:
        by = operand if values is None else value_at(operand, values)
        if step == "add":
            out = out + by
        elif step == "mul":
            out = out * by
        else:
            out = (out + 200) // by
    return out


@given(STEPS, VALUES)
def test_an_expression_is_worth_what_its_integers_make(
    steps: list[tuple[str, int]], values: dict[str, int]
) -> None:
    try:
        size = built(steps, H, None)
    except UndecidedError:
        return
    assert value_at(size, values) == built(steps, values["H"], values)


@given(STEPS, STEPS, VALUES)
def test_bounds_and_orders_hold_for_all_values(
    first: list[tuple[str, int]], second: list[tuple[str, int]], values: dict[str, int]
) -> None:
    one, other = built(first, H, None), built(second, W, None)
    now, then = value_at(one, values), value_at(other, values)
    assert least(one) <= now <= greatest(one)
    assert not surely_less(one, other) or now < then
    assert not surely_at_most(one, other) or now <= then


def test_what_strides_of_two_leave_is_one_quotient() -> None:
    half = (H + 1) // 2
    assert (half + 1) // 2 == (H + 3) // 4
    assert (4 * H) // 4 == H
    assert (H * W) // W == H
    assert (H * W * 6) % 3 == 0


def test_what_lacks_to_a_multiple_fills_it_up() -> None:
    padded = H + -H % 7
    assert padded == 7 * ((H + 6) // 7)
    assert (padded // 7 * W * 7) // 7 == (H + 6) // 7 * W
    assert least(-H % 8) == 0


def test_a_number_below_a_size_is_its_own_rest() -> None:
    assert (2 % H, 2 // H) == (2, 0)
    assert (-2 % H, -2 // H) == (H - 2, -1)
    with pytest.raises(UndecidedError):
        3 % H


def test_rounding_up_is_at_least_and_less_than_one_more() -> None:
    over = 6 * ceil_div(W, 6) - W
    assert (least(over), greatest(over)) == (0, 5)
    assert surely_less(2 * ceil_div(W, 2) - W, 2)


def test_an_order_that_values_decide_is_refused() -> None:
    with pytest.raises(UndecidedError, match="H < W"):
        _ = H < W
    assert H > 2
    assert not H > 40


def test_nothing_takes_a_size_for_a_number() -> None:
    for use in (range, int, [0].__getitem__, float):
        with pytest.raises(TypeError):
            use(H)  # type: ignore[operator]


def test_equal_sizes_broadcast_and_others_do_not() -> None:
    assert broadcast_shapes(((H, 1), (1, W), (1,))) == (H, W)
    assert is_size(broadcast_shapes(((1,), (H,)))[0])
    with pytest.raises(ValueError, match="differ"):
        broadcast_shapes(((H,), (W,)))

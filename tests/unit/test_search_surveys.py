"""Surveys in the making: what counts as settled, and that pieces add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import cost_model
from benchmarks.search import search_surveys
from tests.unit.tuner.synthetic import matmul_task, subject

OF = subject(matmul_task(64, 64, 64))


def test_a_draft_holds_drawn_configs_and_promising_ones() -> None:
    draft = search_surveys.Draft.start(OF, 20)
    keys = OF.space.keys(draft.rows)
    assert draft.drawn.sum() == 20
    assert len(draft.rows) > 20
    assert len(np.unique(keys)) == len(keys)
    assert (
        OF.space.keys(OF.space.row(cost_model.default(OF.task, OF.machine, OF.rule))[None])[0]
        in keys
    )


def test_a_config_is_settled_when_its_least_time_was_seen_twice() -> None:
    draft = search_surveys.Draft.start(OF, 4)
    for place in range(len(draft.rows)):
        for _ in range(2):
            draft.told(place, 1.0 + place)  # the first is the fastest, the others lose
    assert not len(draft.unsettled())
    draft.told(3, 0.5)  # far below what was seen twice: those were disturbed
    assert 3 in draft.unsettled()
    draft.told(3, 0.9)
    assert 3 in draft.unsettled()
    draft.told(3, 0.505)
    assert 3 not in draft.unsettled()


def test_what_fails_twice_is_settled() -> None:
    draft = search_surveys.Draft.start(OF, 4)
    for place in range(len(draft.rows)):
        for _ in range(2):
            draft.told(place, float("inf") if place == 1 else 1.0)
    draft.told(2, float("inf"))  # it worked before
    assert not len(draft.unsettled())
    assert np.flatnonzero(np.isinf(draft.least_s)).tolist() == [1]


def test_a_draft_goes_on_from_its_file(tmp_path: Path) -> None:
    draft = search_surveys.Draft.start(OF, 4)
    draft.told(1, 0.25)
    draft.grow(OF)
    draft.save(tmp_path / "small.npz")
    found = search_surveys.Draft.load(tmp_path / "small.npz")
    assert found.grown == 1
    for name in ("rows", "drawn", "least_s", "agreed", "passes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(draft, name))
    keys = OF.space.keys(found.rows)
    assert np.isin(OF.space.keys(OF.space.neighbours(found.rows[1])), keys).all()


def test_time_is_up_after_the_seconds_that_were_given() -> None:
    now = iter((10.0, 12.0, 12.6))
    stop = search_surveys.deadline(2.5, lambda: next(now))
    assert [stop(), stop()] == [False, True]

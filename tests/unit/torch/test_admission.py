"""Sizes that are other ones all the time are not compiled all the time."""

from __future__ import annotations

import itertools

from autotune.torch.admission import SizeAdmission


def test_first_sizes_are_compiled_at_once() -> None:
    admission = SizeAdmission(4)
    assert all(admission.admits(size, size) for size in range(4))


def test_sizes_that_are_met_once_are_not_compiled_when_there_are_many() -> None:
    admission = SizeAdmission(4)
    assert not any(admission.admits(size, 4) for size in range(5000))


def test_sizes_that_stay_are_compiled_in_the_end() -> None:
    admission = SizeAdmission(4)
    for size in range(6):
        assert any(admission.admits(size, 4) for _ in range(100))


def test_more_sizes_in_turns_than_are_kept_are_compiled_ever_less_often() -> None:
    """As many boxes in each image, of the same sizes: none stays until it is met again."""
    admission = SizeAdmission(4)
    turns = itertools.chain.from_iterable(range(91) for _ in range(100))
    assert sum(admission.admits(size, 4) for size in turns) < 10

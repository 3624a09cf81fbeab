"""Words that are watched: a run where they are the same, none where one is another."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autotune.runtime.watched import WatchedWords


@pytest.mark.parametrize("shift", [0, 2])
def test_a_run_goes_where_all_words_are_the_same(shift: int) -> None:
    memory = np.arange(64, dtype=np.uint8)
    places = [memory.ctypes.data + shift + at for at in (0, 20, 40)]
    words = WatchedWords(places)
    entered: list[int] = []
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entered.append)
    code = ctypes.cast(entry, ctypes.c_void_p).value
    assert words.enter(words.pointer, code, 8) == 1
    assert entered == [8]
    assert not words.changed()
    memory[shift + 4] += 1  # watched by nobody
    assert not words.changed()
    memory[shift + 43] += 1
    assert words.changed()
    assert words.enter(words.pointer, code, 8) == 0
    assert entered == [8]
    memory[shift + 43] -= 1
    assert not words.changed()

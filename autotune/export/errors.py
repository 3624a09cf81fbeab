"""Return codes of an exported model's functions, and their messages."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """A result; all but OK are errors."""

    OK = 0
    NO_MEMORY = 1
    BAD_MEMORY = 2
    BAD_ARGUMENT = 3
    NO_WEIGHTS = 4
    BAD_WEIGHTS = 5
    WRONG_CPU = 6
    BAD_SIZES = 7


_MESSAGES = {
    Code.OK: "no error",
    Code.NO_MEMORY: "the system gives no memory for an instance; free some",
    Code.BAD_MEMORY: "the memory for an instance is smaller than memory_bytes() or does not begin "
    "at a multiple of 64; give more, aligned",
    Code.BAD_ARGUMENT: "a pointer is null or a number out of range; see model.h",
    Code.NO_WEIGHTS: "the file of weights cannot be opened or mapped; give its path",
    Code.BAD_WEIGHTS: "the file of weights is not this model's; export both again",
    Code.WRONG_CPU: "this processor lacks instructions that the model was compiled for; export it "
    "for a --target that it has",
    Code.BAD_SIZES: "the instance has no sizes, or they are out of range; give resize() others",
}


FIXED_CODES = tuple(code for code in Code if code is not Code.BAD_SIZES)
"""Those of models of fixed sizes."""


def message(code: Code) -> str:
    """One line: what went wrong, and what to do."""
    return _MESSAGES[code]

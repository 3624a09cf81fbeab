"""Whole numbers that people and peers write. In: text. Out: the number, if it is one of use."""

from __future__ import annotations

LARGEST = (1 << 63) - 1
"""The largest that a log can hold."""


def whole(text: str, most: int = LARGEST) -> int | None:
    """The number that these digits are; None where they are none, or more than `most`."""
    digits = text.lstrip("0") or text[-1:]
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)):
        return None
    return number if (number := int(digits)) <= most else None

"""The writing of a value of the program IR, whatever language a backend writes."""

from __future__ import annotations

from typing import NamedTuple


class Val(NamedTuple):
    """An expression as text, its elements' type, and how many lanes of them it has."""

    text: str
    dtype: str
    lanes: int

"""What a backend writes for a value, whichever language it writes."""

from __future__ import annotations

from typing import NamedTuple


class Val(NamedTuple):
    """An expression as text, its elements' type, and how many lanes of them it has."""

    text: str
    dtype: str
    lanes: int

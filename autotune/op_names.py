"""Names that ops had in earlier releases, and still have in logs. In: a name. Out: the other one.

A task's key is made of its JSON: the names in it stay, so that records are found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LOGGED: Mapping[str, str] = MappingProxyType({
    "block_max": "leaders",
    "sort_keys": "keys",
    "top_k": "leading",
})  # fmt: skip
"""Op -> its name in a log, where that is another."""
_TODAYS = {logged: op for op, logged in LOGGED.items()}


def logged_op(op: str) -> str:
    return LOGGED.get(op, op)


def todays_op(logged: str) -> str:
    return _TODAYS.get(logged, logged)

"""Costs of code on a core. In: bytes of a basic block. Out: its instructions and cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockCost:
    """What running a block once takes. `refill`: cycles more where it is left by a jump."""

    instructions: int
    cycles: int
    refill: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a run took."""

    instructions: int
    cycles: int


BlockCosts = Callable[[bytes], BlockCost]
"""The table of a core: the cost of instructions that run one after the other."""


def whole(sections: Iterable[Counted]) -> Counted:
    """All of them together."""
    found = tuple(sections)
    return Counted(
        instructions=sum(one.instructions for one in found),
        cycles=sum(one.cycles for one in found),
    )

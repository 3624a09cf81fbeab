"""Gathers from a window: lanes at constant distances, by a few vector loads and a shuffle.

In: an index that the vector loop's variable is divided in, scaled or reversed. Out: where its
first element lies and how far from it every lane does, if that is known; then the loads that cover
these places without touching any beside them, and which of them each lane is taken from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from autotune.program.analysis import Ranges, simplify
from autotune.program.ir import Index
from autotune.sizes import is_size

MOST_LOADS = 4
"""Vectors that a window may take; lanes further apart are loaded one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWindow:
    """Lane i is element `lanes[i]` behind `first`; the nearest is element 0."""

    first: Index
    lanes: tuple[int, ...]

    @property
    def span(self) -> int:
        return max(self.lanes) + 1


def lane_indices(
    value: Index, names: Set[str], lanes: int, known: Mapping[str, int], ranges: Ranges
) -> list[Index]:
    """An index in every lane, simplified; `known`: loop variables that are constants here."""
    env = {v: Index((), i) for v, i in known.items()}
    out = []
    for lane in range(lanes):
        env.update(dict.fromkeys(names, Index((), lane)))
        out.append(simplify(value.substitute(env), ranges))
    return out


def window_of(indices: Sequence[Index]) -> LaneWindow | None:
    """The window of these lanes; None where they are not at constant distances."""
    apart = [i - indices[0] for i in indices]
    if not all(i.is_const and not is_size(i.const) for i in apart):
        return None
    nearest = min(range(len(apart)), key=lambda lane: apart[lane].const)
    lanes = tuple(i.const - apart[nearest].const for i in apart)
    return LaneWindow(first=indices[nearest], lanes=lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Loads of `width` elements from these distances on."""

    width: int
    starts: tuple[int, ...]


def cover(window: LaneWindow, lanes: int) -> Cover | None:
    """Vector loads that reach no element beside the window's; None where they would be many."""
    width = 1 << min(window.span, lanes).bit_length() - 1
    last = window.span - width
    starts = tuple(dict.fromkeys(min(s, last) for s in range(0, window.span, width)))
    used = tuple(s for s in starts if any(s <= d < s + width for d in window.lanes))
    return Cover(width=width, starts=used) if len(used) <= MOST_LOADS else None


def picks(window: LaneWindow, found: Cover) -> list[tuple[int, int]]:
    """(load, element of it) of every lane."""
    out = []
    for distance in window.lanes:
        load = next(n for n, s in enumerate(found.starts) if s <= distance < s + found.width)
        out.append((load, distance - found.starts[load]))
    return out


def takes_each_once(window: LaneWindow, found: Cover) -> bool:
    """Whether these are vectors of which no two lanes take the same element."""
    return found.width > 1 and len(set(window.lanes)) == len(window.lanes)

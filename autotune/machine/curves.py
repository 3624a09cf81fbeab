"""Curves over footprints: a speed or a latency for every amount of data that is used in turn.

In: (footprint in bytes, value) points, ascending. Out: the value at any footprint, and how large
the caches really are. A virtual machine is told of a last cache that it shares with strangers;
only the curve knows how much of it is there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]
Curve = tuple[tuple[int, float], ...]
"""(footprint in bytes, value) by ascending footprint."""

HELD = 0.8
"""Data are held by a level as long as their speed is nearer to its own than to that behind it: by
this share of the way between them, on a logarithmic scale (chosen)."""
DISTINCT = 1.4
"""Speeds closer than this factor are hardly told from each other (chosen)."""


def falling(points: Curve) -> Curve:
    """The least curve above the points that never rises: more data are never read faster, so a
    point below one of a larger footprint was disturbed."""
    return _from_the_end(points, max)


def rising(points: Curve) -> Curve:
    """The greatest curve below the points that never falls: latencies of more data are no
    shorter."""
    return _from_the_end(points, min)


def _from_the_end(points: Curve, best: Callable[[float, float], float]) -> Curve:
    """Every point with the best value of it and those behind it."""
    values = [*itertools.accumulate((value for _, value in reversed(points)), best)]
    return tuple(zip((size for size, _ in points), reversed(values), strict=True))


def values_at(points: Curve, footprint: Column | float) -> Column:
    """The curve at footprints: straight between points where the axes are logarithmic (the value's
    is not where it is 0 somewhere), level beyond its ends. Raises ValueError for a curve without
    points."""
    if not points:
        raise ValueError("a curve has at least one point")
    sizes, values = np.array(points, np.float64).T
    at = np.log(np.maximum(footprint, 1.0))
    if values.min() <= 0:
        return np.asarray(np.interp(at, np.log(sizes), values))
    return np.asarray(np.exp(np.interp(at, np.log(sizes), np.log(values))))


def value_at(points: Curve, footprint: float) -> float:
    """The curve at one footprint."""
    return float(values_at(points, footprint))


def effective_sizes(
    points: Curve, believed: Sequence[int], latencies: Curve = ()
) -> tuple[int, ...]:
    """Bytes of each cache that are really there, by a curve of load bandwidth over footprints.

    `believed`: what the system says of each level, innermost first; 0 of one that is absent, which
    stays 0. A level's own speed is that of the footprints between the level within and its
    believed size; its effective size is where a part of the way (1 - HELD) to the speed at twice
    the believed size is gone. A level that is hardly faster than the one behind it is told from it
    by `latencies`; where these differ as little, or are not known, it is believed, and so is one
    that no curve reaches. Never more than is believed."""
    # A latency is a speed as well: loads a second.
    chases = tuple((size, 1 / value) for size, value in latencies if value > 0)
    sizes: list[int] = []
    within = 0
    for size in believed:
        found = size
        for curve in (falling(points), falling(chases)):
            held = _held(curve, within, size) if size and curve else None
            if held is not None:
                found = held
                break
        sizes.append(found)
        within = max(within, found)
    return tuple(sizes)


def _held(curve: Curve, within: int, believed: int) -> int | None:
    """None where the curve does not tell the level from the one behind it."""
    # Just above the level within, some of it still comes from there.
    own = [(size, value) for size, value in curve if 1.5 * within < size <= believed]
    if not own:
        return None
    behind = value_at(curve, 2 * believed)
    speed = sorted((value for _, value in own), reverse=True)[len(own) // 3]
    if speed < DISTINCT * behind:
        return None
    limit = speed**HELD * behind ** (1 - HELD)
    inner = own[0]
    for point in own:
        if point[1] < limit:
            found = point[0] if inner[1] <= limit else _crossing(inner, point, limit)
            return min(found, believed)
        inner = point
    return believed


def _crossing(before: tuple[int, float], after: tuple[int, float], limit: float) -> int:
    """The footprint between two points at which the curve passes `limit`."""
    (low, high_value), (high, low_value) = before, after
    share = math.log(high_value / limit) / math.log(high_value / low_value)
    return int(low * (high / low) ** share)

"""Times of samples, as the model that they are of calls them. In: the model's parts, sets of sizes
that count, and the samples that these call. Out: what the caches hold of a sample's operands when
a call of it begins.

A call goes through its output in pieces. The first one finds the weights where the run before
left them, the others where the piece before did; each reads another part of the input.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from autotune.machine.profile import DeviceProfile
from autotune.placement.at_sizes import partition_at
from autotune.placement.reuse_distance import CODE, reuse_distances
from autotune.placement.types import Partition
from autotune.tasks.at_sizes import task_at
from autotune.tuner.options import BetweenCalls
from autotune.tuner.resolve import calls_s, moved_bytes
from autotune.types import Task

Pieces = Mapping[Task, tuple[Task, int]]
"""Task of the model -> the sample that a set of sizes calls for it, and how often a call does."""
_Age = tuple[str, int, float]
"""An operand, the bytes that were used since it was, and the seconds that passed."""
_AT_ONCE_S = 1e-5
"""Seconds since the piece before, about."""


def between_calls(
    parts: Partition,
    sets: Sequence[tuple[Mapping[str, int], Pieces]],
    profile: DeviceProfile,
) -> BetweenCalls:
    """`sets`: values of the symbols, and what is called there. A run is one of the sizes that take
    most."""
    foreign_bytes, apart_s = 0, 0.0
    shares: dict[str, dict[tuple[str, int, float], float]] = defaultdict(
        lambda: defaultdict(float)
    )
    totals: dict[str, float] = defaultdict(float)
    for values, called in sets:
        fixed = partition_at(parts, values)
        call_s = calls_s(fixed, profile)
        found = reuse_distances(fixed, call_s, lend=profile.target.lends_halos)
        foreign_bytes = max(foreign_bytes, moved_bytes(fixed, {}))
        apart_s = max(apart_s, math.fsum(call_s))
        for task, calls in parts.weights().items():
            if task not in called:
                continue
            sample, pieces = called[task]
            totals[sample.key] += calls * pieces
            for name, age_bytes, age_s, share in found[task_at(task, values).key]:
                for age, part in _of_pieces(sample, name, (age_bytes, age_s), pieces):
                    shares[sample.key][name, *age] += share * part * calls * pieces
    return BetweenCalls(
        foreign_bytes=foreign_bytes,
        apart_s=apart_s,
        reuse_distances={
            key: tuple((*part, share / totals[key]) for part, share in found.items())
            for key, found in shares.items()
        },
    )


def _of_pieces(
    sample: Task, name: str, age: tuple[int, float], pieces: int
) -> list[tuple[tuple[int, float], float]]:
    """Ages of a call's operand for its pieces, and the share of them that find it so."""
    again = name == CODE or name in {value.name for value in sample.by_role("constant")}
    if not again or pieces == 1:
        return [(age, 1.0)]
    nbytes = sum(value.type.nbytes for value in sample.params)
    near = (min(age[0], 1 << round(math.log2(max(nbytes, 1)))), _AT_ONCE_S)
    return [(age, 1 / pieces), (near, 1 - 1 / pieces)]

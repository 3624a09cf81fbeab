"""Kernels that take any number of tiles of points at once. In: a task of open sizes. Out: kernels,
those that gain most over others that there are, each with what it is predicted to take.

Where weights are many and images small, strips read weights too often, and are too short for good
register tiles: these kernels read weights once for all tiles of all images.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

import cost_model
from autotune.compiler.kept_kernels import costs_at
from autotune.compiler.open_kernels import TriedKernel, by_rule
from autotune.compiler.shared_packings import PACKING_GAIN, Packing, packing_of
from autotune.compiler.strip_lengths import LEAST_GAIN, drawn_values
from autotune.defects import NO_DEFECT
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.sizes import ceil_div, is_size, surely_at_most, symbols_of, value_at
from autotune.tasks.at_sizes import task_at, task_from
from autotune.tasks.samples import open_extents, sample_task, sample_values
from autotune.types import Task
from search_spaces.base import OpenTiles, Rule
from search_spaces.params import Config
from search_spaces.rules import rule_for

Sizes = Mapping[str, int]
KERNELS = 6
"""Kernels of a task that take any number of tiles."""
GROUPS = (2, 16)
"""Groups of tiles of the two samples from which a kernel's time at any number follows."""
MEMORY_BYTES = 1 << 30
"""A footprint that no cache holds."""
MEMORY_SHARE = 0.1
"""Share of a group's time from which on its way through memory is too much (chosen)."""
UNIT_S = 1e-9
"""Seconds that predicted times are counted in."""


def tile_kernels(
    task: Task,
    machine: Machine,
    sizes: Sizes,
    others: Sequence[TriedKernel],
    said: list[str],
) -> list[TriedKernel]:
    """Kernels that lower what sizes of the range are predicted to take, beside `others`. `said`:
    gets what was in the way."""
    packings = dict.fromkeys(kernel.packing for kernel in others)
    found = list(_tried(task, machine, sizes, packings, said))
    drawn = drawn_values(open_extents(task))
    if not found:
        return []
    costs = np.array([costs_at(each, drawn) for each in found])
    best = np.full(len(drawn), np.inf)
    for kernel in others:
        best = np.minimum(best, costs_at(kernel, drawn))
    ideal = np.minimum(best, costs.min(axis=0))
    taken: list[TriedKernel] = []
    while len(taken) < KERNELS:
        loss = ((np.minimum(best, costs) / ideal) ** 2).mean(axis=1)
        wanted = [LEAST_GAIN if each.packing in packings else PACKING_GAIN for each in found]
        number = int((loss + wanted).argmin())
        if not loss[number] < ((best / ideal) ** 2).mean() - wanted[number]:
            break
        packings[found[number].packing] = None
        best, costs[number] = np.minimum(best, costs[number]), np.inf
        taken.append(found[number])
    return taken


def _tried(
    task: Task, machine: Machine, sizes: Sizes, there: Iterable[Packing], said: list[str]
) -> Iterator[TriedKernel]:
    """Kernels of one algorithm pack weights as the first of them does, or as one of `there`."""
    rule = rule_for(task_at(task, sizes), machine.target)
    packings = list(there)
    for tiles in rule.open_tiles(task, machine.target):
        try:
            made = _predicted(task, machine, sizes, rule, _packed(tiles, packings))
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
        else:
            packings.append(made.packing)
            yield made


def _packed(tiles: OpenTiles, packings: Iterable[Packing]) -> OpenTiles:
    """With weights as in the first of these that has the settled values."""
    for packing in map(dict, packings):
        known = packing.keys() & tiles.settled.keys()
        if known and all(tiles.settled[param] == packing[param] for param in known):
            return dataclasses.replace(tiles, settled={**packing, **tiles.settled})
    return tiles


def _predicted(
    task: Task, machine: Machine, sizes: Sizes, rule: Rule, tiles: OpenTiles
) -> TriedKernel:
    """The config that is best for a few groups of tiles, and a time that grows with them."""
    (output,) = task.by_role("output")
    shape, extents = output.type.shape, open_extents(task)
    opened = [d for d, extent in enumerate(shape) if is_size(extent)]
    lengths = tuple(tiles.lengths[d] for d in opened)
    if not opened or opened[-1] == 0:
        raise ScheduleError("images have fixed sizes")
    points: list[tuple[int, float]] = []
    config: Config | None = None
    for groups in GROUPS:
        longer = (*lengths[:-1], lengths[-1] * groups * tiles.group)
        values = sample_values(extents, longer, sizes)
        count = int(value_at(tiles.count, cast(Mapping[str, int], values)))
        small = sample_task(task, longer, sizes)
        settled = {**tiles.settled, "block": count}
        if config is None:
            config = cost_model.default(small, machine, rule, settled)
        there = Config(tuple((k, settled.get(k, v)) for k, v in config.items))
        seconds = cost_model.predict(small, machine, [there], rule).seconds[0]
        points.append((count // tiles.group, float(seconds)))
    assert config is not None  # there are samples
    (few, early), (many, late) = points
    each = max(0.0, (late - early) / (many - few))
    start = max(0.0, early - each * few)
    # Few tiles meet each panel of weights: what they take hides little of the panels' way here.
    start += float(machine.stream_s(tiles.weight_bytes, tiles.weight_bytes))
    pieces = ceil_div(tiles.count, tiles.group) * max(1, round(each / UNIT_S))
    most = _most_tiles(tiles, machine, each)
    return TriedKernel(
        write=lambda: by_rule(_served(task, extents, lengths), machine, rule, config),
        extents=(*extents, *(-tiles.count for _ in most)),
        lengths=(*lengths, *(-number for number in most)),
        pieces=pieces + round(start / UNIT_S),
        seconds=UNIT_S,
        packing=packing_of(rule, config),
    )


def _most_tiles(tiles: OpenTiles, machine: Machine, each: float) -> tuple[int, ...]:
    """The most tiles that a kernel is for, if any number is too many: those that the last cache
    holds between its stages, where a group takes `each` seconds and its way through memory much
    of that."""
    passed = 2 * tiles.group * tiles.tile_bytes
    if float(machine.stream_s(passed, MEMORY_BYTES)) < MEMORY_SHARE * each:
        return ()
    return (machine.cache_bytes(3) // tiles.tile_bytes,)


def _served(task: Task, extents: Sequence[int], lengths: Sequence[int]) -> Task:
    """The task in the part of the range that a kernel of these lengths serves."""
    lows: dict[str, int] = {}
    for extent, length in zip(extents, lengths, strict=True):
        if surely_at_most(length, extent):
            continue
        (name,) = (s.name for s in symbols_of(extent))
        found = math.ceil(sample_values((extent,), (length,), {})[name])
        lows[name] = max(found, lows.get(name, 0))
    return task_from(task, lows)

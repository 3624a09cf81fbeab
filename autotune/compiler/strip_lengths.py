"""Lengths of the strips that a task of open sizes gets kernels for. In: a task. Out: lengths along
its open dimensions, few enough to build, that cover the sizes of its range with little waste.

A strip that is run for the last elements of a dimension makes some of them again, and every strip
reads all weights. Sizes are drawn from the range; then, one after the other, those lengths are
taken that lower what the drawn sizes are estimated to cost most, over what they would cost if
there were kernels for all lengths; then a few for the least sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.ops import OPS
from autotune.sizes import SizeSymbol, greatest, is_size, least, symbols_of, value_at
from autotune.tasks.flops import task_flops
from autotune.tasks.samples import open_extents
from autotune.types import ITEM_BYTES, Task

Amounts = npt.NDArray[np.int64]
Column = npt.NDArray[np.float64]

DENSE = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
"""Lengths along a single open dimension."""
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
"""Lengths that strips along one of several open dimensions may have: dense where a tile is as
long, then in steps of a quarter or so."""
MOST_ELEMENTS = 1024
"""Places in a strip, of the open dimensions and of images inside them, as of a batch: more make
nothing faster."""
PLACES = 2
"""Dimensions, the innermost ones, that a strip may be longer than 1 along: an image's batch is
gone through one by one."""
DRAWN = 96
"""Sizes that lengths are chosen for."""
LONGEST_DRAWN = 4096
"""Symbols without a bound are drawn up to here."""
STRIP_START = 0.3
"""What a strip begins with, over the start of a kernel: it is called, its first data come
(assumed)."""
TILE = 4
"""Outputs of the common tiles: a strip takes as long as the next multiple of it, nearly."""
UNTILED = 0.5
"""Share of an output that is missing to a whole tile and costs nothing."""
LEAST_GAIN = 1e-4
"""Least gain in the mean squared ratio to what all lengths would give, for one more kernel."""
LEAST_SIZES = 24
"""Sizes of a symbol, from its least on, that are looked at beside drawn ones: so few places take a
strip of just their number, and are what many calls have."""
FEW_PLACES = 24
"""Places up to which these have strips of their own (chosen): of more, a last strip that begins
early makes few again."""
MOST = 1.05
"""Ratio that none of these is to be over (chosen)."""
FURTHER = 3
"""Kernels that there may be for them beside the others."""
REPRESENTATIVE = 64
"""Size of a symbol, as near as its range has one, at which the work at a place is counted."""
SEED = 0
"""Seed of the drawn sizes."""


def strip_lengths(task: Task, count: int, machine: Machine) -> list[tuple[int, ...]]:
    """Lengths along the open dimensions, outermost first, of up to `count` strips, and of a few
    for the least sizes; the first fits into outputs of all sizes."""
    extents = open_extents(task)
    if not extents:
        return []
    several = _candidates(extents, _places(task), _inside(task), _row(task, machine))
    candidates = np.array(several, np.int64)
    drawn, few = _drawn(extents), _at(extents, least_values(extents))
    few = few[few.prod(axis=1) <= FEW_PLACES]
    cost = _costs(task, candidates, np.concatenate([drawn, few]), machine)
    fits_all = np.all(candidates <= [least(e) for e in extents], axis=1)
    ratios = (cost / cost.min(axis=0)) ** 2
    taken = _for_drawn(ratios[:, : len(drawn)], fits_all, count)
    taken += _for_least(ratios[:, len(drawn) :], taken)
    return [tuple(int(n) for n in candidates[number]) for number in taken]


def _for_drawn(ratios: Column, fits_all: npt.NDArray[Any], count: int) -> list[int]:
    """Candidates (rows), one after the other, that lower the mean at the sizes (columns) most; the
    first is one of those that fit everywhere."""
    best = np.full(ratios.shape[1], np.inf)
    taken: list[int] = []
    while len(taken) < count:
        loss = np.minimum(best, ratios).mean(axis=1)
        if not taken:
            loss = np.where(fits_all, loss, np.inf)
        number = int(loss.argmin())
        if taken and (number in taken or loss[number] >= best.mean() - LEAST_GAIN):
            break
        taken.append(number)
        best = np.minimum(best, ratios[number])
    return taken


def _for_least(ratios: Column, taken: Sequence[int]) -> list[int]:
    """Further candidates, until the worst of these sizes is good enough."""
    best, further = ratios[list(taken)].min(axis=0, initial=np.inf), list[int]()
    while len(further) < FURTHER and best.max(initial=0.0) > MOST**2:
        mends = ratios[:, best.argmax()] <= MOST**2
        loss = np.where(mends, np.minimum(best, ratios).mean(axis=1), np.inf)
        further.append(int(loss.argmin()))
        best = np.minimum(best, ratios[further[-1]])
    return further


def weight_bytes(task: Task) -> int:
    return sum(v.type.nbytes for v in task.by_role("constant"))


def _places(task: Task) -> int:
    """Innermost dimensions that a strip may be longer than 1 along. What moves data, or computes
    each element from those at its place, goes along one: rows of a strip share nothing, and short
    ones are short runs of memory."""
    moves = all(OPS.get(node.op).kind in ("elementwise", "view", "data") for node in task.nodes)
    return 1 if moves else PLACES


def _inside(task: Task) -> int:
    """Places of an image that lies inside the innermost open dimension."""
    (output,) = task.by_role("output")
    shape = output.type.shape
    innermost = max(d for d, extent in enumerate(shape) if is_size(extent))
    return math.prod(shape[innermost + 1 : -1])


def _row(task: Task, machine: Machine) -> int:
    """The least length along the innermost open dimension with which a strip may have several
    rows: a vector, where elements that lie side by side are those along it."""
    (output,) = task.by_role("output")
    innermost = output.type.shape[-1]
    if not is_size(innermost):
        return 1
    return min(machine.target.lanes(ITEM_BYTES[output.type.dtype]), greatest(innermost))


def _candidates(
    extents: Sequence[int], places: int, inside: int, row: int
) -> list[tuple[int, ...]]:
    """All combinations of lengths that are worth a kernel."""
    known = DENSE if min(len(extents), places) == 1 else LENGTHS
    each = [_lengths(extent, known) for extent in extents]
    if len(extents) > places:
        each[:-places] = [[1]] * (len(extents) - places)
    every = itertools.product(*each)
    most = max(1, MOST_ELEMENTS // inside)
    return [
        lengths
        for lengths in every
        if math.prod(lengths) <= most and (lengths[-1] >= row or max(lengths[:-1], default=1) == 1)
    ]


def _lengths(extent: int, known: Sequence[int]) -> list[int]:
    """From 1 up to the longest extent, shorter ones more densely."""
    return [n for n in known if n <= max(1, greatest(extent))]


def drawn_values(extents: Iterable[int], count: int = DRAWN) -> list[Mapping[str, int]]:
    """Sizes of the range, half of them uniform, half by orders of magnitude: values of the symbols
    of these extents."""
    symbols = sorted({s for e in extents for s in symbols_of(e)}, key=lambda s: s.name)
    return list(_drawn_of(tuple(symbols), count))


@functools.lru_cache(maxsize=256)
def _drawn_of(symbols: tuple[SizeSymbol, ...], count: int) -> tuple[Mapping[str, int], ...]:
    rng = np.random.default_rng(SEED)
    out = []
    for number in range(count):
        values = {}
        for s in symbols:
            low, high = s.low, max(s.low, min(s.high, LONGEST_DRAWN))
            if number % 2:
                drawn = math.exp(rng.uniform(math.log(low or 1), math.log(high or 1)))
                values[s.name] = min(high, max(low, round(drawn)))
            else:
                values[s.name] = int(rng.integers(low, high + 1))
        out.append(MappingProxyType(values))
    return tuple(out)


def least_values(extents: Iterable[int]) -> list[Mapping[str, int]]:
    """The least sizes of each symbol of these extents, and of any two that grow together, as of
    square images, all others being at their least."""
    symbols = {s.name: s for e in extents for s in symbols_of(e)}
    lowest = {name: s.low for name, s in symbols.items()}
    names = sorted(symbols)
    growing = [*((name,) for name in names), *itertools.combinations(names, 2)]
    return [
        lowest | {name: lowest[name] + more for name in some}
        for some in growing
        for more in range(LEAST_SIZES)
        if all(lowest[name] + more <= symbols[name].high for name in some)
    ]


def _drawn(extents: Sequence[int]) -> Amounts:
    """Extents at drawn sizes."""
    return _at(extents, drawn_values(extents))


def _at(extents: Sequence[int], several: Iterable[Mapping[str, int]]) -> Amounts:
    rows = [[value_at(extent, values) for extent in extents] for values in several]
    return np.array(rows, np.int64)


def strips_at(task: Task, lengths: Sequence[int]) -> Column:
    """Strips of these lengths that the drawn sizes take; inf where they do not fit."""
    drawn = _drawn(open_extents(task))
    strips = (-(-drawn // np.array(lengths))).prod(axis=1)
    return np.where((drawn >= np.array(lengths)).all(axis=1), strips, np.inf)


def _costs(task: Task, candidates: Amounts, drawn: Amounts, machine: Machine) -> Column:
    """Estimated seconds of every candidate (rows) at every drawn size; inf where it does not
    fit. Weights come from where they stay from strip to strip: where that is no core's own cache,
    loops over them have the strips inside."""
    weights = weight_bytes(task)
    rounded = candidates.copy()
    rounded[:, -2:] = -(-candidates[:, -2:] // TILE) * TILE
    worked = candidates + (rounded - candidates) * (1 - UNTILED)
    near = min(weights, machine.cache_bytes(2))
    weights_s = float(machine.stream_s(weights, near))
    strip = worked.prod(axis=1) * place_s(task, machine) + weights_s + _start_s(machine)
    strips = -(-drawn[None] // candidates[:, None])
    fits = (drawn[None] >= candidates[:, None]).all(axis=2)
    return np.where(fits, strips.prod(axis=2) * strip[:, None], np.inf)


def _start_s(machine: Machine) -> float:
    """Estimated seconds until a strip has begun. A cycle is that of a full-width multiply-add."""
    cycle_s = 2 * machine.target.lanes() / machine.profile.peak_flops
    return STRIP_START * machine.cpu.kernel_start_cycles * cycle_s


def place_s(task: Task, machine: Machine) -> float:
    """Estimated seconds of the work at a place of the open dimensions."""
    return _flops_per_element(task) / machine.peak_flops("direct")


def _flops_per_element(task: Task) -> float:
    """Operations per element of the open dimensions, of data that is moved as many as it costs."""
    (output,) = task.by_role("output")
    fixed = math.prod(e for e in output.type.shape if isinstance(e, int))
    flops = task_flops(task)
    there = {s for amount in (flops, *output.type.shape) for s in symbols_of(amount)}
    symbols = {s.name: min(max(REPRESENTATIVE, s.low), s.high) for s in there}
    elements = value_at(math.prod(output.type.shape), symbols) // max(1, fixed)
    return max(value_at(flops, symbols) / elements, 8.0 * fixed)

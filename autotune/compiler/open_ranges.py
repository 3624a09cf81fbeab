"""Sizes that a model may have, and those that one program is made for. In: a model with its
symbols, and the ranges that are given. Out: ranges of all symbols; the part of them that a program
can be for all of, where sizes outside are compiled when they are met.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from autotune.defects import NO_DEFECT
from autotune.errors import ModelError, UndecidedError
from autotune.frontend.open_sizes import OpenModel
from autotune.graph.ir import Graph
from autotune.graph.rewriter import kind_of
from autotune.parse_int import LARGEST
from autotune.runtime.open_image import Unit
from autotune.size_ranges import Range, SizeRange, size_ranges
from autotune.sizes import symbol, symbols_of
from autotune.tasks.at_sizes import deciding_lows

ASSUMED_MOST = 1 << 16
"""Up to what a symbol without a range is open in one program."""
FEW = 64
"""Sizes up to here are rather left out than those beyond what is asked: images behind strides."""
SHORT = 16
"""Sizes that models are for whatever they have tables of."""
STEPS = (2, 4, 8, 16, 32, 64)
"""Steps of sizes that are tried where a model is not for all sizes, as images that layers halve
and double."""
MOST_TRIES = 12
"""Questions about sizes that may be left to sizes outside of the program."""
Made = TypeVar("Made")


def covered(
    model: OpenModel,
    ranges: Mapping[str, SizeRange],
    make: Callable[[Mapping[str, SizeRange]], Made],
) -> Made:
    """What `make` gives for the largest part of the ranges that decides all it asks about sizes:
    of the smallest images, nothing may be left behind a stride, sequences end where a table of
    positions does, and images that are halved and doubled are of even sizes. Raises what `make`
    does."""
    tried = {name: _bounded(allowed) for name, allowed in ranges.items()}
    unknown = [name for name, allowed in ranges.items() if allowed.most == LARGEST]
    for _ in range(MOST_TRIES):
        try:
            return make(tried)
        except UndecidedError as error:
            tried = _answered(model, tried, unknown, error)
        except ModelError:
            fewer = _shorter(model, tried, unknown) or _stepped(model, tried, unknown)
            if fewer is None:
                raise
            tried, unknown = fewer, []
    return make(tried)


def units_of(ranges: Mapping[str, SizeRange]) -> tuple[tuple[Unit, ...], dict[str, int]]:
    """What is counted of every symbol, and the symbol's size in terms of that. Sizes that go up in
    steps are so many steps: their halves and quarters are whole numbers, too."""
    units, sizes = [], {}
    for name, allowed in ranges.items():
        step = allowed.step
        first = 0 if allowed.least % step == 0 else allowed.least
        low, high = (allowed.least - first) // step, (allowed.most - first) // step
        units.append(Unit(name=name, least=first, step=step))
        sizes[name] = first + step * symbol(name, low, high)
    return tuple(units), sizes


def ranges_of(model: OpenModel, given: Mapping[str, Range] | None) -> dict[str, SizeRange]:
    """A range of every symbol: what is given, else what the model says, else any size from 1 on,
    or from 0 where new rows are put behind so many: past keys and values. Raises ConfigError."""
    ranges = size_ranges({**model.limits(), **(given or {})}, model.symbols)
    unknown = [name for name, allowed in ranges.items() if allowed.most == LARGEST]
    return ranges | dict.fromkeys(_put_before_others(model, ranges, unknown), SizeRange(least=0))


def _put_before_others(
    model: OpenModel, ranges: Mapping[str, SizeRange], names: Collection[str]
) -> list[str]:
    """Symbols of these that count rows which others are put behind, and nothing else."""
    if not names or len(ranges) == 1:  # what is put behind has a size of its own
        return []
    graph = _at_some_lengths(model, ranges, names)
    if graph is None:
        return []
    return [
        name
        for name in names
        if (fed := [i for i, kind in graph.inputs if name in _names(kind.shape)])
        and all(_joined(graph, value, name) for value in fed)
    ]


def _at_some_lengths(
    model: OpenModel, ranges: Mapping[str, SizeRange], names: Collection[str]
) -> Graph | None:
    """The model where these symbols may be long, or else are short, as what a table of positions
    is read by; None where it is neither."""
    short = {name: replace(ranges[name], most=max(SHORT, ranges[name].least)) for name in names}
    for tried in (ranges, {**ranges, **short}):
        try:
            return _opened(model, {name: _bounded(allowed) for name, allowed in tried.items()})
        except ModelError:  # whoever makes the program says what is wrong
            continue
        except NO_DEFECT:
            raise
        except Exception:  # no program, either
            continue
    return None


# ------------------------------------------------------------------------------------------- parts


def _bounded(allowed: SizeRange) -> SizeRange:
    if allowed.most < LARGEST:
        return allowed
    return replace(allowed, most=max(ASSUMED_MOST, 2 * allowed.least))


def _answered(
    model: OpenModel,
    ranges: Mapping[str, SizeRange],
    unknown: Collection[str],
    error: UndecidedError,
) -> dict[str, SizeRange]:
    """Ranges that begin, or end, where a question about sizes has one answer: without a few short
    ones, if that is enough; else no longer than asked, if nobody said how long. Raises the
    error where there are none."""
    units, _ = units_of(ranges)
    counts = deciding_lows(error)
    lows = {unit.name: unit.size(counts[unit.name]) for unit in units if unit.name in counts}
    if any(low > ranges[name].most for name, low in lows.items()):
        lows = {}
    later = {**ranges, **{name: _from(ranges[name], low) for name, low in lows.items()}}
    if lows and max(lows.values()) <= FEW and _imports(model, later, ()):
        return later
    shorter = _shorter(model, ranges, [name for name in unknown if name in _asked(error)])
    if shorter is None and (not lows or max(lows.values()) > FEW):
        shorter = _shorter(model, ranges, unknown)
    if shorter is None and not lows:  # the others are compiled when they are met
        shorter = _shorter(model, ranges, sorted(_asked(error)))
    if shorter is None and not lows:
        raise error
    return later if shorter is None else shorter


def _shorter(
    model: OpenModel, ranges: Mapping[str, SizeRange], names: Collection[str]
) -> dict[str, SizeRange] | None:
    """Ranges in which these symbols end where the model can be imported for all of them; None
    where that is no matter of where they end. First all of them end at the same size, so that of
    two that must not be too long together none takes all; then each may be longer."""

    def upto(ends: Mapping[str, int]) -> dict[str, SizeRange]:
        most = {n: replace(ranges[n], most=e) for n, e in ends.items()}
        return {**ranges, **most}

    found = {name: max(SHORT, ranges[name].least) for name in names}
    if not names or not _imports(model, upto(found), names):
        return None
    for some in (list(names), *([name] for name in names)):
        low, high = max(found[n] for n in some), max(ranges[n].most for n in some) + 1
        at = high - 1
        while high - low > 1:
            tried = found | {n: min(max(at, found[n]), ranges[n].most) for n in some}
            if _imports(model, upto(tried), names):
                low, found = at, tried
            else:
                high = at
            at = (low + high) // 2
    return upto(found)


def _stepped(
    model: OpenModel, ranges: Mapping[str, SizeRange], names: Collection[str]
) -> dict[str, SizeRange] | None:
    """Ranges in which these symbols go up in the least steps with which the model can be imported,
    each of them in single ones where that is no matter; None where steps are none."""

    def by(step: int, some: Collection[str]) -> dict[str, SizeRange]:
        return {
            name: _multiples(allowed, step) if name in some else allowed
            for name, allowed in ranges.items()
        }

    for step in STEPS if names else ():
        if not _imports(model, by(step, names), names):
            continue
        needed = list(names)
        for name in names:
            others = [n for n in needed if n != name]
            needed = others if _imports(model, by(step, others), names) else needed
        return by(step, needed)
    return None


def _multiples(allowed: SizeRange, step: int) -> SizeRange:
    """The multiples of a step in a range whose own step is 1."""
    least, most = (-(-max(1, allowed.least) // step) * step, allowed.most // step * step)
    return replace(allowed, least=least, most=most, step=step)


def _imports(model: OpenModel, ranges: Mapping[str, SizeRange], names: Collection[str]) -> bool:
    """Whether the model can be imported for all sizes, as far as these symbols decide."""
    try:
        _opened(model, ranges)
    except ModelError:
        return False
    except UndecidedError as error:
        return not _asked(error).intersection(names)
    return True


def _asked(error: UndecidedError) -> set[str]:
    """Symbols that a question is about."""
    return _names(error.question or ())


def _opened(model: OpenModel, ranges: Mapping[str, SizeRange]) -> Graph:
    return model.open_graph(units_of(ranges)[1])


def _from(allowed: SizeRange, low: int) -> SizeRange:
    """The sizes of a range that are at least `low`."""
    steps = -(-max(0, low - allowed.least) // allowed.step)
    return replace(allowed, least=allowed.least + steps * allowed.step)


def _names(shape: tuple[int, ...]) -> set[str]:
    return {s.name for extent in shape for s in symbols_of(extent)}


def _joined(graph: Graph, value: str, name: str) -> bool:
    """Whether all that reads a value puts its rows before others, perhaps in another order or
    from another place of them."""
    readers = [node for node in graph.nodes if value in node.inputs]
    for node in readers:
        if node.op == "concat":
            axis = int(str(node.attributes["axis"]))
            extent = graph.types[value].shape[axis]
            others = node.inputs[1:]
            if name not in _names((extent,)) or not others or value in others:
                return False
        elif kind_of(node.op) != "view" or not _joined(graph, node.output, name):
            return False
    return bool(readers)

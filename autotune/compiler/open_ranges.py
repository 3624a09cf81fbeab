"""Sizes that a model may have, and those that one program is made for. In: a model with its
symbols, and the ranges that are given. Out: ranges of all symbols; the part of them that a program
can be for all of, where sizes outside are compiled when they are met.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from autotune.defects import NO_DEFECT
from autotune.errors import ModelError, UndecidedError
from autotune.frontend.open_sizes import OpenModel
from autotune.graph.ir import Graph
from autotune.graph.rewriter import kind_of
from autotune.parse_int import LARGEST
from autotune.size_ranges import Range, SizeRange, size_ranges
from autotune.sizes import symbol, symbols_of
from autotune.tasks.at_sizes import deciding_lows

ASSUMED_MOST = 1 << 16
"""Up to what a symbol without a range is open in one program."""
MOST_TRIES = 12
"""Questions about sizes that may be left to sizes outside of the program."""
Made = TypeVar("Made")


def covered(
    ranges: Mapping[str, SizeRange], make: Callable[[Mapping[str, SizeRange]], Made]
) -> Made:
    """What `make` gives for the largest part of the ranges that decides all it asks about sizes:
    of the smallest images, nothing may be left behind a stride. Raises what `make` does."""
    tried = {name: _bounded(allowed) for name, allowed in ranges.items()}
    for _ in range(MOST_TRIES):
        try:
            return make(tried)
        except UndecidedError as error:
            lows = deciding_lows(error)
            if not lows or any(not _has(tried[name], low) for name, low in lows.items()):
                raise
            tried |= {name: _from(tried[name], low) for name, low in lows.items()}
    return make(tried)


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
    if len(ranges) == len(names) == 1:  # there are others, of which some are put behind
        return []
    bounded = {name: _bounded(allowed) for name, allowed in ranges.items()}
    try:
        graph = model.open_graph({n: symbol(n, a.least, a.most) for n, a in bounded.items()})
    except ModelError:  # whoever makes the program says what is wrong
        return []
    except NO_DEFECT:
        raise
    except Exception:  # no program, either
        return []
    return [
        name
        for name in names
        if (fed := [i for i, kind in graph.inputs if name in _names(kind.shape)])
        and all(_joined(graph, value, name) for value in fed)
    ]


# ------------------------------------------------------------------------------------------- parts


def _bounded(allowed: SizeRange) -> SizeRange:
    if allowed.most < LARGEST:
        return allowed
    return dataclasses.replace(allowed, most=max(ASSUMED_MOST, 2 * allowed.least))


def _has(allowed: SizeRange, low: int) -> bool:
    return low <= allowed.most


def _from(allowed: SizeRange, low: int) -> SizeRange:
    """The sizes of a range that are at least `low`."""
    steps = -(-max(0, low - allowed.least) // allowed.step)
    return dataclasses.replace(allowed, least=allowed.least + steps * allowed.step)


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

"""The network as a drawing of its kernel calls. In: a partition, times of its tasks. Out: SVG.

One row a call, in the order of execution, with an edge from every call whose results it reads.
Edges run in lanes, as histories of commits are drawn: a call holds its lane until its last reader.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.placement.types import Partition
from autotune.report.svg import heading, picture, shortened
from autotune.tasks.describe import describe

ROW, LANE, MOST_LANES = 20, 14, 12
"""Pixels, pixels, and lanes that are drawn beside each other: what is beyond shares the last."""
_BAR, _TIME, _WIDTH = 180, 120, 940


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A kernel call of the network."""

    key: str
    """The key of its task."""
    what: str
    name: str
    """The model's own node names."""
    inputs: tuple[int, ...]
    """Earlier calls whose results it reads, by their place in the order of execution."""


def calls_of(partition: Partition) -> tuple[Call, ...]:
    """Every call, and the calls that wrote what it reads: views are where their storage is."""
    writers: dict[str, list[int]] = defaultdict(list)
    found = []
    for number, call in enumerate(partition.calls):
        args, roles = dict(call.args), {v.name: v.role for v in call.task.values}
        read = [partition.placements[args[n]].storage for n in args if roles[n] == "input"]
        inputs = sorted({writer for storage in read for writer in writers.get(storage, ())})
        found.append(
            Call(key=call.task.key, what=describe(call.task), name=call.name, inputs=tuple(inputs))
        )
        for name in args:
            if roles[name] == "output":
                writers[partition.placements[args[name]].storage].append(number)
    return tuple(found)


def lanes(calls: Sequence[Call]) -> tuple[int, ...]:
    """The lane of each call: of an input that nobody reads later, else the first free one."""
    last = {i: number for number, call in enumerate(calls) for i in call.inputs}
    held: dict[int, int] = {}
    """Lane -> the call whose result runs along it."""
    found: list[int] = []
    for number, call in enumerate(calls):
        ended = [lane for lane, owner in held.items() if last.get(owner, owner) <= number]
        for lane in ended:
            del held[lane]
        lane = next(n for n in range(len(calls) + 1) if n not in held)
        own = [found[i] for i in call.inputs if found[i] in ended]
        lane = min(own, default=lane)
        held[lane] = number
        found.append(lane)
    return tuple(found)


def drawing(calls: Sequence[Call], time_s: Mapping[str, float], label: Mapping[str, str]) -> str:
    """Bars are times; `label`: what is written beside the bar of a task."""
    places = [min(lane, MOST_LANES - 1) for lane in lanes(calls)]
    left = (max(places, default=0) + 1) * LANE + 8
    most = max(time_s.values(), default=0.0) or 1.0
    parts = [
        _edge((places[i], i), (places[number], number))
        for number, call in enumerate(calls)
        for i in call.inputs
    ]
    for number, call in enumerate(calls):
        share = time_s.get(call.key, 0.0) / most
        parts.append(_row(call, _at(places[number], number), left, share, label.get(call.key)))
    return picture(_WIDTH, len(calls) * ROW + 4, parts)


def _row(call: Call, at: tuple[int, int], left: int, share: float, label: str | None) -> str:
    """`share`: of the longest time."""
    x, y = at
    bar, said = _WIDTH - _BAR - _TIME, label or "not measured"
    text = shortened(call.what, max(20, (bar - left) // 7))
    return (
        f"<g>{heading(f'{call.what}, {call.name}: {said}')}"
        f'<circle class="node" cx="{x}" cy="{y}" r="{3 + 4 * share:.1f}"/>'
        f'<text x="{left}" y="{y + 4}">{html.escape(text)}</text>'
        f'<rect class="bar s0" x="{bar}" y="{y - 6}" width="{max(1.0, _BAR * share):.1f}" '
        f'height="12"/><text class="name" x="{bar + _BAR * share + 6:.1f}" y="{y + 4}">'
        f"{html.escape(said)}</text></g>"
    )


def _at(lane: int, row: int) -> tuple[int, int]:
    return 8 + lane * LANE, 12 + row * ROW


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Down the lane of where it comes from, and over to its reader in the last row."""
    (x0, y0), (x1, y1) = _at(*start), _at(*end)
    bend = y1 - ROW
    path = f"M{x0} {y0}V{bend}" if bend > y0 else f"M{x0} {y0}"
    return f'<path class="edge" d="{path}C{x0} {y1 - 6} {x1} {max(bend, y0) + 6} {x1} {y1}"/>'

"""The search for rewrites that make a graph faster. In: a graph after the passes, rewrites. Out:
the graph that is predicted to be fastest among those found, and its derivation.

A beam search over graphs: a step rewrites all the places in a graph that are alike, together, and
the passes tidy up. It ends when nothing is left to try or time is up, with the best so far.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.apply import apply
from autotune.rewrite.cost import Costs
from autotune.rewrite.estimate import MatchEstimate
from autotune.rewrite.match import Finder, Match
from autotune.rewrite.memory import NewConstants
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.settled import apart, fewer_of_the_same, settled
from autotune.sizes import any_size
from autotune.types import Array, Task

TIME_S = 2.0
"""Seconds of a search, unless more are asked for."""
_WIDTH = 3
"""Graphs of as many steps that are gone on from, unless more are asked for."""
_WIDEST = 24
"""The same, at most, where there is more time: as many as usual for each usual search of it."""
MEMORY_BYTES = 2 << 30
"""Bytes of new constants, at most, that the graphs of a search hold at once."""
_DEPTH = 8
"""Steps of a derivation."""
_ROUNDS = 4
"""Runs of the passes over a graph that was rewritten, at most."""
_SUMMED = 4096
"""Elements of a constant that tell it from others."""
_LOSS = 1.02
"""Share of a time that a graph may take which is only on the way to another."""
_SURE = 0.85
"""Share of a predicted time that a graph may take to be preferred; predictions are coarse."""
_SURE_MEASURED = 0.98
"""The same where every task that differs was measured."""
_FEW_WAYS = 6
"""Ways to take a step that are all tried: what gains at all places may gain more at some."""
_DECIDING = 3
"""Graphs, at most, whose tasks are worth measuring to choose one of them."""
_WORTH_S = 2e-6
"""Seconds below which a gain is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A step of a derivation: the rewrite, the model's nodes that it replaced, and the seconds
    that the kernels which differ take before and after: predicted, and as the log has them. None
    of a step that was taken together with the next one, which has the times of both."""

    rewrite: str
    places: tuple[str, ...]
    expected_s: tuple[float, float] | None
    measured_s: tuple[float, float] | None = None

    def __str__(self) -> str:
        ways = ((self.expected_s, "predicted"), (self.measured_s, "measured"))
        times = "; ".join(
            f"{seconds[0] * 1e6:.1f} us become {seconds[1] * 1e6:.1f}, {how}"
            for seconds, how in ways
            if seconds
        )
        shown = ", ".join(self.places[:4]) + (", ..." if len(self.places) > 4 else "")
        return (
            f"{self.rewrite} at {len(self.places)} place{'s' * (len(self.places) > 1)} ({shown}): "
            f"{times or 'with the next one'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`complete`: whether the search ended before its time did."""

    graph: Graph
    steps: tuple[Derived, ...] = ()
    complete: bool = True
    decisive: tuple[Task, ...] = ()
    """Tasks by which the graphs that are predicted to be fastest differ from the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    graph: Graph
    tasks: Counter[Task]
    steps: tuple[Derived, ...] = ()
    gain_s: float = 0.0
    """Seconds less than the graph that the search began with."""
    expected_s: float = 0.0
    """The same by predictions alone."""
    sure: bool = False
    """Whether the gain is more than predictions may be off by."""


class _Deadline:
    """When a search ends."""

    def __init__(self, clock: Callable[[], float], time_s: float) -> None:
        self._clock, self._ends_s = clock, clock() + time_s

    @property
    def over(self) -> bool:
        return self._clock() > self._ends_s

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """It ends later by as much as what is done takes."""
        begin_s = self._clock()
        yield
        self._ends_s += self._clock() - begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchRun:
    """What all steps of a search share. `seen`: digests of graphs."""

    costs: Costs
    first: _State
    deadline: _Deadline
    seen: set[str] = field(default_factory=set)


def search(
    graph: Graph,
    rewrites: Sequence[Rewrite],
    costs: Costs,
    time_s: float = TIME_S,
    clock: Callable[[], float] = time.thread_time,
    *,
    width: int = _WIDTH,
    memory_bytes: int = MEMORY_BYTES,
) -> Found:
    """The best graph found in so many seconds; the same one where nothing gains. `width`: graphs
    that are gone on from, of those of as many steps; `memory_bytes`: of new constants, from which
    on the search ends as if its time were over."""
    if not rewrites or any(any_size(t.shape) for t in graph.types.values()):
        return Found(graph=graph)
    estimate = MatchEstimate(costs.machine, merges=costs.measures)
    less, taken = settled(graph, rewrites)
    if not taken and next(_steps(graph, rewrites, estimate), None) is None:
        return Found(graph=graph)
    first = _State(graph=graph, tasks=costs.tasks(graph))
    run = _SearchRun(costs=costs, first=first, deadline=_Deadline(clock, time_s))
    run.seen.add(_digest(graph))
    lossy = _reached(run, first, less, taken, most=math.inf)
    ahead = lossy if taken else None
    best = ahead if ahead is not None and _no_worse(first, ahead) else first
    # Both, since what is never more work may be on the way, though it is slower by itself.
    beam = [best] if ahead in (None, best) else [best, ahead]
    promising = _foremost(beam)
    complete = True
    for _ in range(_DEPTH):
        reached: list[_State] = []
        held = NewConstants(graph, (s.graph for s in (best, *beam, *promising)))
        for state in beam:
            for ways in _steps(state.graph, rewrites, estimate):
                if run.deadline.over or held.nbytes > memory_bytes:
                    complete = False
                    break
                for found in _tried(run, state, ways):
                    held.add(found.graph)
                    reached.append(found)
        reached.sort(key=lambda s: -s.gain_s)
        beam = reached[:width]
        promising = _foremost([*promising, *reached])
        best = max([best, *(s for s in reached if s.sure)], key=_worth)
        if not beam or not complete:
            break
    return Found(
        graph=best.graph, steps=best.steps, complete=complete,
        decisive=_decisive(first, [best, *promising]),
    )  # fmt: skip


def width_for(time_s: float) -> int:
    """Graphs of as many steps that are gone on from in a search of so many seconds."""
    return min(_WIDEST, _WIDTH * max(1, int(time_s / TIME_S)))


def _no_worse(first: _State, ahead: _State) -> bool:
    """Whether steps that are never more work gain, or leave operators out and lose nothing."""
    fewer = ahead.gain_s == 0.0 and fewer_of_the_same(first.graph, ahead.graph)
    return ahead.gain_s > 0.0 or fewer


def _worth(state: _State) -> float:
    """Seconds gained, less what a step has to gain."""
    return state.gain_s - _WORTH_S * sum(step.expected_s is not None for step in state.steps)


def _foremost(states: list[_State]) -> list[_State]:
    """Those that are predicted to gain most, whatever was measured."""
    gaining = [s for s in states if s.expected_s > _WORTH_S]
    return sorted(gaining, key=lambda s: -s.expected_s)[:_DECIDING]


def _decisive(first: _State, others: list[_State]) -> tuple[Task, ...]:
    """Tasks in which these differ from the first, each once, in order."""
    differing = ([*(first.tasks - s.tasks), *(s.tasks - first.tasks)] for s in others)
    return tuple(dict.fromkeys(task for tasks in differing for task in tasks))


def _steps(
    graph: Graph, rewrites: Sequence[Rewrite], estimate: MatchEstimate
) -> Iterator[list[list[Match]]]:
    """What a step may be, rewrite by rewrite: all of its matches, then those that are alike."""
    finder = Finder(graph)
    for rewrite in rewrites:
        promising = [m for m in finder.matches(rewrite) if estimate.promises(m, finder)]
        alike: dict[str, list[Match]] = {}
        for match in promising:
            kinds = {n: str(graph.types[v]) for n, v in match.values.items()}
            alike.setdefault(repr((sorted(match.symbols.items()), kinds)), []).append(match)
        ways = [*([promising] if len(alike) > 1 else []), *alike.values()]
        if ways:
            yield [apart(matches, finder) for matches in ways]


def _tried(run: _SearchRun, state: _State, ways: list[list[Match]]) -> Iterator[_State]:
    """The states behind the ways to take a step; of many, the first that gains is enough."""
    for matches in ways:
        graph = apply(state.graph, matches)
        after = None if graph is None else _reached(run, state, graph, [matches])
        if after is not None:
            yield after
            if after.gain_s > state.gain_s and len(ways) > _FEW_WAYS:
                return
        if run.deadline.over:
            return


def _reached(
    run: _SearchRun, state: _State, graph: Graph, taken: list[list[Match]], most: float = _LOSS
) -> _State | None:
    """The state of a graph behind steps that were taken together; None as of one that was seen, or
    takes more than `most` of the time before: what gains nothing by itself may be on the way to
    what does."""
    costs, first = run.costs, run.first
    graph = _tidy(graph)
    digest = _digest(graph)
    if digest in run.seen:
        return None
    run.seen.add(digest)
    tasks = costs.tasks(graph)
    with run.deadline.later():  # what every step is compared with is no search yet
        costs.gone(first.tasks, tasks)
    expected, measured = costs.expected(state.tasks, tasks), costs.measured(state.tasks, tasks)
    before_s, after_s = measured or expected
    if after_s > before_s * most + _WORTH_S:
        return None
    steps = [
        Derived(
            rewrite=matches[0].rewrite.name,
            places=tuple(m.roots[0].name for m in matches),
            expected_s=expected if matches is taken[-1] else None,
            measured_s=measured if matches is taken[-1] else None,
        )
        for matches in taken
    ]
    predicted, known = costs.expected(first.tasks, tasks), costs.measured(first.tasks, tasks)
    was_s, is_s = known or predicted
    share = _SURE_MEASURED if known else _SURE
    sure = is_s <= share * was_s and was_s - is_s > _WORTH_S
    return _State(
        graph=graph, tasks=tasks, steps=(*state.steps, *steps), gain_s=was_s - is_s,
        expected_s=predicted[0] - predicted[1],
        sure=sure or (is_s < was_s and fewer_of_the_same(first.graph, graph)),
    )  # fmt: skip


def _tidy(graph: Graph) -> Graph:
    """The graph cleaned until nothing changes: what one pass moves, an earlier one may merge."""
    before = ""
    for _ in range(_ROUNDS):
        graph = optimize(graph, CLEAN)
        after = _digest(graph)
        if after == before:
            break
        before = after
    return graph


def _digest(graph: Graph) -> str:
    """Equal for graphs of equal nodes over equal constants, whatever their values are called."""
    names: dict[str, str] = {n: f"c{a.shape}{_sum(a)}" for n, a in graph.constants.items()}
    names |= {name: f"i{name}" for name, _ in graph.inputs}
    for node in graph.nodes:
        text = f"{node.op}({','.join(names[i] for i in node.inputs)}){node.attrs!r}"
        names[node.output] = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return ",".join(names[value] for _, value in graph.outputs)


def _sum(array: Array) -> float:
    """A sum of some elements, in the order of memory."""
    return float(array.ravel(order="K")[:_SUMMED].sum())

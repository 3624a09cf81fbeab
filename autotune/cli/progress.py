"""Display of a tuning run. In: the tuner's events. Out: a live table, or plain lines.

`RunView` is the state both draw from; it only remembers what the events say.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from autotune.cli import tables
from autotune.measure.types import Status
from autotune.printable import printable
from autotune.tuner.events import (
    Event,
    Finished,
    OnEvent,
    Progress,
    Ranked,
    Round,
    Started,
    TaskInfo,
    TaskRanking,
    TrialDone,
)

if TYPE_CHECKING:
    from rich.console import Console

ROWS = 30
"""Tasks of the live table; the heaviest ones are shown."""


@dataclass(slots=True, kw_only=True)
class TaskLine:
    """One task's row of the display."""

    info: TaskInfo
    trials: int
    failures: int
    best_s: float | None
    gflops: float = 0.0
    of_peak: float = 0.0
    achievable_s: float = 0.0

    @property
    def share_s(self) -> float:
        """Seconds of one run of the model, as far as known."""
        return self.info.weight * (self.best_s or self.info.achievable_s)

    def cells(self) -> tuple[str, ...]:
        return (
            self.info.task.key,
            printable(self.info.name[:40], 60),
            str(self.info.weight),
            tables.seconds(self.best_s),
            f"{self.gflops:.1f}" if self.gflops else "-",
            f"{self.of_peak:.0%}" if self.of_peak else "-",
            tables.seconds(self.achievable_s),
            str(self.trials),
            str(self.failures),
        )


HEADER = (
    "task", "nodes", "calls", "best", "GFLOP/s", "of peak", "achievable", "trials", "failed",
)  # fmt: skip
"""GFLOP/s and its share of the multiply-add peak are effective: direct arithmetic over time, which
exceeds the peak where an algorithm does with less."""
ACHIEVABLE = (
    "achievable: the time that more trials may reach, by the cost model, by how lately trials "
    "gained, and by the machine's limit"
)
RIGHT = (2, 3, 4, 5, 6, 7, 8)
DISPENSABLE = ("achievable", "nodes", "calls", "GFLOP/s", "failed")
"""Columns that a narrow terminal goes without, the first of them first."""
NAME_WIDTH = 16
"""Characters that the text of a row is cut to, at most: its numbers are never cut."""


@dataclass(slots=True)
class RunView:
    """The run as the events so far tell it."""

    lines: list[TaskLine] = field(default_factory=list)
    progress: Progress | None = None
    device: str = ""
    reason: str = ""
    doing: str = ""

    def take(self, event: Event) -> None:
        self.progress = event.progress
        if isinstance(event, Started):
            self.device = f"{event.device} ({event.target})"
            self.lines = [_line(info) for info in event.tasks]
        elif isinstance(event, Round):
            names = (self.lines[s.task].info.task.key for s in event.shares)
            self.doing = f"round {event.number}: {', '.join(names)}"
        elif isinstance(event, TrialDone):
            line = self.lines[event.task]
            line.trials, line.failures = event.trials, event.failures
            line.best_s, line.gflops = event.best_s, event.gflops
            line.of_peak, line.achievable_s = event.of_peak, event.achievable_s
        elif isinstance(event, Finished):
            self.reason = event.reason

    def ranked(self, ranking: TaskRanking) -> str:
        """A task's cost model in one line."""
        key = self.lines[ranking.task].info.task.key
        correlation, recall, regret = tables.ranking(
            ranking.rank_correlation, ranking.top_recall, ranking.regret
        )
        return (
            f"  {key}: {ranking.samples} predicted, rank correlation {correlation}, "
            f"top-quarter recall {recall}, regret {regret}"
        )

    def heaviest(self) -> list[TaskLine]:
        return sorted(self.lines, key=lambda line: -line.share_s)


def _line(info: TaskInfo) -> TaskLine:
    line = TaskLine(info=info, trials=info.trials, failures=info.failures, best_s=info.best_s)
    line.achievable_s = info.achievable_s
    if info.best_s:
        line.gflops = info.flops / info.best_s / 1e9
        line.of_peak = info.flops / info.best_s / info.peak_flops
    return line


def headline(progress: Progress) -> str:
    """The run in one line: trials, latency now and its gain, time left."""
    planned = f"/{progress.planned}" if progress.planned else ""
    parts = [f"{progress.trials}{planned} trials", f"{progress.failures} failed"]
    if progress.now_s:
        parts.append(f"model {tables.seconds(progress.now_s)}")
        if progress.before_s:
            gain = progress.before_s / progress.now_s
            parts.append(f"{gain:.2f}x faster than {tables.seconds(progress.before_s)}")
    parts.append(f"{_clock(progress.elapsed_s)} elapsed")
    if progress.left_s is not None:
        parts.append(f"{_clock(progress.left_s)} left")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


class PlainLines:
    """A line per round and per failure: for logs and pipes. `verbose`: per round also how well its
    tasks' candidates were ranked before they were measured."""

    def __init__(self, out: TextIO, *, verbose: bool = False) -> None:
        self._out = out
        self._verbose = verbose
        self._board = RunView()

    def __call__(self, event: Event) -> None:
        self._board.take(event)
        if isinstance(event, Started):
            count = len(event.tasks)
            device = printable(self._board.device)
            self._say(f"{count} tasks on {device}; {headline(event.progress)}")
        elif isinstance(event, Round):
            self._say(f"round {event.number}: {headline(event.progress)}")
        elif isinstance(event, TrialDone) and event.record.result.status is not Status.OK:
            result = event.record.result
            self._say(f"{event.record.task.key}: {result.status}: {printable(result.error)}")
        elif isinstance(event, Ranked) and self._verbose:
            for ranking in event.tasks:
                self._say(self._board.ranked(ranking))
        elif isinstance(event, Finished):
            rows = [line.cells() for line in self._board.heaviest()]
            self._say(tables.table(HEADER, rows, RIGHT))
            self._say(ACHIEVABLE)
            self._say(f"{headline(event.progress)}; ended: {printable(event.reason)}")

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class LiveTable:
    """The table redrawn in place, for a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._board = RunView()
        self._console = console
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._draw, transient=True
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._console.print(self._draw())

    def __call__(self, event: Event) -> None:
        self._board.take(event)

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        board = self._board
        if board.progress is None:
            return Text("measuring the device ...")
        rows = [line.cells() for line in board.heaviest()[:ROWS]]
        shown = columns_that_fit(rows, self._console.width)
        grid = Table(title=Text(printable(board.device)), title_justify="left")
        for number in shown:
            # Columns that may wrap are the ones that become narrower; their cells are cut instead.
            right = number in RIGHT
            grid.add_column(HEADER[number], justify="right" if right else "left", no_wrap=right)
        for cells in rows:
            grid.add_row(*(Text(cells[n], no_wrap=True, overflow="ellipsis") for n in shown))
        hidden = len(board.lines) - ROWS
        more = [Text(f"and {hidden} lighter tasks")] if hidden > 0 else []
        last = (
            f"ended: {printable(board.reason)}"
            if board.reason
            else board.doing[: self._console.width]
        )
        return Group(grid, *more, Text(headline(board.progress)), Text(last))


def columns_that_fit(rows: Sequence[tables.Row], width: int) -> list[int]:
    """The columns, by number, to show on a terminal of that width."""
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    least = [w if n in RIGHT else min(w, NAME_WIDTH) for n, w in enumerate(widths)]
    shown = list(range(len(HEADER)))
    for name in DISPENSABLE:
        if sum(least[n] + 3 for n in shown) + 1 <= width:  # with borders and blanks
            break
        shown.remove(HEADER.index(name))
    return shown


@contextlib.contextmanager
def display(
    out: TextIO,
    make_console: Callable[[], Console] | None = None,
    *,
    ending: str = "",
    verbose: bool = False,
) -> Iterator[OnEvent]:
    """A listener for the tuner's events that fits `out`: live on a terminal, else, and with
    `verbose`, plain lines.

    `ending` takes the place of the tuner's reason for ending."""
    if verbose or (make_console is None and not out.isatty()):
        yield _ending(PlainLines(out, verbose=verbose), ending)
        return
    from rich.console import Console  # costs start-up time that pipes need not pay

    with LiveTable(make_console() if make_console else Console(file=out)) as live:
        yield _ending(live, ending)


def _ending(listener: OnEvent, reason: str) -> OnEvent:
    def on_event(event: Event) -> None:
        if reason and isinstance(event, Finished):
            event = dataclasses.replace(event, reason=reason)
        listener(event)

    return on_event

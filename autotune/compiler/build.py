"""Kernels of a model. In: unique tasks and their candidate schedules. Out: object code per task.

A schedule that no longer applies, or that the code generator refuses, is noted and the next
candidate is taken. Builds run in worker processes, one per core, where that pays.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from autotune.compiler.choose import Candidate, candidates
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT, described, tell
from autotune.errors import BuildError, ScheduleError
from autotune.machine.profile import DeviceProfile
from autotune.measure.build_task import build_scheduled, build_task
from autotune.measure.builds import build_reply, outcome_of
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.executor import Built
from autotune.measure.process import WorkerProcess
from autotune.measure.sandbox import Sandbox
from autotune.measure.types import MeasureRequest, MeasureResult
from autotune.placement.unaligned import UnalignedParams
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.sound import settled_by

SERIAL_BELOW = 16
"""With fewer kernels, starting worker processes (0.4 to 0.6 s) takes longer than building here (30
to 50 ms each): two processes pay from about 25 kernels on, sixteen from about 14."""
BUILD_TIMEOUT_S = 120.0
"""Seconds of building one kernel."""

Known = Callable[[Task, Schedule], Built | None]
"""Kernels that are built already; None for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Object code and schedule per task, where that came from, and what went wrong on the way."""

    built: dict[Task, Built]
    chosen: dict[Task, Candidate]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Schedules that take the place of records where there are none."""

    profile: DeviceProfile | None = None
    """The machine that default schedules are for, if it is known."""
    preferred: Mapping[Task, Config] = field(default_factory=dict)
    """Defaults that were chosen for the whole model."""
    unrecorded: Set[Task] = frozenset()
    """Tasks of which the log is not asked."""


def build_kernels(
    tasks: Sequence[Task],
    target: Target,
    log: LogStore | None,
    processes: int,
    *,
    unaligned: UnalignedParams | None = None,
    known: Known | None = None,
    defaults: Defaults | None = None,
) -> Kernels:
    """Build every task that is not `known`, by the log's records and `defaults`. Raises BuildError
    where not even the loops as they are can be built."""
    unaligned, wanted = unaligned or {}, defaults or Defaults()
    logs = {t: None if t in wanted.unrecorded else log for t in tasks}
    profile, preferred = wanted.profile, wanted.preferred
    waiting = {t: candidates(t, target, logs[t], profile, preferred.get(t)) for t in tasks}
    first = {task: _next(found, task.key) for task, found in waiting.items()}
    there = {t: known(t, c.schedule) for t, c in first.items() if known and t not in unaligned}
    missing = [task for task in first if there.get(task) is None]
    with _Pool(target, processes if len(missing) >= SERIAL_BELOW else 1, unaligned) as pool:
        made = iter(pool.build_all([(task, first[task]) for task in missing]))
        built, chosen = {}, {}
        notes: list[str] = []
        for task, best in first.items():
            choice, outcome = best, there.get(task) or next(made)
            notes += best.said
            while isinstance(outcome, Refusal):
                failed = _failing(task, choice, outcome)
                ours = _is_defect(choice, outcome, task in unaligned)
                choice = _next(waiting[task], failed)
                instead = f"using the {choice.source} schedule"
                told = tell(failed, instead) if ours else f"{failed}; {instead}"
                notes += [told, *choice.said]
                outcome = pool.build_all([(task, choice)])[0]
            built[task], chosen[task] = outcome, choice
    return Kernels(built=built, chosen=chosen, notes=tuple(notes))


def _is_defect(choice: Candidate, outcome: Refusal, unaligned: bool) -> bool:
    """Records may be stale, and a default asks that values begin at even places; anything else
    that fails should not."""
    return (
        outcome.defect
        or (choice.source == "default" and not unaligned)
        or choice.source == "plain"
    )


def _failing(task: Task, choice: Candidate, outcome: Refusal) -> str:
    """Which candidate fails and why; of what should never raise, the config, too."""
    settled = f" with {settled_by(choice.config)}" if choice.config and outcome.defect else ""
    return f"{task.key}: the {choice.source} schedule{settled} fails ({outcome.reason})"


def _next(found: Iterator[Candidate], note: str) -> Candidate:
    choice = next(found, None)
    if choice is None:
        raise BuildError(f"{note} and there is no other; this is a defect, please report the task")
    return choice


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason that there is no kernel. `defect`: something raised what no schedule should."""

    reason: str
    defect: bool = False

    @staticmethod
    def of(error: Exception) -> Refusal:
        return Refusal(described(error), not isinstance(error, ScheduleError | BuildError))


class _Pool:
    """Builds in this process, or in worker processes that are gone when the `with` block ends."""

    def __init__(self, target: Target, processes: int, unaligned: UnalignedParams) -> None:
        self._target, self._unaligned = target, unaligned
        count = processes if processes > 1 else 0
        bounds = sandbox_for(target, Sandbox())
        self._workers = [WorkerProcess(sandbox=bounds) for _ in range(count)]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> _Pool:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()

    def build_all(self, jobs: Sequence[tuple[Task, Candidate]]) -> list[Built | Refusal]:
        """A kernel or the reason why there is none, per job."""
        if not self._workers or len(jobs) == 1:
            return [self._here(task, choice) for task, choice in jobs]
        with ThreadPoolExecutor(len(self._workers)) as threads:
            return list(threads.map(lambda job: self._there(*job), jobs))

    def _here(self, task: Task, choice: Candidate) -> Built | Refusal:
        unaligned = self._unaligned.get(task, frozenset())
        try:
            if choice.program is not None and not unaligned:
                return build_scheduled(task, choice.program, self._target)
            return build_task(task, choice.schedule, self._target, unaligned)
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect ends no compile: the next candidate is taken
            return Refusal.of(error)

    def _there(self, task: Task, choice: Candidate) -> Built | Refusal:
        if task in self._unaligned:
            return self._here(task, choice)
        request = MeasureRequest(task=task, schedule=choice.schedule, target=self._target)
        worker = self._idle.get()
        where = "the compiler process"
        try:
            reply, code = build_reply(worker.call, request.to_json(), BUILD_TIMEOUT_S, where)
        finally:
            self._idle.put(worker)
        outcome = outcome_of(reply, code)
        if isinstance(outcome, MeasureResult):
            return Refusal(outcome.error, bool(reply.get("defect")))
        return outcome

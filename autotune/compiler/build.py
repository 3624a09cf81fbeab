"""Kernels of a model. In: unique tasks and their candidate schedules. Out: object code per task.

A schedule that no longer applies, or that the code generator refuses, is noted and the next
candidate is taken. Builds run in worker processes, one per core, where that pays.
"""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autotune.codegen import backend_for
from autotune.compiler.choose import Candidate, candidates
from autotune.compiler.odd import OddParams
from autotune.db.types import Store
from autotune.errors import AutotuneError, BuildError, ScheduleError
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.executor import Built, kernel_symbol
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from autotune.measure.sandbox import Sandbox
from autotune.measure.types import DeviceProfile, MeasureRequest, MeasureResult
from autotune.program.build import build_program
from autotune.schedule.base import Schedule, apply_schedule
from autotune.target import Target
from autotune.types import Task

SERIAL_BELOW = 8
"""With fewer kernels, starting worker processes takes longer than building here."""
BUILD_TIMEOUT_S = 120.0

Known = Callable[[Task, Schedule], Built | None]
"""Kernels that are built already; None for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Object code and schedule per task, where that came from, and what went wrong on the way."""

    built: dict[Task, Built]
    chosen: dict[Task, Candidate]
    notes: tuple[str, ...]


def build_here(
    task: Task, schedule: Schedule, target: Target, odd: frozenset[str] = frozenset()
) -> Built:
    """Build one kernel in this process; `odd` params may begin anywhere. Raises ScheduleError or
    BuildError."""
    symbol = kernel_symbol(task)
    naive = build_program(task)
    params = tuple(dataclasses.replace(p, odd=p.name in odd) for p in naive.params)
    program = apply_schedule(dataclasses.replace(naive, params=params), schedule)
    code = backend_for(target).build(program, target, symbol)
    return Built(
        symbol=symbol,
        code=code.code,
        workspace_bytes=code.workspace_bytes,
        packs=program.packs,
    )


def build_kernels(
    tasks: Sequence[Task],
    target: Target,
    log: Store | None,
    processes: int,
    *,
    odd: OddParams | None = None,
    known: Known | None = None,
) -> Kernels:
    """Build every task that is not `known`. Raises BuildError where even a task's default schedule
    fails."""
    odd = odd or {}
    waiting = {task: candidates(task, target, log) for task in tasks}
    first = {task: next(found) for task, found in waiting.items()}
    there = {t: known(t, c.schedule) for t, c in first.items() if known and t not in odd}
    missing = [task for task in first if there.get(task) is None]
    with _Pool(target, processes if len(missing) >= SERIAL_BELOW else 1, odd) as pool:
        made = iter(pool.build_all([(task, first[task].schedule) for task in missing]))
        built, chosen, notes = {}, {}, []
        for task, best in first.items():
            choice, outcome = best, there.get(task) or next(made)
            while isinstance(outcome, str):
                note = f"{task.key}: the {choice.source} schedule fails ({outcome})"
                choice = _next(waiting[task], note)
                notes.append(f"{note}; using the {choice.source} schedule")
                outcome = pool.build_all([(task, choice.schedule)])[0]
            built[task], chosen[task] = outcome, choice
    return Kernels(built=built, chosen=chosen, notes=tuple(notes))


def _next(found: Iterator[Candidate], note: str) -> Candidate:
    choice = next(found, None)
    if choice is None:
        raise BuildError(f"{note} and there is no other; this is a defect, please report the task")
    return choice


class _Pool:
    """Builds in this process, or in worker processes that are gone when the `with` block ends."""

    def __init__(self, target: Target, processes: int, odd: OddParams) -> None:
        self._target, self._odd = target, odd
        spec = f"{__name__}:KernelExecutor"
        count = processes if processes > 1 else 0
        bounds = sandbox_for(target, Sandbox())
        self._workers = [WorkerProcess(executor=spec, sandbox=bounds) for _ in range(count)]
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

    def build_all(self, jobs: Sequence[tuple[Task, Schedule]]) -> list[Built | str]:
        """A kernel or the reason why there is none, per job."""
        if not self._workers or len(jobs) == 1:
            return [self._here(task, schedule) for task, schedule in jobs]
        with ThreadPoolExecutor(len(self._workers)) as threads:
            return list(threads.map(lambda job: self._there(*job), jobs))

    def _here(self, task: Task, schedule: Schedule) -> Built | str:
        try:
            return build_here(task, schedule, self._target, self._odd.get(task, frozenset()))
        except (ScheduleError, BuildError) as error:
            return str(error)

    def _there(self, task: Task, schedule: Schedule) -> Built | str:
        if task in self._odd:
            return self._here(task, schedule)
        request = MeasureRequest(task=task, schedule=schedule, target=self._target)
        worker = self._idle.get()
        try:
            header, code = worker.call(
                {"command": "build", "request": request.to_json()}, timeout_s=BUILD_TIMEOUT_S
            )
        except WorkerTimeoutError:
            return f"the build took more than {BUILD_TIMEOUT_S:.0f} s"
        except WorkerDiedError as error:
            return f"the compiler process was {error}"
        finally:
            self._idle.put(worker)
        if "built" in header:
            return Built.from_header(header["built"], code)
        return MeasureResult.from_json(header["result"]).error


class KernelExecutor:
    """What a building process does: kernels under their final names, and nothing else."""

    def build(self, request: MeasureRequest) -> Built:
        return build_here(request.task, request.schedule, request.target)

    def prepare(self, request: MeasureRequest) -> None:
        raise AutotuneError(f"this process only builds, it cannot prepare {request.task.key}")

    def check_and_time(self, request: MeasureRequest, _built: Built) -> MeasureResult:
        raise AutotuneError(f"this process only builds, it cannot run {request.task.key}")

    def profile(self, target: Target) -> DeviceProfile:
        raise AutotuneError(f"this process only builds, it cannot measure {target.name}")

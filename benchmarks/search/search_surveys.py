"""Measuring spaces once, for replay, in pieces. In: tasks, this machine, seconds to spend. Out:
one survey per task, once it is done; until then its draft in a folder of work.

A survey holds configs drawn evenly from the space, the default, those that the prior likes best of
the whole space, and, twice, the neighbours of the fastest found so far: its best is near the
space's. They are built first and timed later, in passes over all that are not settled: a config is
once its least time was seen twice. What else runs on the machine only ever adds to a time, and
lasts shorter than a pass.
"""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cost_model
from autotune.machine.profile import DeviceProfile
from autotune.measure.builds import build_in
from autotune.measure.frames import encode_frame, read_frame
from autotune.measure.process import WorkerProcess
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Built, MeasureRequest, Status, Timing
from autotune.schedule.base import Schedule
from autotune.types import Task
from benchmarks.search.recorded_spaces import Survey, load_survey, schedule_hash
from cost_model.subject import Subject
from search_spaces.base import Column
from search_spaces.rules import rule_for
from search_spaces.space import Mask, Rows

FOLDER = Path(__file__).parents[1] / "data"
FRESH = "fresh"
"""Folder in a machine's, of tasks that no constant of the search or of the prior was chosen by."""
BRIEF = Timing(
    min_repeats=3, max_repeats=4, min_repeat_s=5e-4, budget_s=0.01, confidence=0.02,
    give_up_ratio=1.3,
)  # fmt: skip
CAREFUL = Timing(min_repeats=5, max_repeats=8, min_repeat_s=1e-3, budget_s=0.02)
LIKED = 48
"""Configs taken for their prior."""
GROWN = 2
"""Times that neighbours of the fastest join."""
_PARENTS = 3
_POOL = 50_000
_AGREE = 0.02
"""Relative difference of two readings of the same time."""
_LOSER = 1.3
"""Over the best time: slower configs are timed twice, and not until they agree."""
_CLOSE = 1.1
"""Over the best time: faster configs are timed at greater length."""
_MOST = 10
"""Passes over a config after which its least time is taken."""
_BUILD_S = 60.0
_BATCH = 300
"""Configs timed before it is looked again which are to be timed, those with the fewest passes
first."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A survey in the making. Columns have an entry per row."""

    rows: Rows
    drawn: Mask
    least_s: Column
    """Infinity where it failed or was not timed."""
    agreed: Rows
    """Readings near the least."""
    passes: Rows
    grown: int = 0
    """Times that neighbours joined."""

    @staticmethod
    def start(subject: Subject, limit: int) -> Draft:
        """Up to `limit` configs drawn evenly, all where there are no more, and the promising."""
        rng, space = np.random.default_rng(0), subject.space
        drawn = space.sample(rng, limit)
        pool = space.rows(_POOL, rng)
        liked = pool[np.argsort(subject.describe(pool).prior_s, kind="stable")[:LIKED]]
        default = space.row(cost_model.default(subject.task, subject.machine, subject.rule))
        nothing = Draft(
            rows=drawn[:0],
            drawn=np.empty(0, bool),
            least_s=np.empty(0),
            agreed=np.empty(0, np.int32),
            passes=np.empty(0, np.int32),
        )
        nothing.add(subject, drawn, drawn=True)
        nothing.add(subject, np.concatenate([default[None], liked]))
        return nothing

    def add(self, subject: Subject, rows: Rows, *, drawn: bool = False) -> None:
        """The rows that are not there yet, each once."""
        keys = subject.space.keys(rows)
        first = np.sort(np.unique(keys, return_index=True)[1])
        new = first[~np.isin(keys[first], subject.space.keys(self.rows))]
        none = np.zeros(len(new), np.int32)
        self.rows = np.concatenate([self.rows, rows[new]])
        self.drawn = np.concatenate([self.drawn, np.full(len(new), drawn)])
        self.least_s = np.concatenate([self.least_s, np.full(len(new), np.inf)])
        self.agreed = np.concatenate([self.agreed, none])
        self.passes = np.concatenate([self.passes, none])

    def told(self, place: int, time_s: float) -> None:
        """A reading of a config; infinity where it failed."""
        self.passes[place] += 1
        least_s = self.least_s[place]
        near = time_s <= least_s * (1 + _AGREE) or time_s == least_s
        if time_s < least_s * (1 - _AGREE):
            self.agreed[place] = 0
        self.agreed[place] += near
        self.least_s[place] = min(least_s, time_s)

    def unsettled(self) -> Rows:
        """Places of the configs to be timed once more."""
        losers = self.least_s > _LOSER * self.least_s.min()
        settled = (self.passes >= 2) & (losers | (self.agreed >= 2) | (self.passes >= _MOST))
        return np.flatnonzero(~settled).astype(np.int32)

    def grow(self, subject: Subject) -> None:
        """Neighbours of the fastest join."""
        self.grown += 1
        for row in self.rows[np.argsort(self.least_s, kind="stable")[:_PARENTS]]:
            self.add(subject, subject.space.neighbours(row))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part.npz")
        configs = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        np.savez_compressed(partial, **configs)
        partial.replace(path)

    @staticmethod
    def load(path: Path) -> Draft:
        with np.load(path, allow_pickle=False) as arrays:
            configs = {f.name: arrays[f.name] for f in dataclasses.fields(Draft)}
        return Draft(**{**configs, "grown": int(configs["grown"])})


class Surveyor:
    """Measures one task. `work`: the folder of its draft and its objects."""

    def __init__(self, name: str, task: Task, profile: DeviceProfile, work: Path) -> None:
        self.name = name
        self._work = work
        target = profile.target
        self._subject = Subject.of(task, target, profile, rule_for(task, target))
        self._schedules: dict[bytes, Schedule] = {}

    def draft(self, limit: int) -> Draft:
        """As far as it came, or a new one."""
        path = self._work / f"{self.name}.npz"
        return Draft.load(path) if path.exists() else Draft.start(self._subject, limit)

    def measure(
        self, draft: Draft, runner: LocalRunner, stop: Callable[[], bool], *, build_only: bool
    ) -> bool:
        """Build, time and grow until everything is settled, or `stop`. Whether it is."""
        while True:
            self._build(draft, stop)
            draft.save(self._work / f"{self.name}.npz")
            if build_only or stop():
                return False
            while len(places := draft.unsettled()):
                self._time(
                    draft, places[:_BATCH] if draft.passes.min() == 0 else places, runner, stop
                )
                draft.save(self._work / f"{self.name}.npz")
                if stop():
                    return False
            if draft.grown == GROWN:
                return True
            draft.grow(self._subject)

    def survey(self, draft: Draft) -> Survey:
        subject = self._subject
        return Survey(
            name=self.name,
            task=subject.task,
            profile=subject.profile,
            rule=subject.rule.name,
            params=subject.space.params,
            rows=draft.rows,
            seconds=draft.least_s,
            schedules=np.array([schedule_hash(self._schedule(r)) for r in draft.rows], np.uint64),
            drawn=draft.drawn,
        )

    def _schedule(self, row: Rows) -> Schedule:
        subject, key = self._subject, row.tobytes()
        if key not in self._schedules:
            config = subject.space.config(row)
            self._schedules[key] = subject.rule.schedule(subject.task, subject.target, config)
        return self._schedules[key]

    def _request(self, row: Rows, timing: Timing = BRIEF) -> MeasureRequest:
        return MeasureRequest(
            task=self._subject.task,
            schedule=self._schedule(row),
            target=self._subject.target,
            timing=timing,
        )

    def _object(self, request: MeasureRequest) -> Path:
        return self._work / self.name / f"{schedule_hash(request.schedule):016x}"

    def _build(self, draft: Draft, stop: Callable[[], bool]) -> None:
        """Objects of what is to be timed, by two processes. What does not build has failed."""
        requests = {int(p): self._request(draft.rows[p]) for p in draft.unsettled()}
        missing = {p: r for p, r in requests.items() if not self._object(r).exists()}
        (self._work / self.name).mkdir(parents=True, exist_ok=True)
        share = -(-len(missing) // 2)
        parts = [tuple(missing.items())[n * share : (n + 1) * share] for n in range(2)]
        with ThreadPoolExecutor(2) as pool:
            failed = [*pool.map(lambda part: self._build_some(part, stop), parts)]
        for place in (p for part in failed for p in part):
            draft.passes[place] = _MOST

    def _build_some(
        self, part: Sequence[tuple[int, MeasureRequest]], stop: Callable[[], bool]
    ) -> list[int]:
        process, failed = WorkerProcess(), []
        try:
            for place, request in part:
                if stop():
                    break
                built = build_in(process, request.to_json(), _BUILD_S)
                if isinstance(built, Built):
                    self._object(request).write_bytes(encode_frame(built.header(), built.code))
                else:
                    failed.append(place)
        finally:
            process.stop()
        return failed

    def _time(
        self, draft: Draft, places: Rows, runner: LocalRunner, stop: Callable[[], bool]
    ) -> None:
        """A pass over these configs."""
        best_s = float(draft.least_s.min())
        best_s_or_none = best_s if np.isfinite(best_s) else None
        requests = []
        for place in places:
            timing = CAREFUL if draft.least_s[place] < _CLOSE * best_s else BRIEF
            timing = dataclasses.replace(timing, best_s=best_s_or_none)
            request = self._request(draft.rows[place], timing)
            header, code = read_frame(io.BytesIO(self._object(request).read_bytes()).read)
            built = Built.from_header(header, code)
            requests.append(dataclasses.replace(request, built=built))
        for place, result in zip(places, runner.measure((*requests,), stop=stop), strict=True):
            if result.status is not Status.DEVICE_LOST:
                draft.told(int(place), min(result.times_s, default=np.inf))


def deadline(seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
    """Whether so many seconds have passed since now."""
    end_s = clock() + seconds
    return lambda: clock() > end_s


def surveys(folder: Path = FOLDER) -> dict[str, Survey]:
    """Every survey of a folder, by name."""
    found = (load_survey(path) for path in sorted(folder.glob("*.npz")))
    return {s.name: s for s in found}


def machine_surveys(folder: Path) -> dict[str, Survey]:
    """Those of one machine, of the fresh tasks as well."""
    return surveys(folder) | surveys(folder / FRESH)

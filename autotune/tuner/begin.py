"""The start of a run. In: tasks, a log, options, the device's profile. Out: each task's state.

A task whose rule raises gets the next rule that holds, and a warning: it ends no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from autotune.db.types import LogStore
from autotune.machine.profile import DeviceProfile
from autotune.tuner.engine import Engine
from autotune.tuner.learner import Learner
from autotune.tuner.options import TuneOptions
from autotune.tuner.seeds import seeds
from autotune.tuner.strategies import STRATEGIES
from autotune.tuner.task_run import TaskRun
from autotune.types import Task
from cost_model.models import COST_MODELS, fit_here
from cost_model.subject import Subject
from search_spaces.base import Rule
from search_spaces.sound import asked


def begun(
    weights: Mapping[Task, int],
    store: LogStore,
    options: TuneOptions,
    profile: DeviceProfile,
    engine: Engine | None = None,
) -> tuple[TaskRun, ...]:
    """One run per task, all of which learn from one another; `weights`: how often the model calls
    each."""
    model = COST_MODELS.get(options.cost_model)
    train = fit_here if engine is None else engine.train
    learner = Learner(model, options.seed, options.pretrained, train)
    factory = STRATEGIES.get(options.strategy)

    def begin(task: Task, weight: int, number: int, rule: Rule) -> TaskRun:
        subject = Subject.of(task, options.target, profile, rule)
        if engine is not None:
            subject = engine.attached(subject)
        run = TaskRun(subject, weight, options.defaults.get(task))
        elsewhere = seeds(subject, store, options.profiles)
        run.start(
            factory, learner, store, group=number, seed=options.seed, versions=options.versions,
            elsewhere=elsewhere,
        )  # fmt: skip
        return run

    return tuple(
        asked(partial(begin, task, weight, number), task, options.target, options.rules)
        for number, (task, weight) in enumerate(weights.items())
    )

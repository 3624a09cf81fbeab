"""Default configs that are chosen for the whole model.

In: a partition with its memory plan, a target, a log, the machine's profile. Out: by task, the
config of those for which the model decides; the others take what is best by itself.

Weights that were used a run ago come from wherever the cache has room for all that a run touches.
Where it has none whatever is chosen, or room for everything, each task's own choice is right, and
nothing is decided here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import cost_model
from autotune.compiler.residence import Calls, Choices, Option
from autotune.compiler.work import bytes_of_weights, scheduled_weights
from autotune.db.types import LogStore
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.placement.memory_plan import MemoryPlan, plan_memory
from autotune.placement.reuse_distance import PackedWeights
from autotune.placement.types import Partition
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from cost_model.alternatives import alternatives
from search_spaces.base import Rule
from search_spaces.params import Config
from search_spaces.rules import rule_for
from search_spaces.sound import asked

EVERYTHING = float(1 << 50)
"""A footprint that no cache has room for."""
FOOTPRINTS = 7
"""Footprints for which times are predicted (chosen)."""
MOST_GROWTH = 8.0
"""Times that packing makes of weights, at most: F(6x6) of 3x3 has 64 products for 9 weights."""
MATTERS = 1.02
"""Speed at which weights come over that of the largest footprint, from which choices matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenChoices:
    """The choices of a model's tasks that no record decides."""

    tasks: tuple[Task, ...]
    configs: tuple[tuple[Config, ...], ...]
    choices: Choices

    def decided(self) -> dict[Task, Config]:
        """The config of each task that is best for the model."""
        taken = self.choices.cheapest()
        return {t: c[n] for t, c, n in zip(self.tasks, self.configs, taken, strict=True)}


def chosen_together(
    partition: Partition,
    plan: MemoryPlan,
    target: Target,
    log: LogStore | None,
    profile: DeviceProfile | None,
) -> Mapping[Task, Config]:
    """By task, the default config for the model; none where the model has no say."""
    found = problem_together(partition, plan, target, log, profile)
    return {} if found is None else found.decided()


def weighty_defaults(
    partition: Partition, target: Target, profile: DeviceProfile | None
) -> dict[Task, Config]:
    """The default configs of all tasks that have weights, as a model compiled without a log has
    them; without those of tasks whose first rule has a defect."""
    plan = plan_memory(partition, lend=target.lends_halos)
    decided = chosen_together(partition, plan, target, None, profile)
    machine = Machine.of(target, profile)

    def ask(task: Task, rule: Rule) -> Config | None:
        if rule.name != rule_for(task, target).name:
            return None
        return decided.get(task) or cost_model.default(task, machine, rule)

    tasks = (t for t in partition.weights() if t.by_role("constant"))
    found = ((t, asked(functools.partial(ask, t), t, target)) for t in tasks)
    return {task: config for task, config in found if config is not None}


def packed_weights(
    partition: Partition, target: Target, log: LogStore | None, defaults: Mapping[Task, Config]
) -> PackedWeights:
    """Bytes of weights as they lie in the compiled model: packed by the best records' schedules,
    or else by default ones. Of what has neither, nothing is said."""
    found = {}
    for task in partition.weights():
        record = log.best(task.key, target) if log is not None else None
        with contextlib.suppress(ScheduleError):  # of an old record: the graph's bytes are taken
            if record is not None:
                found[task.key] = scheduled_weights(task, record.schedule)
            elif task in defaults:
                schedule = rule_for(task, target).schedule(task, target, defaults[task])
                found[task.key] = scheduled_weights(task, schedule)
    return found


def problem_together(
    partition: Partition,
    plan: MemoryPlan,
    target: Target,
    log: LogStore | None,
    profile: DeviceProfile | None,
) -> OpenChoices | None:
    """The choices that are left to the model, and what each makes of a run; None where footprints
    make no difference on this machine, or to this model."""
    machine = Machine.of(target, profile)
    calls = {t: n for t, n in partition.weights().items() if t.by_role("constant")}
    recorded = {t: r for t in calls if log is not None and (r := log.best(t.key, target))}
    free = {t: n for t, n in calls.items() if t not in recorded}
    plain = float(sum(n * sum(bytes_of_weights(t).values()) for t, n in free.items()))
    least, memory_speed = plan.arena_bytes + plain, _speed(machine, EVERYTHING)
    if not free or _speed(machine, least) < MATTERS * memory_speed:
        return None
    fixed = float(plan.arena_bytes)
    for task, record in recorded.items():
        fixed += calls[task] * (_nbytes(task, record.schedule) or 0)
    if _speed(machine, fixed + plain) < MATTERS * memory_speed:
        return None
    footprints = tuple(np.geomspace(fixed + plain, fixed + MOST_GROWTH * plain, FOOTPRINTS))
    machines = tuple(machine.among(w) for w in footprints)
    found = {t: options for t in free if (options := _options(t, target, machines))}
    known = sum(free[t] * sum(bytes_of_weights(t).values()) for t in free if t not in found)
    return OpenChoices(
        tasks=tuple(found),
        configs=tuple(tuple(config for config, _ in options) for options in found.values()),
        choices=Choices(
            tasks=tuple(
                Calls(count=free[task], options=tuple(option for _, option in options))
                for task, options in found.items()
            ),
            footprints=footprints,
            fixed_bytes=fixed + known,
        ),
    )


def _options(
    task: Task, target: Target, machines: tuple[Machine, ...]
) -> tuple[tuple[Config, Option], ...]:
    """What a task may take; nothing where its first rule has a defect, which others then tell."""
    first = rule_for(task, target)

    def ask(rule: Rule) -> tuple[tuple[Config, Option], ...]:
        if rule.name != first.name:
            return ()
        out = []
        for each in alternatives(task, machines, rule):
            packs = rule.write(task, target, each.config).program.packs
            nbytes = sum(bytes_of_weights(task, packs).values())
            out.append((each.config, Option(nbytes=nbytes, seconds=each.seconds)))
        return tuple(out)

    return asked(ask, task, target)


def _nbytes(task: Task, schedule: Schedule) -> int | None:
    """Bytes of a task's weights by a schedule; None where it does not apply any more."""
    try:
        return sum(scheduled_weights(task, schedule).values())
    except ScheduleError:
        return None


def _speed(machine: Machine, footprint: float) -> float:
    """Bytes a cycle of weights, where a run touches so many."""
    return machine.among(footprint).cpu.memory_stream_bytes_per_cycle

"""Schedules for models that must be small: whose packed weights take no more than the weights do.

In: a partition, a log, the machine. Out: which tasks take what in place of what is fastest, and
what that should cost. Algorithms that transform weights (Winograd: by 1.8 to 5 times) are fast and
large; direct code packs weights into as many bytes as they are, but for ragged ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.compiler.work import bytes_of_weights, scheduled_weights
from autotune.db.types import LogStore
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.placement.types import Partition
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from cost_model.alternatives import algorithm_of, alternatives, ranked
from search_spaces.params import Config
from search_spaces.rules import Rule, rule_for
from search_spaces.sound import asked

GROWTH, GROWTH_BYTES = 0.001, 4096
"""How much more than its weights a kernel's may take, the larger of both: tiles are filled up at
their ends."""
HARDLY = 0.05
"""Share of those kernels' time that smaller weights may cost where nobody asked for them
(chosen)."""
LOOKED_AT = 64
"""Configs of the algorithm with the least weights that are scheduled, the fastest first, until
one fills no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallChoices:
    """`configs`: of tasks with weights, but for those whose record is small already. Predicted
    seconds of a run's kernels that these are, and would be at their fastest."""

    configs: Mapping[Task, Config] = field(repr=False)
    seconds: float
    fastest_seconds: float

    @property
    def cost(self) -> float:
        """The share by which those kernels take longer."""
        more = self.seconds / self.fastest_seconds - 1 if self.fastest_seconds else 0.0
        return max(more, 0.0)

    def note(self) -> str:
        """The price, in one line."""
        return (
            f"small weights: convolutions and products are predicted to take {self.cost:.0%} "
            "longer than the fastest schedules"
        )


def small_choices(
    partition: Partition, target: Target, log: LogStore | None, profile: DeviceProfile | None
) -> SmallChoices:
    """What every task with weights takes."""
    machine = Machine.of(target, profile)
    configs: dict[Task, Config] = {}
    small = fastest = 0.0
    for task, count in partition.weights().items():
        if not task.by_role("constant"):
            continue
        limit = _limit(task)
        record = log.best(task.key, target) if log is not None else None
        if record is not None and _nbytes(task, record.schedule) <= limit:
            continue
        options = asked(functools.partial(_options, task, target, machine), task, target)
        if not options:
            continue
        taken = min(options, key=lambda o: (max(o.nbytes, limit), o.seconds))
        if taken.nbytes > limit:
            find = functools.partial(_filling_less, task, target, machine, taken)
            taken = asked(find, task, target)
        configs[task] = taken.config
        small += count * taken.seconds
        fastest += count * min(o.seconds for o in options)
    return SmallChoices(configs=configs, seconds=small, fastest_seconds=fastest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """A config, the bytes of its weights, and its predicted time."""

    config: Config
    nbytes: float
    seconds: float


def _limit(task: Task) -> float:
    own = sum(bytes_of_weights(task).values())
    return own + max(GROWTH * own, GROWTH_BYTES)


def _nbytes(task: Task, schedule: Schedule) -> float:
    """Infinity where the schedule does not apply any more."""
    try:
        return sum(scheduled_weights(task, schedule).values())
    except ScheduleError:
        return math.inf


def _filling_less(
    task: Task, target: Target, machine: Machine, taken: _Sized, rule: Rule
) -> _Sized:
    """The fastest config of the same algorithm whose tiles are filled up within the limit, or else
    the one whose are filled up least."""
    limit, best = _limit(task), taken
    for each in ranked(task, machine, rule, algorithm_of(taken.config), LOOKED_AT):
        nbytes = _nbytes(task, rule.schedule(task, target, each.config))
        if nbytes < best.nbytes:
            best = _Sized(config=each.config, nbytes=nbytes, seconds=each.seconds[0])
        if best.nbytes <= limit:
            break
    return best


def _options(task: Task, target: Target, machine: Machine, rule: Rule) -> tuple[_Sized, ...]:
    """The best of every algorithm; nothing where the first rule has a defect."""
    if rule.name != rule_for(task, target).name:
        return ()
    return tuple(
        _Sized(
            config=each.config,
            nbytes=_nbytes(task, rule.schedule(task, target, each.config)),
            seconds=each.seconds[0],
        )
        for each in alternatives(task, (machine,), rule)
    )

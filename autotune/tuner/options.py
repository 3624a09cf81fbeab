"""The options of a tuning run as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.measure.types import Timing
from autotune.placement.reuse_distance import ReuseDistance
from autotune.target import Target
from autotune.tuner.budget import Limits
from autotune.types import Task
from cost_model.pretrained import Pretrained
from cost_model.train import Profiles
from search_spaces.base import Rule
from search_spaces.params import Config
from search_spaces.rules import rule_for


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenCalls:
    """What runs of a model do between two calls of a task: see `Timing`, whose reuse distances are
    by task key here."""

    foreign_bytes: int = 0
    apart_s: float = 0.0
    reuse_distances: Mapping[str, tuple[ReuseDistance, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of a run. `limits` without trials and time: until the budget sees no more gain."""

    target: Target
    limits: Limits = field(default_factory=Limits)
    strategy: str = "bayesian"
    cost_model: str = "xgb"
    seed: int = 0
    batch: int = 12
    """Candidates measured between two looks at the model."""
    timing: Timing = field(default_factory=Timing)
    reuse_distances: Mapping[str, tuple[ReuseDistance, ...]] = field(default_factory=dict)
    """By task key, those of its values in the model: part of the timing of its candidates."""
    defaults: Mapping[Task, Config] = field(default_factory=dict)
    """Configs to begin with, of tasks where they are known already."""
    model: str = ""
    """Name kept in the records."""
    versions: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False
    """Measure nothing: say what a run would do."""
    profiles: Profiles = field(default_factory=dict)
    """What other devices, whose records the log has, are capable of."""
    pretrained: Pretrained | None = None
    """What was learnt before this run, in place of the analytical prior."""

    rules: Callable[[Task, Target], Rule] = rule_for
    """Which rule makes the space of a task."""

    def timing_of(self, task: Task, best_s: float | None) -> Timing:
        """How a candidate of a task is timed whose best time so far is `best_s`."""
        distances = self.reuse_distances.get(task.key, ())
        return dataclasses.replace(self.timing, best_s=best_s, reuse_distances=distances)

"""What a run is asked to do. In: a caller's wishes, a model, a device and a log. Out: the run's
options.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.db.types import Store
from autotune.digits import LARGEST
from autotune.errors import ConfigError
from autotune.graph.ages import ages_of
from autotune.graph.ir import Graph
from autotune.graph.plan import Partition, task_flops
from autotune.layouts.choose import apply, choose
from autotune.layouts.problem import LayoutProblem
from autotune.measure.types import Age, DeviceProfile
from autotune.release import release
from autotune.settings import TuneSettings
from autotune.tuner.budget import NEAR, Limits
from autotune.tuner.options import TuneOptions
from cost_model.features import FEATURE_VERSION
from cost_model.models import Train
from cost_model.pretrained import Pretrained
from cost_model.train import NONE, Profiles

BATCH_PER_BOARD = 8
"""Candidates per round and board, so that no board waits long for the others."""
EVERYTHING = 1 << 40
"""More bytes than any cache holds."""
TASK_GAINS = 4
"""A task gets trials while it may gain so many times the share that the whole model must: who
asks for less end to end wants the last bit of every task too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How to search, as `autotune.tune` was asked to. Raises ConfigError."""

    settings: TuneSettings
    trials: int | None = None
    time_s: float | None = None
    until_gain: float | None = None
    seed: int = 0
    strategy: str = "model"
    cost_model: str = "xgb"
    pretrained: str | Path | None = None
    boards: int = 1
    flush: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"trials must be at least 1, got {self.trials}")
        if self.time_s is not None and not self.time_s > 0:
            raise ConfigError(f"time_s must be more than 0 seconds, got {self.time_s}")
        if self.until_gain is not None and not 0 < self.until_gain < 1:
            raise ConfigError(f"until_gain is a share between 0 and 1, got {self.until_gain}")
        if not 0 <= self.seed <= LARGEST:
            raise ConfigError(f"seed must be at least 0 and at most {LARGEST}, got {self.seed}")

    def limits(self, tasks: int) -> Limits:
        """When the run ends; where nothing says so, after some trials of each of so many tasks."""
        trials, settings = self.trials, self.settings
        if trials is None and self.time_s is None and self.until_gain is None:
            trials = settings.trials_per_task * tasks
        min_gain = settings.min_gain if self.until_gain is None else self.until_gain
        near = min(NEAR, TASK_GAINS * min_gain)
        return Limits(trials=trials, time_s=self.time_s, min_gain=min_gain, near=near)


def options_of(
    wishes: Wishes,
    graph: Graph,
    problem: LayoutProblem,
    store: Store,
    here: DeviceProfile,
    *,
    train: Train,
) -> TuneOptions:
    """The options of a run on the device `here`; what that says of itself goes to the log."""
    target, settings = here.target, wishes.settings
    profiles = _profiles(store, here, keep=not wishes.dry_run)
    partition = apply(problem, graph, target, choose(problem, target, store).layouts)
    return TuneOptions(
        target=target,
        limits=wishes.limits(len(partition.weights())),
        strategy=wishes.strategy,
        cost_model=wishes.cost_model,
        pretrained=_pretrained(wishes, store, partition, here, profiles=profiles, train=train),
        profiles=profiles,
        seed=wishes.seed,
        dry_run=wishes.dry_run,
        batch=max(settings.batch, BATCH_PER_BOARD * wishes.boards),
        timing=dataclasses.replace(
            settings.timing,
            foreign_bytes=EVERYTHING if wishes.flush else moved_bytes(partition),
            apart_s=math.fsum(calls_s(partition, here)),
        ),
        ages=all_ages((*problem.parts, partition), here),
        model=graph.name,
        versions=component_versions(),
    )


def _pretrained(
    wishes: Wishes,
    store: Store,
    partition: Partition,
    here: DeviceProfile,
    *,
    profiles: Profiles,
    train: Train,
) -> Pretrained | None:
    """What is known before the run: a trained file, or else the log's records of other tasks."""
    if wishes.pretrained is not None:
        return Pretrained.load(Path(wishes.pretrained))
    from autotune.db.store import TuningLog
    from autotune.tuner.transfer import from_log

    if not isinstance(store, TuningLog):
        return None
    own = [task.key for task in partition.weights()]
    return from_log(store, here, own, seed=wishes.seed, train=train, profiles=profiles)


def _profiles(store: Store, here: DeviceProfile, *, keep: bool) -> Profiles:
    """What the log's devices said of themselves, and this one says now; `keep`: in the log too."""
    from autotune.db.profiles import keep_profile, kept_profiles
    from autotune.db.store import TuningLog

    if not isinstance(store, TuningLog):
        return NONE
    if keep:
        keep_profile(store, here)
    return {**kept_profiles(store), (here.device, here.target.key): here}


def moved_bytes(partition: Partition) -> int:
    """Bytes that one run of the model moves: every weight, and memory for its values, which is
    used again and again."""
    weights = sum(v.type.nbytes for c in partition.calls for v in c.task.by_role("constant"))
    return weights + max(
        sum(v.type.nbytes for role in ("input", "output") for v in c.task.by_role(role))
        for c in partition.calls
    )


def calls_s(partition: Partition, profile: DeviceProfile) -> list[float]:
    """About how long the calls of a run take: their operations at the device's peak, their bytes
    from its last cache."""
    caches = profile.levels[:-1] or profile.levels
    return [
        max(
            task_flops(call.task) / profile.peak_flops,
            sum(v.type.nbytes for v in call.task.params) / caches[-1].load_bytes_per_s,
        )
        / profile.target.threads
        for call in partition.calls
    ]


def all_ages(
    partitions: Sequence[Partition], profile: DeviceProfile
) -> dict[str, tuple[Age, ...]]:
    """Of the tasks of several partitions of a model; what the last one says counts most."""
    found: dict[str, tuple[Age, ...]] = {}
    for partition in partitions:
        lend = profile.target.lends_halos
        found |= ages_of(partition, calls_s(partition, profile), lend=lend)
    return found


def component_versions() -> tuple[tuple[str, str], ...]:
    """What records say they were made by."""
    return (
        ("autotune", release()),
        ("features", str(FEATURE_VERSION)),
        ("llvmlite", importlib.metadata.version("llvmlite")),
    )

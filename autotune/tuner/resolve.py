"""Options of a tuning run. In: its request, model, device and log. Out: TuneOptions."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from autotune.compiler.layout_costs import choose_layouts
from autotune.compiler.together import packed_weights, weighty_defaults
from autotune.db.types import LogStore
from autotune.graph.ir import Graph
from autotune.machine.profile import DeviceProfile
from autotune.placement.layout_choice import apply
from autotune.placement.layout_problem import LayoutProblem
from autotune.placement.reuse_distance import PackedWeights, ReuseDistance, reuse_distances
from autotune.placement.types import Partition
from autotune.release import release
from autotune.settings import TuneSettings, load_settings
from autotune.tasks.flops import task_flops
from autotune.tuner.budget import NEAR, Limits
from autotune.tuner.options import BetweenCalls, TuneOptions
from autotune.tuner.request import TuneRequest
from autotune.types import Task
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


def options_of(
    request: TuneRequest,
    graph: Graph,
    problem: LayoutProblem,
    store: LogStore,
    here: DeviceProfile,
    *,
    train: Train,
) -> TuneOptions:
    """The options of a run on the device `here`; what that says of itself goes to the log."""
    target, settings = here.target, request.settings or load_settings()
    boards = request.farm.boards if request.farm else 1
    profiles = _profiles(store, here, keep=not request.dry_run)
    partition = apply(problem, graph, target, choose_layouts(problem, target, store).layouts)
    defaults = weighty_defaults(partition, target, here)
    packed = packed_weights(partition, target, store, defaults)
    return TuneOptions(
        target=target,
        limits=_limits(request, settings, len(partition.weights())),
        strategy=request.strategy,
        cost_model=request.cost_model,
        pretrained=_pretrained(
            request, store, partition.weights(), here, profiles=profiles, train=train
        ),
        profiles=profiles,
        seed=request.seed,
        dry_run=request.dry_run,
        batch=max(settings.batch, BATCH_PER_BOARD * boards),
        timing=dataclasses.replace(
            settings.timing,
            foreign_bytes=EVERYTHING if request.flush else moved_bytes(partition, packed),
            apart_s=math.fsum(calls_s(partition, here)),
        ),
        reuse_distances=all_reuse_distances((*problem.parts, partition), here, packed),
        defaults=defaults,
        model=graph.name,
        versions=component_versions(),
    )


def options_of_tasks(
    request: TuneRequest,
    tasks: Collection[Task],
    name: str,
    store: LogStore,
    here: DeviceProfile,
    *,
    train: Train,
    between: BetweenCalls,
) -> TuneOptions:
    """The options of a run over tasks of a model of that name, of whose runs `between` tells."""
    settings = request.settings or load_settings()
    boards = request.farm.boards if request.farm else 1
    profiles = _profiles(store, here, keep=not request.dry_run)
    return TuneOptions(
        target=here.target,
        limits=_limits(request, settings, len(tasks)),
        strategy=request.strategy,
        cost_model=request.cost_model,
        pretrained=_pretrained(request, store, tasks, here, profiles=profiles, train=train),
        profiles=profiles,
        seed=request.seed,
        dry_run=request.dry_run,
        batch=max(settings.batch, BATCH_PER_BOARD * boards),
        timing=dataclasses.replace(
            settings.timing,
            foreign_bytes=EVERYTHING if request.flush else between.foreign_bytes,
            apart_s=between.apart_s,
        ),
        reuse_distances=between.reuse_distances,
        model=name,
        versions=component_versions(),
    )


def _limits(request: TuneRequest, settings: TuneSettings, tasks: int) -> Limits:
    """When the run ends; where nothing says so, after some trials of each of so many tasks."""
    trials, gain = request.trials, request.until_gain
    if trials is None and request.time_s is None and gain is None:
        trials = settings.trials_per_task * tasks
    min_gain = settings.min_gain if gain is None else gain
    near = min(NEAR, TASK_GAINS * min_gain)
    return Limits(trials=trials, time_s=request.time_s, min_gain=min_gain, near=near)


def _pretrained(
    request: TuneRequest,
    store: LogStore,
    tasks: Iterable[Task],
    here: DeviceProfile,
    *,
    profiles: Profiles,
    train: Train,
) -> Pretrained | None:
    """What is known before the run: a trained file, or else the log's records of other tasks."""
    if request.pretrained is not None:
        return Pretrained.load(Path(request.pretrained))
    from autotune.db.store import TuningLog
    from autotune.tuner.transfer import from_log

    if not isinstance(store, TuningLog):
        return None
    own = [task.key for task in tasks]
    return from_log(store, here, own, seed=request.seed, train=train, profiles=profiles)


def _profiles(store: LogStore, here: DeviceProfile, *, keep: bool) -> Profiles:
    """What the log's devices said of themselves, and this one says now; `keep`: in the log too."""
    from autotune.db.profiles import keep_profile, kept_profiles
    from autotune.db.store import TuningLog

    if not isinstance(store, TuningLog):
        return NONE
    if keep:
        keep_profile(store, here)
    return {**kept_profiles(store), (here.device, here.target.key): here}


def moved_bytes(partition: Partition, packed: PackedWeights) -> int:
    """Bytes that one run of the model moves: every weight, as it is packed, and memory for its
    values, which is used again and again."""
    weights = sum(
        packed.get(call.task.key, {}).get(value.name, value.type.nbytes)
        for call in partition.calls
        for value in call.task.by_role("constant")
    )
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


def all_reuse_distances(
    partitions: Sequence[Partition], profile: DeviceProfile, packed: PackedWeights
) -> dict[str, tuple[ReuseDistance, ...]]:
    """Reuse distances of the tasks of several partitions of a model; what the last one says counts
    most."""
    found: dict[str, tuple[ReuseDistance, ...]] = {}
    for partition in partitions:
        lend = profile.target.lends_halos
        call_s = calls_s(partition, profile)
        found |= reuse_distances(partition, call_s, lend=lend, packed=packed)
    return found


def component_versions() -> tuple[tuple[str, str], ...]:
    """What records say they were made by."""
    return (
        ("autotune", release()),
        ("features", str(FEATURE_VERSION)),
        ("llvmlite", importlib.metadata.version("llvmlite")),
    )

"""From records to data sets. In: records of any tasks. Out: one `Dataset` per feature layout.

Candidates are described again from their config by the rule that made it. Records whose config
today's space no longer knows are left out: their schedule still runs, but has no features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from autotune.db.types import Record
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import Status
from autotune.target import Target
from autotune.types import Task
from cost_model.models.base import Dataset
from cost_model.subject import Subject
from search_spaces.rules import RULES

Profiles = Mapping[tuple[str, str], DeviceProfile]
"""(device, target key) -> what that device measured about itself."""
NONE: Profiles = MappingProxyType({})


class Origin(NamedTuple):
    """Records with the same origin are compared with each other, and only with each other."""

    task: Task
    target: Target
    rule: str
    device: str


def by_origin(records: Iterable[Record]) -> dict[Origin, list[Record]]:
    """Records by origin, in order of first appearance."""
    found: dict[Origin, list[Record]] = {}
    for record in records:
        key = Origin(record.task, record.target, record.rule, record.result.device)
        found.setdefault(key, []).append(record)
    return found


def datasets(
    records: Iterable[Record], profile: DeviceProfile, profiles: Profiles = NONE
) -> tuple[Dataset, ...]:
    """Training data of all records: one set per layout of features (that is, per rule). Groups are
    numbered as `by_origin` orders them. Records are described by what their own device is capable
    of, where `profiles` tells: what is learnt of them is then how a device differs from what its
    profile lets expect, and not how it differs from this one. Without, by `profile`."""
    parts: dict[tuple[str, ...], list[Dataset]] = {}
    for number, (origin, found) in enumerate(by_origin(records).items()):
        if origin.rule in RULES:
            part = dataset(subject_of(origin, profile, profiles), found, group=number)
            if len(part.time_s):
                parts.setdefault(part.names, []).append(part)
    return tuple(join(same) for same in parts.values())


def subject_of(origin: Origin, profile: DeviceProfile, profiles: Profiles) -> Subject:
    """The task as its device saw it: by its own profile, or by this one with its target."""
    own = profiles.get((origin.device, origin.target.key), profile)
    own = dataclasses.replace(own, target=origin.target)
    return Subject.of(origin.task, origin.target, own, RULES.get(origin.rule))


def dataset(subject: Subject, records: Sequence[Record], *, group: int) -> Dataset:
    """Training data of one task's records."""
    judged = [r for r in records if r.result.status is not Status.DEVICE_LOST]
    configs = subject.known([r.config for r in judged])
    described = subject.describe(subject.rows(list(configs.values())))
    return Dataset(
        names=described.names,
        values=described.values,
        prior_s=described.prior_s,
        time_s=np.array([measured_s(judged[n]) for n in configs], np.float64),
        group=np.full(len(configs), group, np.int64),
    )


def join(parts: Sequence[Dataset]) -> Dataset:
    """One data set of several with the same columns."""
    return Dataset(
        names=parts[0].names,
        values=np.concatenate([p.values for p in parts]),
        prior_s=np.concatenate([p.prior_s for p in parts]),
        time_s=np.concatenate([p.time_s for p in parts]),
        group=np.concatenate([p.group for p in parts]),
    )


def measured_s(record: Record) -> float:
    """Seconds of a record; infinity where the candidate failed."""
    return record.result.median_s if record.result.status is Status.OK else float("inf")

"""Seeds of a search: early candidates that did well elsewhere. In: the fastest records of similar
tasks, the profiles of the devices that measured them. Out: configs of this task's space.

A record of this very device counts as it was measured. What another device measured says how that
one differs from what its profile lets expect; times what this device's profile lets expect of the
same config, that is how long the config should take here: by this the other's fastest are ranked
anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.db.types import LogStore, Record
from cost_model.subject import Subject
from cost_model.train import Origin, Profiles, by_origin, measured_s, subject_of
from search_spaces.base import Column
from search_spaces.params import Config
from search_spaces.rules import RULES

NEAREST = 1
"""Tasks whose best configs are tried early: the rest is known to the model anyway."""
CONSIDERED = 16
"""Fastest records of another device that are ranked anew."""


def seeds(
    subject: Subject, store: LogStore, profiles: Profiles, count: int = NEAREST
) -> tuple[Config, ...]:
    """Up to `count` configs, each the best of one task on one device, the most similar first."""
    near = store.nearest(subject.task, subject.target, count, imported=True, each=CONSIDERED)
    chosen = (_best(subject, origin, found, profiles) for origin, found in by_origin(near).items())
    return tuple(config for config in chosen if config is not None)[:count]


def _best(
    subject: Subject, origin: Origin, found: Sequence[Record], profiles: Profiles
) -> Config | None:
    """The most promising of one task's records that the space has a config for."""
    adapted = [(r, c) for r in found if (c := subject.space.closest(r.config)) is not None]
    if not adapted:
        return None
    here = (subject.profile.device, subject.target.key)
    if (origin.device, origin.target.key) == here or origin.rule not in RULES:
        return min(adapted, key=lambda pair: measured_s(pair[0]))[1]
    expected = _expected_s(subject, origin, adapted, profiles)
    return adapted[int(np.argmin(expected))][1]


def _expected_s(
    subject: Subject,
    origin: Origin,
    adapted: Sequence[tuple[Record, Config]],
    profiles: Profiles,
) -> Column:
    """Seconds that each config should take here; infinity where its rule no longer describes what
    was measured."""
    there = subject_of(origin, subject.profile, profiles)
    described = there.known([record.config for record, _ in adapted])
    expected = np.full(len(adapted), np.inf)
    places = list(described)
    if not places:
        return subject.describe(subject.rows([config for _, config in adapted])).prior_s
    here_s = subject.describe(subject.rows([adapted[n][1] for n in places])).prior_s
    there_s = there.describe(there.rows(list(described.values()))).prior_s
    expected[places] = [measured_s(adapted[n][0]) for n in places] * here_s / there_s
    return expected

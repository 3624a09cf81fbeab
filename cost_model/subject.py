"""A task as the tuner sees it: its rule, its space, and features of any rows of that space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.target import Target
from autotune.types import Task
from cost_model.features import Features, features
from cost_model.prediction import predict
from search_spaces.base import Rule
from search_spaces.params import Config
from search_spaces.space import Rows, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One task on one device, with the space of its candidates and what judges them."""

    task: Task
    target: Target
    profile: DeviceProfile
    rule: Rule
    space: Space
    elsewhere: Callable[[Rows], Features] | None = None
    """Describes rows on other processors."""
    many: int = 0
    """More rows than this are described elsewhere."""

    @staticmethod
    def of(task: Task, target: Target, profile: DeviceProfile, rule: Rule) -> Subject:
        return Subject(
            task=task, target=target, profile=profile, rule=rule, space=rule.space(task, target)
        )

    @property
    def machine(self) -> Machine:
        """The target with what its device measured."""
        return Machine.of(self.target, self.profile)

    def describe(self, rows: Rows) -> Features:
        """Features and the prior's prediction of rows of the space."""
        if self.elsewhere is not None and len(rows) > self.many:
            return self.elsewhere(rows)
        configs = self.space.configs(rows)
        return features(predict(self.task, self.machine, configs, self.rule))

    def known(self, configs: Sequence[Config]) -> dict[int, Config]:
        """Position and present form of the configs that the space still contains."""
        today = ((n, self.space.as_of_today(config)) for n, config in enumerate(configs))
        return {n: config for n, config in today if config is not None}

    def rows(self, configs: Sequence[Config]) -> Rows:
        """The configs as rows of the space."""
        out = np.empty((len(configs), len(self.space.params)), np.int32)
        for number, config in enumerate(configs):
            out[number] = self.space.row(config)
        return out

"""Predicted seconds of configs, and the config that is predicted to be fastest.

In: a task, a machine, and configs of the task's space. Out: seconds with what they are made of;
the default config. Search, layouts, floors, forecasts and reports all ask here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.schedule.base import Scheduled
from autotune.types import Task
from cost_model.analytic import Estimate, estimate
from search_spaces.base import Column, Prior, Rule, TileStructure
from search_spaces.params import Config
from search_spaces.rules import rule_for
from search_spaces.sound import asked
from search_spaces.space import Configs

SEED = 0
"""Seed of the sample of a space that the default is looked for in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds of configs of one task, and what they were predicted from."""

    rule: str
    structure: TileStructure
    prior: Prior
    estimate: Estimate

    @property
    def seconds(self) -> Column:
        """Seconds of a call, per config."""
        return self.estimate.seconds


def predict(
    task: Task, machine: Machine, configs: Configs | Sequence[Config], rule: Rule | None = None
) -> Prediction:
    """What configs of the task's rule, or of the given one, are predicted to take."""
    rule = rule or rule_for(task, machine.target)
    if not isinstance(configs, Mapping):
        space = rule.space(task, machine.target)
        configs = space.configs(np.array([space.row(config) for config in configs]))
    prior = rule.prior(task, machine, configs)
    structure = rule.structure(task, machine, configs)
    if structure.modelled is not None:
        share = prior.relative * machine.target.threads
        waste = np.where(structure.modelled, share, structure.vector_axis_waste)
        structure = dataclasses.replace(structure, vector_axis_waste=waste)
    found = estimate(structure, machine, prior)
    return Prediction(rule=rule.name, structure=structure, prior=prior, estimate=found)


def default(
    task: Task,
    machine: Machine,
    rule: Rule | None = None,
    settled: Mapping[str, int | str] | None = None,
) -> Config:
    """The config that the prior puts first: valid with zero trials, and good. The least of many
    sampled ones; where the rule says so, of what is downhill from some of these. `settled`: values
    of params; ScheduleError where no config has them."""
    rule = rule or rule_for(task, machine.target)
    space = rule.space(task, machine.target)

    def cost(configs: Mapping[str, Any]) -> Column:
        cycles = rule.prior(task, machine, configs).cycles
        others = [np.asarray(configs[param]) != value for param, value in (settled or {}).items()]
        return np.where(np.any(others, axis=0), np.inf, cycles) if others else cycles

    if missing := [param for param in settled or {} if param not in space.names]:
        raise ScheduleError(f"configs of {rule.name} have no {missing[0]}")
    rows = space.rows(rule.sampled_rows, np.random.default_rng(SEED))
    costs = cost(space.configs(rows))
    best = rows[int(np.argmin(costs))]
    if not np.isfinite(costs.min()):
        raise ScheduleError(f"no config of {rule.name} has {dict(settled or {})}")
    starts = rule.descents(task, space.config(best))
    if starts:
        best = space.least(rows[np.argsort(costs, kind="stable")[:starts]], cost)
    return space.config(best)


def default_of(task: Task, machine: Machine) -> tuple[Rule, Config, Scheduled]:
    """The default of the first rule that has one, and what its schedule makes of the task."""

    def ask(rule: Rule) -> tuple[Rule, Config, Scheduled]:
        config = default(task, machine, rule)
        return rule, config, rule.write(task, machine.target, config)

    return asked(ask, task, machine.target)

"""Predicted seconds of configs, and the config that is predicted to be fastest.

In: a task, a machine, and configs of the task's space. Out: seconds with what they are made of;
the default config. Search, layouts, floors, forecasts and reports all ask here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.machine import Machine
from autotune.schedule.base import Scheduled
from autotune.types import Task
from cost_model.analytic import Estimate, estimate
from search_spaces.base import Column, Prior, Rule, TileStructure
from search_spaces.params import Config
from search_spaces.rules import rule_for
from search_spaces.sound import asked
from search_spaces.space import Configs, Cost, Rows, Space

SEED = 0
"""Seed of the sample of a space that the default is looked for in."""
MOST_STARTS = 64
"""Rows kept of a sample, of which a rule takes no more than a few."""


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
    return least_by(task, machine, rule, (), settled).config(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastConfigs:
    """What the prior puts first for each combination of values of some params."""

    values: tuple[Mapping[str, int | str], ...]
    """The combinations that there are."""
    cycles: tuple[float, ...]
    """Those of the least sampled config that has them."""
    task: Task = field(repr=False)
    rule: Rule
    space: Space = field(repr=False)
    cost: Cost = field(repr=False)
    sorted_rows: tuple[Rows, ...] = field(repr=False)
    """For each combination, the least ones of the sample, as many as may be gone downhill from."""

    def config(self, number: int) -> Config:
        """The default that has the values of this number."""
        rows, space = self.sorted_rows[number], self.space.restricted(self.values[number])
        starts = self.rule.descents(self.task, self.space.config(rows[0]))
        if not starts:
            return self.space.config(rows[0])
        return space.config(space.least(_rows_of(space, self.space, rows[:starts]), self.cost))


def least_by(
    task: Task,
    machine: Machine,
    rule: Rule,
    params: Sequence[str],
    settled: Mapping[str, int | str] | None = None,
) -> LeastConfigs:
    """The least configs for each combination of values of `params`, of a sample of the space.
    Raises ScheduleError where there is none."""
    space = rule.space(task, machine.target).restricted(settled or {})

    def cost(configs: Configs) -> Column:
        return rule.prior(task, machine, configs).cycles

    rows = space.rows(rule.sampled_rows, np.random.default_rng(SEED))
    costs = cost(space.configs(rows))
    rows, costs = rows[order := np.argsort(costs, kind="stable")], costs[order]
    part = np.zeros_like(rows)
    for place in (space.names.index(param) for param in params):
        part[:, place] = rows[:, place]
    _, first, group = np.unique(space.keys(part), return_index=True, return_inverse=True)
    found = [rows[np.flatnonzero(group == number)[:MOST_STARTS]] for number in range(len(first))]
    every = [dict(space.config(rows[n]).items) for n in first]
    return LeastConfigs(
        values=tuple({param: each[param] for param in params} for each in every),
        cycles=tuple(float(costs[n]) for n in first),
        task=task,
        rule=rule,
        space=space,
        cost=cost,
        sorted_rows=tuple(found),
    )


def _rows_of(space: Space, wider: Space, rows: Rows) -> Rows:
    return np.array([space.row(wider.config(row)) for row in rows])


def default_of(task: Task, machine: Machine) -> tuple[Rule, Config, Scheduled]:
    """The default of the first rule that has one, and what its schedule makes of the task."""

    def ask(rule: Rule) -> tuple[Rule, Config, Scheduled]:
        config = default(task, machine, rule)
        return rule, config, rule.write(task, machine.target, config)

    return asked(ask, task, machine.target)

"""The best config of each algorithm that a task can be computed by, instead of the best of all.

In: a task, its rule, and machines that differ in what they hold back (`Machine.among`). Out:
configs with their predicted seconds on each. One of them is fastest for the task by itself;
another may be for its model, whose other weights want room in the cache too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.types import Task
from cost_model.prediction import SEED, predict
from search_spaces.base import Column, Rule
from search_spaces.params import Config
from search_spaces.space import Configs, Cost, Rows, Space

_CHOICE = "algorithm"
"""The param that says what a task is computed by; a rule without it has one algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A config, and the seconds of a call on each of the machines."""

    config: Config
    seconds: tuple[float, ...]


def alternatives(task: Task, machines: Sequence[Machine], rule: Rule) -> tuple[Alternative, ...]:
    """The best configs of each algorithm on the first and on the last of the machines, in the
    order of the space; each as `default` would find it, had the space that algorithm alone."""
    space = rule.space(task, machines[0].target)
    sampled = space.rows(rule.sampled_rows, np.random.default_rng(SEED))
    kinds = _kinds(space.configs(sampled), len(sampled))
    found = []
    for machine in dict.fromkeys((machines[0], machines[-1])):

        def cycles(configs: Configs, machine: Machine = machine) -> Column:
            return rule.prior(task, machine, configs).cycles

        costs = cycles(space.configs(sampled))
        for kind in np.unique(kinds):
            own = np.flatnonzero(kinds == kind)
            own = own[np.argsort(costs[own], kind="stable")]
            starts = rule.descents(task, space.config(sampled[own[0]]))
            least = _least(space, sampled[own[:starts]], cycles, kind) if starts else None
            found.append(sampled[own[0]] if least is None else least)
    rows = np.unique(np.array(found), axis=0)
    configs = space.configs(rows)
    seconds = np.stack([predict(task, m, configs, rule).seconds for m in machines], axis=1)
    return tuple(
        Alternative(config=space.config(row), seconds=tuple(map(float, times)))
        for row, times in zip(rows, seconds, strict=True)
    )


def ranked(task: Task, machine: Machine, rule: Rule, kind: str, count: int) -> list[Alternative]:
    """Sampled configs of one algorithm, the fastest first by the prior."""
    space = rule.space(task, machine.target)
    rows = space.rows(rule.sampled_rows, np.random.default_rng(SEED))
    rows = rows[_kinds(space.configs(rows), len(rows)) == kind]
    costs = rule.prior(task, machine, space.configs(rows)).cycles if len(rows) else np.zeros(0)
    rows = rows[np.argsort(costs, kind="stable")[:count]]
    seconds = predict(task, machine, space.configs(rows), rule).seconds if len(rows) else ()
    return [
        Alternative(config=space.config(row), seconds=(float(time),))
        for row, time in zip(rows, seconds, strict=True)
    ]


def algorithm_of(config: Config) -> str:
    """The name of a config's algorithm; empty where its rule has one."""
    return str(dict(config.items).get(_CHOICE, ""))


def _least(space: Space, starts: Rows, cycles: Cost, kind: str) -> Rows:
    """The row of least cost that is reached downhill from some of one algorithm."""

    def cost(configs: Configs) -> Column:
        own = cycles(configs)
        return np.where(_kinds(configs, len(own)) == kind, own, np.inf)

    return space.least(starts, cost)


def _kinds(configs: Configs, count: int) -> npt.NDArray[Any]:
    """The algorithm of every config."""
    if _CHOICE not in configs:
        return np.zeros(count, "U1")
    return np.asarray(configs[_CHOICE]).astype(str)

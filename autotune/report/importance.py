"""Importance of parameters. In: measured candidates. Out: the share of the spread of their times
that each parameter explains by itself.

The share is the effect size omega squared of a one-way analysis of variance of the logarithm of
time (Hays 1963): first-order importance as in functional ANOVA (Hutter, Hoos, Leyton-Brown 2014),
unbiased by how many choices a parameter has. A search measures good candidates more often than
others, so shares say what mattered among those that were tried.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.db.types import Record
from cost_model.train import measured_s

LEAST_SAMPLES = 16
"""Fewer measured candidates of a task say nothing about eight parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """What a parameter of a rule's spaces explains: mean over tasks, weighted by candidates."""

    rule: str
    param: str
    share: float
    """0 to 1."""
    tasks: int
    samples: int


def importances(records: Sequence[Record]) -> tuple[Importance, ...]:
    """Parameters that were varied, by rule, most important first."""
    found: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for (rule, _), same in _by_task(records).items():
        if len(same) < LEAST_SAMPLES:
            continue
        log_time = np.log([measured_s(r) for r in same])
        configs = [dict(r.config.items) for r in same]
        for param in dict.fromkeys(name for config in configs for name in config):
            choices = [str(config.get(param)) for config in configs]
            if len(set(choices)) > 1:
                found[rule, param].append((explained(choices, log_time), len(same)))
    rows = [_importance(*names, shares) for names, shares in found.items()]
    return tuple(sorted(rows, key=lambda i: (i.rule, -i.share, i.param)))


def explained(choices: Sequence[str], values: np.ndarray) -> float:
    """Share of the variance of `values` [n] between groups of equal choices, 0 to 1."""
    groups = [values[np.array([c == choice for c in choices])] for choice in set(choices)]
    whole = float(((values - values.mean()) ** 2).sum())
    within = math.fsum(float(((g - g.mean()) ** 2).sum()) for g in groups)
    freedom = len(values) - len(groups)
    if whole <= 0 or freedom <= 0:
        return 0.0
    noise = within / freedom
    return max(0.0, (whole - within - (len(groups) - 1) * noise) / (whole + noise))


def _by_task(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Records that worked, by (rule, task)."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if math.isfinite(measured_s(record)):
            found[record.rule, record.task.key].append(record)
    return found


def _importance(rule: str, param: str, shares: Sequence[tuple[float, int]]) -> Importance:
    samples = sum(n for _, n in shares)
    mean = math.fsum(share * n for share, n in shares) / samples
    return Importance(rule=rule, param=param, share=mean, tasks=len(shares), samples=samples)

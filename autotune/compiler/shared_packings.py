"""Packings of weights that the kernels of a task share. In: a task of open sizes, and the samples
that its kernels are scheduled for. Out: a config for each of these, such that few of them pack the
weights in ways of their own.

Each packing is another copy of the weights: of a network's, tens of megabytes that are packed by
compiling, kept, and read from memory where the size before left a cache full of another copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import cost_model
from autotune.compiler.strip_lengths import drawn_values, strips_at
from autotune.defects import NO_DEFECT
from autotune.machine import Machine
from autotune.tasks.samples import open_extents
from autotune.types import Task
from cost_model import LeastConfigs
from search_spaces.base import Rule
from search_spaces.params import Choice, Config
from search_spaces.rules import rule_for

Packing = tuple[tuple[str, Choice], ...]
"""Values of a rule's `packing_params`."""
Column = npt.NDArray[np.float64]
PACKING_GAIN = 0.02
"""Least gain in the mean squared ratio to what any packings would give, for one more (chosen:
about a hundredth of the time)."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a sample's kernel is made by."""

    rule: Rule
    config: Config


def packing_of(rule: Rule, config: Config) -> Packing:
    """How a config's kernel has its weights."""
    params = rule.packing_params
    return tuple((param, value) for param, value in config.items if param in params)


def shared_choices(
    task: Task,
    samples: Sequence[tuple[tuple[int, ...], Task]],
    machine: Machine,
    said: list[str],
) -> dict[tuple[int, ...], Chosen]:
    """Configs of samples, by the lengths of their strips; none where weights lie as they are, or
    no config of the packings that were taken suits. `said`: gets what was in the way."""
    if not task.by_role("constant"):
        return {}
    found = _sampled(samples, machine, said)
    if not found:
        return {}
    packings = _packings(task, found)
    out: dict[tuple[int, ...], Chosen] = {}
    for lengths, least in found.items():
        numbers = [n for n, values in enumerate(least.values) if _key(values) in packings]
        if numbers:
            number = min(numbers, key=lambda n: least.cycles[n])
            out[lengths] = Chosen(least.rule, least.config(number))
    return out


def _sampled(
    samples: Sequence[tuple[tuple[int, ...], Task]], machine: Machine, said: list[str]
) -> dict[tuple[int, ...], LeastConfigs]:
    """What the prior puts first for every packing of every sample."""
    out: dict[tuple[int, ...], LeastConfigs] = {}
    for lengths, small in samples:
        rule = rule_for(small, machine.target)
        if not rule.packing_params:
            continue
        try:
            out[lengths] = cost_model.least_by(small, machine, rule, rule.packing_params)
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect of the rule: its sample is left to others
            said.append(str(error))
    return out


def _packings(task: Task, found: Mapping[tuple[int, ...], LeastConfigs]) -> list[Packing]:
    """Those that are worth their copy, one after the other."""
    drawn = drawn_values(open_extents(task))
    keys = list(dict.fromkeys(_key(v) for least in found.values() for v in least.values))
    # By packing, the least cycles at every drawn size.
    costs = np.full((len(keys), len(drawn)), np.inf)
    for lengths, least in found.items():
        pieces = strips_at(task, lengths)
        for values, cycles in zip(least.values, least.cycles, strict=True):
            number = keys.index(_key(values))
            costs[number] = np.minimum(costs[number], pieces * cycles)
    ideal = costs.min(axis=0)
    served = np.isfinite(ideal)
    costs, ideal = costs[:, served], ideal[served]
    best, taken = np.full(len(ideal), np.inf), list[int]()
    while len(taken) < len(keys):
        loss = ((np.minimum(best, costs) / ideal) ** 2).mean(axis=1)
        number = int(loss.argmin())
        if taken and not loss[number] < ((best / ideal) ** 2).mean() - PACKING_GAIN:
            break
        taken.append(number)
        best = np.minimum(best, costs[number])
    return [keys[number] for number in taken]


def _key(values: Mapping[str, Choice]) -> Packing:
    return tuple(values.items())

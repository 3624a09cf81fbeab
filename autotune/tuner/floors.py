"""Below which time no config of a task goes. In: a subject, and what was measured. Out: seconds.

Direct code has a bound: the multiply-adds of its anchor at the device's peak, and its bytes. What
comes after the anchor may be free. Algorithms with less arithmetic have none: their cost is a
model's guess, which counts until one was measured and another one was faster.
"""

from __future__ import annotations

import math

import numpy as np

import cost_model
from autotune.machine.roofline import roofline_s
from autotune.tasks.flops import anchor_flops
from cost_model.subject import Subject
from search_spaces.params import Choice, Config

_SAMPLE = 512
"""Configs by which the algorithms of a space are judged (chosen, as all constants here)."""
_MODELLED = 0.5
"""What the model says of an algorithm is no bound: it may need this much less."""
_HOPELESS = 1.5
"""An algorithm that is modelled to need this many times the arithmetic of direct code is not
expected to win."""
_BEATEN = 1.25
"""A bound this many times a measured time is of another unit's arithmetic than the device's peak
(tensor cores); less is how far peaks and times scatter."""


class Floors:
    """The floor of a task falls with the algorithms that may still win."""

    def __init__(self, subject: Subject) -> None:
        nbytes = sum(v.type.nbytes for v in subject.task.params)
        flops = anchor_flops(subject.task)
        self._direct_s = roofline_s(flops, nbytes, subject.machine)
        self._others_s = {
            algorithm: roofline_s(round(flops * share), nbytes, subject.machine)
            for algorithm, share in other_algorithms(subject).items()
        }
        self._measured_s: dict[Choice, float] = {}

    def tell(self, config: Config, time_s: float) -> None:
        """Take a measured config into account."""
        algorithm = dict(config.items).get("algorithm", "")
        self._measured_s[algorithm] = min(time_s, self._measured_s.get(algorithm, time_s))

    def seconds(self) -> float:
        """The floor, as far as is known."""
        fastest = min(self._measured_s, key=lambda a: self._measured_s[a], default=None)
        hopeful = (
            floor_s
            for algorithm, floor_s in self._others_s.items()
            if algorithm == fastest or algorithm not in self._measured_s
        )
        floor_s = min((self._direct_s, *hopeful))
        best_s = min(self._measured_s.values(), default=math.inf)
        return floor_s if floor_s <= _BEATEN * best_s else 0.0


def other_algorithms(subject: Subject) -> dict[Choice, float]:
    """Share of the direct arithmetic that each algorithm but the first needs at least."""
    default = subject.space.row(cost_model.default(subject.task, subject.machine, subject.rule))
    rows = np.concatenate([default[None], subject.space.rows(_SAMPLE, np.random.default_rng(0))])
    configs = subject.space.configs(rows)
    if "algorithm" not in configs:
        return {}
    found = cost_model.predict(subject.task, subject.machine, configs, subject.rule).structure
    out: dict[Choice, float] = {}
    for algorithm in next(p.choices for p in subject.space.params if p.name == "algorithm")[1:]:
        share = found.vector_axis_waste[configs["algorithm"] == algorithm]
        if len(share) and share.min() < _HOPELESS:
            out[algorithm] = _MODELLED * float(share.min())
    return out

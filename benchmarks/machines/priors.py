"""How well the prior ranks what was measured, on a machine that it was fitted to and on another.

    python benchmarks/machines/priors.py [--tasks]

In: surveys of forty tasks on each machine (`benchmarks/data`, made by search_efficiency.py), and
what micro-benchmarks found there (`benchmarks/data/machines`). Out: a line per machine and kind of
knowledge: rank correlation, and how much slower than the survey's best the config is that the
prior puts first. Rates were fitted to the surveys of Zen 4; those of Granite Rapids showed which
terms were missing, and were in view when the costs of spills were set. Its `lone_line` is read off
its pools: nobody measured it there. Those of Emerald Rapids came after all of that: nothing was
fitted to them. The same machine held to AVX2 has twenty surveys, by which one cost of tiles was
fitted (`WANDERING_SUM_COST`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from benchmarks.search import search_surveys
from benchmarks.search.recorded_search import as_of_today
from benchmarks.search.recorded_spaces import Survey
from cost_model import predict
from cost_model.metrics import rank_correlation, regret
from search_spaces.rules import RULES

DATA = search_surveys.FOLDER
NAMES = ("granite_rapids", "emerald_rapids", "emerald_rapids_avx2")
MACHINES = {"zen4": DATA} | {name: DATA / name for name in NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A task's survey as the prior orders it."""

    correlation: float
    regret: float


def measured(name: str) -> DeviceProfile:
    """What micro-benchmarks found on a machine."""
    text = (DATA / "machines" / f"{name}.json").read_text(encoding="utf-8")
    return DeviceProfile.from_json(json.loads(text))


def ranked(survey: Survey, facts: DeviceProfile | None) -> Ranked:
    """By the tables alone, or by what was measured."""
    rule, profile = RULES.get(survey.rule), survey.profile
    survey = as_of_today(survey, rule.space(survey.task, profile.target))
    if facts is not None:
        profile = dataclasses.replace(profile, facts=facts.facts)
    configs = survey.space().configs(survey.rows)
    # Surveys call a kernel again and again: of its weights, the caches keep what they can.
    touched = sum(v.type.nbytes for v in survey.task.params)
    machine = Machine.of(profile.target, profile).among(touched)
    predicted = predict(survey.task, machine, configs, rule).seconds
    return Ranked(
        correlation=rank_correlation(predicted, survey.seconds),
        regret=regret(predicted, survey.seconds),
    )


def line(label: str, found: Mapping[str, Ranked]) -> str:
    """One machine, all tasks."""
    lost = np.array([r.regret for r in found.values()])
    middle = np.median([r.correlation for r in found.values()])
    return (
        f"{label:32}{len(lost):4}{middle:8.2f}{np.median(lost):9.1%}{np.quantile(lost, 0.9):8.1%}"
        f"{lost.max():8.1%}{(lost > 0.08).sum():7}{(lost > 0.25).sum():7}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", action="store_true", help="each task as well")
    options = parser.parse_args()
    print(f"{'':30}tasks   corr.   regret     90 %   worst   > 8 %  > 25 %")
    for name, folder in MACHINES.items():
        surveys = search_surveys.machine_surveys(folder)
        for what, facts in (("by the tables", None), ("by what is measured", measured(name))):
            found = {n: ranked(s, facts) for n, s in surveys.items()}
            print(line(f"{name}, {what}", found))
            for task, one in found.items() if options.tasks else ():
                print(f"    {task:28}{one.correlation:8.2f}{one.regret:9.1%}")


if __name__ == "__main__":
    main()

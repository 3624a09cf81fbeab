"""Whether a cost model that was trained on other machines helps on one that it has not seen.

    python benchmarks/machines/pretrained_priors.py

In: the surveys of every machine (`benchmarks/data`). Out: for each of them, how well its tasks are
ranked by the prior alone, by a model that learnt from the same tasks on the other machines, and by
one that learnt from other tasks there: what a model that ships would know of a user's task. A
model ships if the last is better everywhere.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.machines import priors
from benchmarks.search import search_surveys
from benchmarks.search.recorded_search import Recorded
from cost_model.metrics import rank_correlation, regret
from cost_model.models import Dataset
from cost_model.pretrained import Pretrained, pretrain
from cost_model.train import join
from search_spaces.base import Column

FOLDS = 5
"""Parts of the tasks that are left out in turns."""
Tasks = Mapping[str, Recorded]


def recorded(name: str) -> Tasks:
    """The tasks of a machine, described by what was measured there."""
    facts = priors.measured(name).facts
    found = search_surveys.machine_surveys(priors.MACHINES[name])
    return {
        task: Recorded.from_survey(
            dataclasses.replace(s, profile=dataclasses.replace(s.profile, facts=facts))
        )
        for task, s in found.items()
    }


def taught(machines: Mapping[str, Tasks], without: str, left_out: frozenset[str]) -> Pretrained:
    """What the tasks of all machines but one teach, some tasks left out."""
    parts: dict[tuple[str, ...], list[Dataset]] = {}
    lessons = [
        task
        for name, tasks in machines.items()
        if name != without
        for label, task in tasks.items()
        if label not in left_out
    ]
    for number, one in enumerate(lessons):
        data = Dataset(
            names=one.described.names,
            values=one.described.values,
            prior_s=one.described.prior_s,
            time_s=one.survey.seconds,
            group=np.full(len(one.survey.seconds), number),
        )
        parts.setdefault(data.names, []).append(data)
    return pretrain([join(same) for same in parts.values()], 0)


def line(label: str, tasks: Tasks, predicted: Mapping[str, Column]) -> str:
    pairs = [(predicted[name], task.survey.seconds) for name, task in tasks.items()]
    correlation = np.median([rank_correlation(*pair) for pair in pairs])
    first, four = (np.array([regret(*pair, k) for pair in pairs]) for k in (1, 4))
    return (
        f"{label:42}{correlation:6.2f}{np.median(first):8.1%}{np.quantile(first, 0.9):8.1%}"
        f"{first.max():8.1%}{np.mean(four):9.2%}"
    )


def main() -> None:
    machines = {name: recorded(name) for name in priors.MACHINES}
    print(f"{'':42} corr.  regret    90 %   worst  of four")
    for name, tasks in machines.items():
        print(
            line(f"{name}, the prior", tasks, {n: t.described.prior_s for n, t in tasks.items()})
        )
        model = taught(machines, name, frozenset())
        known = {n: model.improve(t.described).prior_s for n, t in tasks.items()}
        print(line(f"{name}, the same tasks elsewhere", tasks, known))
        labels = sorted(tasks)
        fold = np.random.default_rng(0).permutation(len(labels)) % FOLDS
        unknown: dict[str, Column] = {}
        for number in range(FOLDS):
            out = frozenset(n for n, f in zip(labels, fold, strict=True) if f == number)
            model = taught(machines, name, out)
            unknown |= {n: model.improve(tasks[n].described).prior_s for n in out}
        print(line(f"{name}, other tasks elsewhere", tasks, unknown), flush=True)


if __name__ == "__main__":
    main()

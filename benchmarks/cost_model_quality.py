"""How good the cost model is, by the surveys that `search_efficiency.py` measured.

In: the surveys. Out: candidates described and ranked per second; how well the analytical prior,
and what the other tasks teach, rank the tasks of each rule. A model would ship with the package if
it found faster candidates on machines that it has not seen (`pretrained_priors.py`): here, on one
machine, it helps products, and does not help where it learnt from two tasks.

Usage: python benchmarks/cost_model_quality.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import search_surveys

from autotune.tuner.learner import Learner
from benchmarks.recorded_search import Recorded
from cost_model.models import COST_MODELS, Dataset
from cost_model.pretrained import left_out, quality
from cost_model.subject import Subject
from cost_model.train import join

ROWS = 50_000
LEARNT = 60
"""Measured candidates that the timed model has learnt from."""
REPEATS = 3


def speed(subject: Recorded) -> float:
    """Candidates a second of processor time, from rows of the space to predicted seconds."""
    learner = Learner(COST_MODELS.get("xgb"), 0)
    learner.add(0, subject.described.take(np.arange(LEARNT)), subject.survey.seconds[:LEARNT])
    whole = Subject.of(subject.task, subject.target, subject.profile, subject.rule)
    rows = whole.space.rows(ROWS, np.random.default_rng(0))
    rows = np.concatenate([rows] * -(-ROWS // len(rows)))[:ROWS]
    learner.predict(whole.describe(rows[:LEARNT]))  # trains
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        learner.predict(whole.describe(rows))
        spent.append(time.process_time() - start)
    return ROWS / min(spent)


def by_layout(subjects: dict[str, Recorded]) -> dict[str, Dataset]:
    """The data of all tasks with the same features, named by their tasks."""
    parts: dict[tuple[str, ...], list[Dataset]] = {}
    names: dict[tuple[str, ...], list[str]] = {}
    for number, (name, subject) in enumerate(subjects.items()):
        described, seconds = subject.described, subject.survey.seconds
        part = Dataset(
            names=described.names,
            values=described.values,
            prior_s=described.prior_s,
            time_s=seconds,
            group=np.full(len(seconds), number),
        )
        parts.setdefault(part.names, []).append(part)
        names.setdefault(part.names, []).append(name.partition("_")[0])
    return {", ".join(dict.fromkeys(names[n])): join(same) for n, same in parts.items()}


def main() -> None:
    found = search_surveys.machine_surveys(search_surveys.FOLDER)
    subjects = {name: Recorded.from_survey(survey) for name, survey in found.items()}
    for name in ("conv3x3_56x64", "matmul_256", "depthwise_28x96"):
        print(f"{name}: {speed(subjects[name]):,.0f} candidates described and ranked a second")
    print("\nranking of whole spaces      rank corr.  top-8 recall  regret of 4")
    for name, data in by_layout(subjects).items():
        unseen = left_out(data, data.group, 0)
        print(name)
        for label, predicted in (("prior", data.prior_s), ("other tasks' model", unseen)):
            q = quality(predicted, data)
            print(f"  {label:22} {q.rank_correlation:14.2f} {q.top_recall:13.2f} {q.regret:12.1%}")


if __name__ == "__main__":
    main()

"""Searches of recorded spaces: the same every time, and within the trials that are promised."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autotune.tuner.budget import Limits
from autotune.tuner.learner import Learner
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.strategies import STRATEGIES, Setting
from benchmarks.search.recorded_search import (
    SEARCHERS,
    Recorded,
    curve,
    histories,
    knowledge,
    search,
    trials_to,
)
from benchmarks.search.recorded_spaces import ReplayRunner, load_survey
from cost_model.models import COST_MODELS
from cost_model.subject import Subject
from search_spaces.rules import RULES
from tests.unit.measure.test_replay import OF, survey
from tests.unit.tuner.fakes import MemoryStore, partition_of, synthetic_rules
from tests.unit.tuner.synthetic import TARGET

FOLDER = Path(__file__).parents[3] / "benchmarks" / "data"
COLD = next(s for s in SEARCHERS if s.label == "all together")
WARM = next(s for s in SEARCHERS if s.transfer)
SEEDS = 3


@pytest.fixture(scope="module")
def subjects() -> dict[str, Recorded]:
    found = (load_survey(path) for path in sorted(FOLDER.glob("*.npz")))
    return {s.name: Recorded.from_survey(s) for s in found}


def test_the_surveys_are_many_and_small(subjects: Mapping[str, Recorded]) -> None:
    kinds = {name.rpartition("_")[0] for name in subjects}
    assert len(kinds) >= 8
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1 << 20
    assert {s.rule.name for s in subjects.values()} <= set(RULES)


@pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda s: s.label)
def test_same_seed_same_proposals(searcher, subjects: Mapping[str, Recorded]) -> None:  # type: ignore[no-untyped-def]
    name = "conv3x3_14x128"
    runs = []
    for _ in range(2):
        few = {n: subjects[n] for n in (name, "conv3x3_28x64")}
        known = knowledge(few, histories(few, 12), name) if searcher.transfer else None
        subject = known.taught(subjects[name]) if known else subjects[name]
        runs.append(search(subject, searcher, 7, 24, known))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda s: s.label)
def test_shortcuts_of_a_replay_change_no_proposal(searcher, subjects) -> None:  # type: ignore[no-untyped-def]
    """As the tuner itself searches: features are made whenever they are asked for, and what was
    learnt before improves the prior at every look."""
    name, *others = (n for n, s in subjects.items() if s.default and "algorithm" in s.space.names)
    few = {n: subjects[n] for n in (name, others[0])}
    known = knowledge(few, histories(few, 12), name) if searcher.transfer else None
    recorded = few[name]
    plain = Subject(**{f.name: getattr(recorded, f.name) for f in dataclasses.fields(Subject)})
    if searcher.drawn:
        plain = dataclasses.replace(plain, space=recorded.survey.space(drawn=True))
    hints = () if known is None else map(plain.space.closest, known.configs)
    strategy = STRATEGIES.get(searcher.strategy)(
        Setting(
            subject=plain,
            seeds=(recorded.default,) if searcher.informed else (),
            hints=tuple(config for config in hints if config is not None),
            learner=Learner(COST_MODELS.get(searcher.cost_model), 5, known and known.pretrained),
            group=0,
            seed=5,
        )
    )
    subject = known.taught(recorded) if known else recorded
    found = search(subject, searcher, 5, 21, known)
    for start, end in ((0, 1), *((n, n + 4) for n in range(1, 21, 4))):
        assert strategy.propose(end - start) == tuple(o.config for o in found[start:end])
        strategy.tell(found[start:end])


def test_random_search_tries_only_what_was_drawn(subjects: Mapping[str, Recorded]) -> None:
    subject = subjects["softmax_512x384"]
    drawn = subject.survey.seconds > np.median(subject.survey.seconds)
    some = dataclasses.replace(subject, survey=dataclasses.replace(subject.survey, drawn=drawn))
    random = next(s for s in SEARCHERS if s.label == "random")
    tried = search(some, random, 0, len(drawn))
    assert sorted(o.time_s for o in tried) == sorted(subject.survey.seconds[drawn])


def proposals(seed: int, **more: str) -> list[object]:
    """What the whole tuner tries on a recorded space, and what it is told."""
    store = MemoryStore()
    options = TuneOptions(
        target=TARGET, rules=synthetic_rules, limits=Limits(trials=40), seed=seed, **more
    )
    runner = ReplayRunner([survey(200)])
    tune_partition(partition_of(OF.task), runner, store, options)
    return [(r.config, r.schedule, r.result) for r in store.kept]


def test_same_records_same_proposals_through_the_whole_tuner() -> None:
    tried = proposals(3)
    assert len(tried) == 40
    assert tried == proposals(3)
    # A space as small as this one is searched without drawing from it by default.
    model = {"strategy": "model"}
    assert proposals(3, **model) == proposals(3, **model) != proposals(4, **model)


@pytest.mark.slow
def test_same_proposals_in_every_process() -> None:
    code = "from tests.unit.tuner.test_replay import proposals; print(proposals(3))"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=FOLDER.parents[1],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
        )
        for hashes in ("1", "2")
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert first.count(b"Config(") == 40
    assert first == second


def trials(subjects: Mapping[str, Recorded], *, warm: bool) -> dict[str, list[float]]:
    """Per task and seed, trials until within 5 % of the survey's best."""
    history = histories(subjects, 32) if warm else {}
    found = {}
    for name, subject in subjects.items():
        known = knowledge(subjects, history, name) if warm else None
        taught = known.taught(subject) if known else subject
        near_s = float(subject.survey.seconds.min()) * 1.05
        runs = (
            search(taught, WARM if warm else COLD, seed, 64, known, enough_s=near_s)
            for seed in range(SEEDS)
        )
        found[name] = [trials_to(curve(run, 64), near_s) for run in runs]
    return found


@pytest.mark.parametrize(("warm", "median", "most"), [(False, 16, 48), (True, 8, 24)])
def test_few_trials_are_enough(
    subjects: Mapping[str, Recorded], warm: bool, median: int, most: int
) -> None:
    for name, needed in trials(subjects, warm=warm).items():
        assert np.median(needed) <= median, name
        assert max(needed) <= most, name


def test_trials_are_counted_from_one() -> None:
    assert trials_to(np.array([3.0, 2.0, 2.0]), 2.5) == 2
    assert trials_to(np.array([3.0, 2.0]), 1.0) == float("inf")

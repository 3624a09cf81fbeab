from __future__ import annotations

import numpy as np

from autotune.tuner.learner import Learner
from cost_model.metrics import rank_correlation
from cost_model.models import COST_MODELS
from tests.unit.tuner.synthetic import matmul_task, subject, true_seconds

OF = subject()
ROWS = OF.space.rows(10**6, np.random.default_rng(0))
ALL = OF.describe(ROWS)


def test_knows_only_the_prior_at_first() -> None:
    learner = Learner(COST_MODELS.get("xgb"), 0)
    np.testing.assert_array_equal(learner.predict(ALL), ALL.prior_s)


def test_learns_from_what_is_added_later() -> None:
    learner = Learner(COST_MODELS.get("xgb"), 0)
    chosen = np.random.default_rng(1).permutation(len(ROWS))
    scores = []
    for part in (chosen[:20], chosen[20:200]):
        learner.add(0, ALL.take(part), true_seconds(OF, ROWS[part]))
        scores.append(rank_correlation(learner.predict(ALL), true_seconds(OF, ROWS)))
    assert scores[1] > scores[0]


def test_one_shape_learns_from_another() -> None:
    learner = Learner(COST_MODELS.get("xgb"), 0)
    other = subject(matmul_task(512, 512, 128))
    rows = other.space.sample(np.random.default_rng(1), 200)
    learner.add(1, other.describe(rows), true_seconds(other, rows))
    true = true_seconds(OF, ROWS)
    learnt = rank_correlation(learner.predict(ALL), true)
    assert learnt > rank_correlation(ALL.prior_s, true) + 0.02

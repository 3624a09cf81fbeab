"""What every cost model in the registry keeps to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from autotune.errors import ConfigError
from cost_model.features import Features
from cost_model.metrics import rank_correlation
from cost_model.models import COST_MODELS, CostModel, Dataset
from search_spaces.base import Column
from tests.unit.tuner.synthetic import subject, true_seconds

NAMES = tuple(COST_MODELS)
SUBJECT = subject()
ROWS = SUBJECT.space.rows(10**6, np.random.default_rng(0))
ALL = SUBJECT.describe(ROWS)
TRUE = true_seconds(SUBJECT, ROWS)


def samples(count: int, failed: int = 0) -> Dataset:
    chosen = np.random.default_rng(1).choice(len(ROWS), count, replace=False)
    part, time_s = ALL.take(chosen), TRUE[chosen].copy()
    time_s[:failed] = np.inf
    return Dataset(
        names=part.names,
        values=part.values,
        prior_s=part.prior_s,
        time_s=time_s,
        group=np.zeros(count, np.int64),
    )


def fitted(name: str, data: Dataset, seed: int = 0) -> CostModel:
    model = COST_MODELS.get(name)(seed)
    model.fit(data)
    return model


def predict(model: CostModel, candidates: Features = ALL) -> Column:
    return model.predict(candidates)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_predicts_positive_seconds_from_any_amount_of_data(name: str, count: int) -> None:
    predicted = predict(fitted(name, samples(count)))
    assert predicted.shape == (len(ROWS),)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_is_deterministic_under_its_seed(name: str) -> None:
    first, second = (predict(fitted(name, samples(60), seed=4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 60])
def test_a_saved_model_predicts_the_same(name: str, count: int) -> None:
    model, loaded = fitted(name, samples(count)), COST_MODELS.get(name)(1)
    loaded.restore(json.loads(json.dumps(model.state())))
    np.testing.assert_array_equal(predict(loaded), predict(model))


@pytest.mark.parametrize("name", NAMES)
def test_only_failures_are_no_obstacle(name: str) -> None:
    assert np.isfinite(predict(fitted(name, samples(20, failed=20)))).all()


def test_what_is_learnt_ranks_better_than_the_prior() -> None:
    learnt = rank_correlation(predict(fitted("xgb", samples(150))), TRUE)
    assert learnt > rank_correlation(ALL.prior_s, TRUE) + 0.02
    assert learnt > 0.95


def test_without_data_the_prediction_is_the_prior() -> None:
    for count in (0, 1, 3):
        np.testing.assert_array_equal(predict(fitted("xgb", samples(count))), ALL.prior_s)


def test_failed_candidates_are_learnt_as_slow() -> None:
    column = ALL.names.index("extra.nm")
    nm = ALL.values[:, column] == 1
    chosen = np.random.default_rng(2).choice(len(ROWS), 200, replace=False)
    part = ALL.take(chosen)
    model = fitted(
        "xgb",
        Dataset(
            names=part.names,
            values=part.values,
            prior_s=part.prior_s,
            time_s=np.where(nm[chosen], np.inf, part.prior_s),
            group=np.zeros(200, np.int64),
        ),
    )
    fastest = np.argsort(predict(model), kind="stable")[:100]
    assert nm[np.argsort(ALL.prior_s, kind="stable")[:100]].mean() > 0.3
    assert not nm[fastest].any()


def test_tasks_of_different_speed_do_not_confuse_the_ranking() -> None:
    near, far = samples(80), samples(80)
    both = Dataset(
        names=near.names,
        values=np.concatenate([near.values, far.values]),
        prior_s=np.concatenate([near.prior_s, far.prior_s]),
        time_s=np.concatenate([near.time_s, far.time_s * 50]),
        group=np.repeat(np.array([0, 1]), 80),
    )
    assert rank_correlation(predict(fitted("xgb", both)), TRUE) > 0.93


def test_features_of_another_rule_are_refused() -> None:
    model = fitted("xgb", samples(60))
    other = Features(
        names=("other",), values=np.ones((2, 1), np.float32), prior_s=np.array([1.0, 2.0])
    )
    with pytest.raises(ConfigError, match="one model per rule"):
        model.predict(other)

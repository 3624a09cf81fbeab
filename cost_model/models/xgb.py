"""XGBoost over the prior: learns how far measured times are from the analytical model's.

The target is log(measured / prior), taken relative to its task's median, so that what a task's
candidates have in common is not mistaken for a difference between them. Fast candidates weigh
more; failed ones count as slower than every one that worked. With few samples the prediction is
shrunk toward the prior. `xgb-only`, to compare with, learns log(measured) instead and sees neither
the prior nor the features made of it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ConfigError
from cost_model.features import Features
from cost_model.models.base import COST_MODELS, Dataset
from search_spaces.base import Column

_ROUNDS = 60
_MINIMUM = 6
"""Samples below which nothing is learnt."""
_TRUSTED = 16.0
"""Samples at which half of the learnt correction is believed."""
_FAILED = np.log(2.0)
"""How much slower than its task's slowest success a failure counts."""
_OF_THE_PRIOR = frozenset(("prior", "compute", "extra.expected"))
"""Features that say what the prior says."""
_PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 5,
    "eta": 0.15,
    "min_child_weight": 1.0,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "lambda": 1.0,
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
}


class XgbModel:
    """Boosted trees on log(measured / prior), or without the prior on log(measured)."""

    def __init__(self, seed: int, *, with_prior: bool = True) -> None:
        self._seed = seed
        self._with_prior = with_prior
        self.name = "xgb" if with_prior else "xgb-only"
        self._names: tuple[str, ...] = ()
        self._booster: Any = None
        self._trust = 0.0

    def fit(self, data: Dataset) -> None:
        self._booster, self._trust = None, 0.0
        if len(data.time_s) < _MINIMUM or not np.isfinite(data.time_s).any():
            return
        import xgboost  # takes a second to import: not before there is something to learn

        if not self._with_prior:
            data = dataclasses.replace(data, prior_s=np.ones(len(data.time_s)))
        target, weight = targets(data)
        values = data.values[:, self._columns(data.names)]
        matrix = xgboost.DMatrix(values, label=target, weight=weight, nthread=1)
        parameters = {**_PARAMETERS, "seed": self._seed}
        self._booster = xgboost.train(parameters, matrix, num_boost_round=_ROUNDS)
        self._names = data.names
        self._trust = len(target) / (len(target) + _TRUSTED) if self._with_prior else 1.0

    def predict(self, candidates: Features) -> Column:
        prior_s = candidates.prior_s if self._with_prior else np.ones(len(candidates.prior_s))
        if self._booster is None:
            return prior_s
        if candidates.names != self._names:
            raise ConfigError(
                f"the model knows the features {self._names}, got {candidates.names}; "
                "use one model per rule"
            )
        values = candidates.values[:, self._columns(candidates.names)]
        learnt = self._booster.inplace_predict(values).astype(np.float64)
        predicted: Column = prior_s * np.exp(self._trust * learnt)
        return predicted

    def _columns(self, names: tuple[str, ...]) -> slice | npt.NDArray[np.intp]:
        if self._with_prior:
            return slice(None)
        return np.array([n for n, name in enumerate(names) if name not in _OF_THE_PRIOR], np.intp)

    def state(self) -> dict[str, Any]:
        booster = self._booster
        trees = None if booster is None else json.loads(booster.save_raw("json").decode())
        return {"names": list(self._names), "trust": self._trust, "trees": trees}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._names, self._trust = tuple(state["names"]), float(state["trust"])
        self._booster = None
        if state["trees"] is not None:
            import xgboost

            self._booster = xgboost.Booster({"nthread": 1})
            self._booster.load_model(bytearray(json.dumps(state["trees"]).encode()))


def targets(data: Dataset) -> tuple[Column, Column]:
    """What to learn, and how much each sample weighs: log ratios relative to their task's."""
    target = np.zeros(len(data.time_s))
    weight = np.ones(len(data.time_s))
    for group in np.unique(data.group):
        rows = np.flatnonzero(data.group == group)
        worked = rows[np.isfinite(data.time_s[rows])]
        failed = rows[~np.isfinite(data.time_s[rows])]
        if len(worked):
            ratio = np.log(data.time_s[worked] / data.prior_s[worked])
            middle = float(np.median(ratio))
            target[worked] = ratio - middle
            weight[worked] = np.sqrt(data.time_s[worked].min() / data.time_s[worked])
            slowest = np.log(data.time_s[worked].max()) + _FAILED
            target[failed] = np.maximum(slowest - np.log(data.prior_s[failed]) - middle, _FAILED)
        else:
            target[failed] = _FAILED
        weight[failed] = 0.3
    return target, weight


COST_MODELS.add("xgb", XgbModel)
COST_MODELS.add("xgb-only", functools.partial(XgbModel, with_prior=False))

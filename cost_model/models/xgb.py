"""XGBoost over the prior: learns to rank a task's candidates, starting from the analytical model.

The objective is pairwise, within a task, over pairs with one of the fastest: what a task's
candidates have in common is not mistaken for a difference between them, and errors among slow ones
count little. The prior is the base margin: a score is -SHARPNESS * log(seconds), so that what is
learnt reads as a factor on the prior's seconds. Failed candidates rank last. With few samples the
prediction is shrunk toward the prior. How likely a candidate fails is learnt apart, in `validity`.
`xgb-only`, to compare with, sees neither the prior nor the features made of it.

`xgb-general` learns what carries over to tasks that it has not seen, of which there are few to
learn from: shallow trees, cautious leaves, and only the features that differ between the
candidates of a task. By the others it would tell the tasks apart, and learn each by heart.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ConfigError
from cost_model.features import Features, Matrix
from cost_model.models.base import COST_MODELS, Dataset
from search_spaces.base import Column

_ROUNDS = 60
"""Trees of the model."""
_MINIMUM = 4
"""Samples below which nothing is learnt."""
_TRUSTED = 8.0
"""Samples at which half of the learnt correction is believed."""
SHARPNESS = 4.0
"""Score per log-second: a pair whose predicted times differ by a quarter is ordered with odds of
about 2.7 to 1."""
_GRADES = 31
"""Grade of a task's fastest candidate; others get their share of it, failures 0."""
_OF_THE_PRIOR = frozenset(("prior", "compute", "extra.expected", "extra.counted"))
"""Features that say what the prior says."""
_PARAMETERS = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": 16,
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
_GENERAL = {"max_depth": 3, "lambda": 5.0}


class XgbModel:
    """Boosted trees whose scores rank; `with_prior`: from the prior's on. `general`: for tasks
    that it has not seen."""

    def __init__(self, seed: int, *, with_prior: bool = True, general: bool = False) -> None:
        self._seed = seed
        self._with_prior = with_prior
        self._general = general
        self.name = ("xgb-general" if general else "xgb") if with_prior else "xgb-only"
        self._used: npt.NDArray[np.intp] | None = None
        """Columns that the trees see; None: all."""
        self._names: tuple[str, ...] = ()
        self._booster: Any = None
        self._trust = 0.0

    def fit(self, data: Dataset) -> None:
        self._booster, self._trust = None, 0.0
        if len(data.time_s) < _MINIMUM or not np.isfinite(data.time_s).any():
            return
        self._used = self._columns(data)
        if self._used is not None and not len(self._used):
            return  # a candidate of each task: nothing to compare
        import xgboost  # takes a second to import: not before there is something to learn

        order = np.argsort(data.group, kind="stable")
        group = data.group[order]
        matrix = xgboost.DMatrix(
            self._seen(data.values[order]), label=grades(data)[order], nthread=1
        )
        matrix.set_group(np.unique(group, return_counts=True)[1])
        matrix.set_base_margin(self._margin(data.prior_s[order], group))
        parameters = {**_PARAMETERS, **(_GENERAL if self._general else {}), "seed": self._seed}
        # As xgboost.train does, without its callbacks, which take as long as trees this small.
        self._booster = xgboost.Booster(parameters, [matrix])
        for number in range(_ROUNDS):
            self._booster.update(matrix, number)
        self._names = data.names
        self._trust = len(group) / (len(group) + _TRUSTED) if self._with_prior else 1.0

    def _margin(self, prior_s: Column, group: npt.NDArray[np.int64]) -> Column:
        """Score of the prior alone, relative to its task's fastest."""
        margin = np.zeros(len(prior_s))
        for number in np.unique(group) if self._with_prior else ():
            rows = group == number
            margin[rows] = -SHARPNESS * np.log(prior_s[rows] / prior_s[rows].min())
        return margin

    def predict(self, candidates: Features) -> Column:
        prior_s = candidates.prior_s if self._with_prior else np.ones(len(candidates.prior_s))
        if self._booster is None:
            return prior_s
        if candidates.names != self._names:
            raise ConfigError(
                f"the model knows the features {self._names}, got {candidates.names}; "
                "use one model per rule"
            )
        values = self._seen(candidates.values)
        learnt = self._booster.inplace_predict(values, predict_type="margin").astype(np.float64)
        predicted: Column = prior_s * np.exp(-self._trust / SHARPNESS * learnt)
        return predicted

    def _columns(self, data: Dataset) -> npt.NDArray[np.intp] | None:
        if self._general:
            tasks = (data.values[data.group == number] for number in np.unique(data.group))
            varies = np.any([np.ptp(values, axis=0) > 0 for values in tasks], axis=0)
            return np.flatnonzero(varies)
        if self._with_prior:
            return None
        return np.flatnonzero([name not in _OF_THE_PRIOR for name in data.names])

    def _seen(self, values: Matrix) -> Matrix:
        return values if self._used is None else values[:, self._used]

    def state(self) -> dict[str, Any]:
        booster = self._booster
        trees = None if booster is None else json.loads(booster.save_raw("json").decode())
        used = None if self._used is None else self._used.tolist()
        return {"names": list(self._names), "trust": self._trust, "used": used, "trees": trees}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._names, self._trust = tuple(state["names"]), float(state["trust"])
        used = state.get("used")
        self._used = None if used is None else np.array(used, np.intp)
        self._booster = None
        if state["trees"] is not None:
            import xgboost

            self._booster = xgboost.Booster({"nthread": 1})
            self._booster.load_model(bytearray(json.dumps(state["trees"]).encode()))


def grades(data: Dataset) -> Column:
    """How good each candidate is among its task's: whole numbers from 0 (failed) to _GRADES."""
    out = np.zeros(len(data.time_s))
    for number in np.unique(data.group):
        rows = np.flatnonzero(data.group == number)
        worked = rows[np.isfinite(data.time_s[rows])]
        if len(worked):
            share = data.time_s[worked].min() / data.time_s[worked]
            out[worked] = np.maximum(1, np.round(_GRADES * share))
    return out


COST_MODELS.add("xgb", XgbModel)
COST_MODELS.add("xgb-general", functools.partial(XgbModel, general=True))
COST_MODELS.add("xgb-only", functools.partial(XgbModel, with_prior=False))

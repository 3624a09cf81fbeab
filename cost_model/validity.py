"""Validity model: chances that candidates build and run. In: measured candidates. Out: chances of
success.

Most rules let nothing through that fails. Where failures come all the same (a device's limits that
are not documented, a compiler's), they are learnt apart from the ranking: how likely a candidate
fails has little to do with how fast its neighbours are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.features import Features
from cost_model.models.base import Dataset
from search_spaces.base import Column

_LEAST = 3
"""Failures below which nothing is learnt."""
_OTHERS = 200
"""Candidates that were not measured, drawn to be told from failures."""
_DOUBT = 0.25
"""Weight, over that of the failures, of candidates that were not measured, counted as if they
worked: what failed is told from the rest even before anything worked. Later it counts less."""
_ROUNDS = 20
"""Trees of the classifier."""
UNLIKELY = 0.05
"""Least chance: nothing is ruled out for good."""
_PARAMETERS = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 3,
    "eta": 0.3,
    "min_child_weight": 1.0,
    "lambda": 1.0,
    "nthread": 1,
    "verbosity": 0,
}


class Validity:
    """A classifier of candidates of one feature layout, without an opinion until some failed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._booster: Any = None

    def fit(self, data: Dataset, others: Features) -> None:
        """Learn from all measured candidates, anew. `others`: those that may be measured next."""
        self._booster = None
        worked = np.isfinite(data.time_s)
        failed = int((~worked).sum())
        if failed < _LEAST:
            return
        import xgboost

        more = others.values[:: -(-len(others.values) // _OTHERS) or 1]
        doubt = _DOUBT * failed / (1 + int(worked.sum())) / max(1, len(more))
        matrix = xgboost.DMatrix(
            np.concatenate([data.values, more]),
            label=np.concatenate([worked, np.ones(len(more))]),
            weight=np.concatenate([np.ones(len(worked)), np.full(len(more), doubt)]),
            nthread=1,
        )
        parameters = {**_PARAMETERS, "seed": self._seed}
        self._booster = xgboost.train(parameters, matrix, num_boost_round=_ROUNDS)

    def chance(self, candidates: Features) -> Column:
        """Probability of success, per candidate: from UNLIKELY to 1, and 1 for all as long as few
        failed."""
        if self._booster is None:
            return np.ones(len(candidates.prior_s))
        found = self._booster.inplace_predict(candidates.values).astype(np.float64)
        return np.asarray(np.clip(found, UNLIKELY, 1.0), np.float64)

"""A model that knows nothing: what the others are compared with. Registered as `random`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_model.features import Features
from cost_model.models.base import COST_MODELS, Dataset
from search_spaces.base import Column


class RandomModel:
    """Predicts a random time per candidate, the same for the same features and seed."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, data: Dataset) -> None:
        del data

    def predict(self, candidates: Features) -> Column:
        rng = np.random.default_rng(self._seed)
        weights = rng.normal(size=candidates.values.shape[1])
        # The fractional part of a large multiple scatters even nearly equal feature rows.
        drawn: Column = (candidates.values.astype(np.float64) @ weights * 1e4) % 1.0 + 1e-9
        return drawn

    def state(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._seed = int(state["seed"])


COST_MODELS.add("random", RandomModel)

"""The prior alone: candidates are ranked by the analytical model, and nothing is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cost_model.features import Features
from cost_model.models.base import COST_MODELS, Dataset
from search_spaces.base import Column


class PriorModel:
    """Predicts what the analytical model predicts."""

    name = "prior"

    def __init__(self, seed: int) -> None:
        del seed

    def fit(self, data: Dataset) -> None:
        del data

    def predict(self, candidates: Features) -> Column:
        return candidates.prior_s

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        del state


COST_MODELS.add("prior", PriorModel)

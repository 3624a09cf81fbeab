"""Cost models: the protocol, and the registry of them.

A model learns from measured candidates and predicts seconds of candidates from features and the
prior. Add one: a file in this folder and `COST_MODELS.add(NAME, factory)`. What it has learnt is
plain JSON, which `cost_model.pretrained` keeps in files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autotune.registry import Registry
from cost_model.features import Features, Matrix
from search_spaces.base import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Measured candidates whose features have the same columns, of one or several tasks."""

    names: tuple[str, ...]
    values: Matrix
    prior_s: Column
    time_s: Column
    """Measured seconds; infinity where the candidate failed."""
    group: npt.NDArray[np.int64]
    """Number of the task each row belongs to: candidates are compared within a task."""

    def __post_init__(self) -> None:
        sizes = {len(self.values), len(self.prior_s), len(self.time_s), len(self.group)}
        if len(sizes) != 1 or self.values.shape[1:] != (len(self.names),):
            raise ValueError(f"dataset columns differ in length: {sizes}, {self.values.shape}")


class CostModel(Protocol):
    """Predicts seconds of candidates; deterministic under its seed. Small sets are fine: with too
    little data the prediction is the prior."""

    @property
    def name(self) -> str: ...

    def fit(self, data: Dataset) -> None:
        """Learn from all measured candidates, anew."""
        ...

    def predict(self, candidates: Features) -> Column:
        """Predicted seconds, comparable within a task."""
        ...

    def state(self) -> dict[str, Any]:
        """What was learnt, as JSON-able values; `restore` takes it back."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


Train = Callable[[CostModel, int, Dataset], None]
"""Has a model of this seed learn from data, here or elsewhere."""


def fit_here(model: CostModel, seed: int, data: Dataset) -> None:
    """Train where this is called."""
    del seed
    model.fit(data)


COST_MODELS: Registry[Callable[[int], CostModel]] = Registry("cost model")
"""Name -> factory, which takes the seed."""

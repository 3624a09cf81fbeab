"""The cost models of a run, which its tasks train together: one per feature layout.

In: features of measured candidates and their times. Out: predictions for any candidates. Tasks of
a rule share a model: a shape's first batch profits from the shapes measured before it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cost_model.features import Features
from cost_model.models.base import CostModel, Dataset, Train, fit_here
from cost_model.pretrained import Pretrained
from cost_model.train import join
from cost_model.validity import Validity
from search_spaces.base import Column


class Learner:
    """Holds the data and fits a model anew when it is asked after new data came. What was learnt
    before the run takes the place of the analytical prior."""

    def __init__(
        self,
        factory: Callable[[int], CostModel],
        seed: int,
        pretrained: Pretrained | None = None,
        train: Train = fit_here,
    ) -> None:
        self._factory = factory
        self._train = train
        self._pretrained = pretrained
        self._seed = seed
        self._parts: dict[tuple[str, ...], list[Dataset]] = {}
        self._models: dict[tuple[str, ...], CostModel] = {}
        self._validity: dict[tuple[str, ...], Validity] = {}
        self._stale: set[tuple[str, ...]] = set()

    def add(self, group: int, candidates: Features, time_s: Column) -> None:
        """Measured candidates of task number `group`; infinity marks a failure."""
        if not len(time_s):
            return
        candidates = self._improved(candidates)
        part = Dataset(
            names=candidates.names,
            values=candidates.values,
            prior_s=candidates.prior_s,
            time_s=time_s,
            group=np.full(len(time_s), group, np.int64),
        )
        self._parts.setdefault(candidates.names, []).append(part)
        self._stale.add(candidates.names)

    def predict(self, candidates: Features) -> Column:
        """Predicted seconds until a candidate like this succeeds, comparable within a task: what
        works one time in two takes two trials."""
        names = candidates.names
        model = self._models.setdefault(names, self._factory(self._seed))
        validity = self._validity.setdefault(names, Validity(self._seed))
        if names in self._stale:
            data = join(self._parts[names])
            self._train(model, self._seed, data)
            validity.fit(data, candidates)
            self._stale.discard(names)
        return model.predict(self._improved(candidates)) / self.chance(candidates)

    def before(self, candidates: Features) -> Column:
        """Seconds as they were predicted before the run."""
        return self._improved(candidates).prior_s

    def chance(self, candidates: Features) -> Column:
        """How likely candidates build and run, as far as is known: 1 where nothing failed yet."""
        validity = self._validity.get(candidates.names)
        return (
            np.ones(len(candidates.prior_s)) if validity is None else validity.chance(candidates)
        )

    def _improved(self, candidates: Features) -> Features:
        return candidates if self._pretrained is None else self._pretrained.improve(candidates)

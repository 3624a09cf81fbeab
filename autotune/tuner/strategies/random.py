"""Random search: the seeds, then the space in random order. The baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.tuner.strategies.base import STRATEGIES, Outcome, Setting, Tried, take_seeds
from search_spaces.params import Config
from search_spaces.space import Rows


class RandomStrategy:
    """Walks a random permutation of the pool."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._space = setting.subject.space
        self._rng = np.random.default_rng((setting.seed, setting.group))
        self._tried = Tried(self._space)
        self._order: Rows | None = None

    def propose(self, n: int) -> tuple[Config, ...]:
        out = take_seeds((*self._setting.seeds, *self._setting.hints), self._space, self._tried, n)
        if len(out) < n:
            order = self._shuffled()
            rows = order[np.flatnonzero(self._tried.untried(order))[: n - len(out)]]
            self._tried.add(rows)
            out += [self._space.config(row) for row in rows]
        return tuple(out)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        self._tried.add(self._setting.subject.rows([o.config for o in outcomes]))

    def expected_s(self) -> float | None:
        return None

    def _shuffled(self) -> Rows:
        if self._order is None:
            rows = self._space.rows(self._setting.pool, self._rng)
            self._order = rows[self._rng.permutation(len(rows))]
        return self._order


STRATEGIES.add("random", RandomStrategy)

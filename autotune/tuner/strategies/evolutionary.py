"""Evolutionary search: the fastest measured configs are crossed and mutated. No cost model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.tuner.strategies.base import STRATEGIES, Outcome, Setting, Tried, take_seeds
from search_spaces.params import Config
from search_spaces.space import Rows

_PARENTS = 12
"""The fastest configs, of which others are bred (chosen, as all constants here)."""
_RANDOM_SHARE = 0.15
"""Share of proposals that are drawn from the whole space."""
_TRIES = 200
"""Children bred for one that was not proposed before, at most."""


class EvolutionaryStrategy:
    """Keeps everything measured; the fastest dozen are parents."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._space = setting.subject.space
        self._rng = np.random.default_rng((setting.seed, setting.group))
        self._tried = Tried(self._space)
        self._measured: list[tuple[float, Rows]] = []
        self._pool: Rows | None = None

    def propose(self, n: int) -> tuple[Config, ...]:
        out = take_seeds((*self._setting.seeds, *self._setting.hints), self._space, self._tried, n)
        while len(out) < n:
            row = self._child()
            if row is None:
                break
            self._tried.add(row[None])
            out.append(self._space.config(row))
        return tuple(out)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        rows = self._setting.subject.rows([o.config for o in outcomes])
        self._tried.add(rows)
        worked = [(o.time_s, row) for o, row in zip(outcomes, rows, strict=True)]
        self._measured += [pair for pair in worked if np.isfinite(pair[0])]
        self._measured.sort(key=lambda pair: pair[0])

    def expected_s(self) -> float | None:
        return None

    def _child(self) -> Rows | None:
        """A config not tried yet; None where none is found."""
        parents = self._measured[:_PARENTS]
        for _ in range(_TRIES if len(parents) > 1 else 0):
            if self._rng.random() < _RANDOM_SHARE:
                break
            # The square of a uniform number: the fastest are parents more often.
            places = (len(parents) * self._rng.random(2) ** 2).astype(int)
            first, second = (parents[i][1] for i in places)
            mixed = np.where(self._rng.random(len(first)) < 0.5, first, second)
            start = mixed if self._space.valid(mixed[None])[0] else first
            row = self._space.mutate(self._rng, start)
            if len(self._tried.new(row[None])):
                return row
        if self._pool is None:
            self._pool = self._space.rows(self._setting.pool, self._rng)
        left = np.flatnonzero(self._tried.untried(self._pool))
        return self._pool[self._rng.choice(left)] if len(left) else None


STRATEGIES.add("evolutionary", EvolutionaryStrategy)

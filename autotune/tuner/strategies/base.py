"""Search strategies: each proposes configs of one task, and is told how they did.

Add one: a file in this folder and `STRATEGIES.add(NAME, factory)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autotune.registry import Registry
from autotune.tuner.learner import Learner
from cost_model.subject import Subject
from search_spaces.params import Config
from search_spaces.space import Rows, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a config: median seconds, infinity where it failed."""

    config: Config
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The search problem of a strategy."""

    subject: Subject
    seeds: tuple[Config, ...]
    """Proposed first, in order. All in the space."""
    learner: Learner
    group: int
    """The task's number among those that share the learner."""
    seed: int
    hints: tuple[Config, ...] = ()
    """Did well elsewhere: proposed right after the seeds by a strategy that has no reason against
    it. All in the space."""
    pool: int = 50_000
    """Configs considered at most; smaller spaces are considered whole."""


class Strategy(Protocol):
    """Searches one task's space. Deterministic under the setting's seed and what it is told."""

    def propose(self, n: int) -> tuple[Config, ...]:
        """Up to `n` configs of the space, none proposed or told before. Empty: nothing is left
        that is worth a trial."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Results of proposed configs, or of configs measured in an earlier run."""
        ...

    def expected_s(self) -> float | None:
        """Predicted seconds of the best config not yet tried; None without an opinion."""
        ...


STRATEGIES: Registry[Callable[[Setting], Strategy]] = Registry("strategy")


class Tried:
    """The configs of a space that were proposed or told: none is proposed twice."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._keys: set[int] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, rows: Rows) -> None:
        self._keys.update(int(k) for k in self._space.keys(rows))

    def new(self, rows: Rows) -> Rows:
        """The rows not tried, in order, each once."""
        kept, seen = [], set(self._keys)
        for number, key in enumerate(self._space.keys(rows).tolist()):
            if key not in seen:
                seen.add(key)
                kept.append(number)
        return rows[np.array(kept, np.intp)]

    def untried(self, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the rows not tried, without a walk in Python."""
        tried = np.fromiter(self._keys, np.int64, len(self._keys))
        return ~np.isin(self._space.keys(rows), tried)


def take_seeds(seeds: Iterable[Config], space: Space, tried: Tried, n: int) -> list[Config]:
    """The next up to `n` seeds that are not tried yet; they count as tried from now on."""
    out: list[Config] = []
    for config in seeds:
        if len(out) == n:
            break
        row = space.row(config)[None]
        if len(tried.new(row)):
            tried.add(row)
            out.append(config)
    return out

"""Model-guided search, registered as `model`: the cost model ranks the whole (or heavily sampled)
space, and each batch takes its best, spread out, with a share of neighbours of the best measured
config and a share of exploration.

What the analytical model says of an algorithm is off by about the same factor for all of its
configs: an algorithm that may win is tried before anything else (twice, where the first config
disappoints), and from then on predictions are scaled by what was measured of each.

A batch is empty when nothing untried is expected to be faster than the best by more than
measurements scatter, and the last trials did not improve on it either.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autotune.tuner.strategies.base import STRATEGIES, Outcome, Setting, Tried, take_seeds
from cost_model.features import Features
from search_spaces.base import Column
from search_spaces.params import Config
from search_spaces.space import Rows

_EXPLORE = 0.15
"""Share of the proposals that are unlike what was tried before (chosen, as all shares here;
changes are judged by `benchmarks/search/search_efficiency.py replay`)."""
_LOCAL = 0.4
"""Share of the proposals that are neighbours of the best."""
_SPREAD = 0.5
"""Predicted log-time given up for a config that has nothing in common with those tried before."""
_RIVAL = 1.5
"""An algorithm may win if its best config is predicted to take at most this many times as long as
the best of all."""
_DISAPPOINTING = 1.25
"""Measured over predicted time of an algorithm's first config from which another one is tried."""
_HINTED = 1.3
"""A config that did well elsewhere is tried early if it is predicted to take at most this many
times as long as the best. Replayed on surveys, trying every one costs 5 % more trials."""
_NOISE = 0.02
"""Relative difference that measurements cannot tell from none."""
_PATIENCE = 24
"""Trials without improvement before the prediction alone decides whether to go on."""
_RECENT = 32
"""Measured configs by which predictions, which are relative to a task, are scaled to seconds."""
_GROW = 6
"""Best predicted configs of a sampled space whose neighbours join the pool, per batch."""


class ModelStrategy:
    """Ranks a pool of configs; the pool is the space where that is small enough."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._subject = setting.subject
        self._space = setting.subject.space
        self._rng = np.random.default_rng((setting.seed, setting.group))
        self._tried = Tried(self._space)
        self._rows: Rows = np.empty((0, len(self._space.params)), np.int32)
        self._hints: Rows = self._subject.rows(setting.hints)
        self._features: Features | None = None
        self._best_s = float("inf")
        self._best: Rows | None = None
        self._since_best = 0
        names = self._space.names
        self._algorithm_at = names.index("algorithm") if "algorithm" in names else None
        at = self._algorithm_at
        self._algorithms = 1 if at is None else len(self._space.params[at].choices)
        self._untold = set(range(self._algorithms))
        """Algorithms of which a config is to be tried, if they may win."""
        self._promised: dict[int, float] = {}
        """What was predicted of the first config of an algorithm; infinity: it had a second."""
        self._worked: Rows = self._rows
        self._worked_s: Column = np.empty(0)
        self._expected_s: float | None = None

    def propose(self, n: int) -> tuple[Config, ...]:
        out = take_seeds(self._setting.seeds, self._space, self._tried, n)
        self._note(self._subject.rows(out))
        if len(out) < n:
            rows = self._choose(n - len(out))
            self._note(rows)
            out += [self._space.config(row) for row in rows]
        return tuple(out)

    def _note(self, rows: Rows) -> None:
        self._tried.add(rows)
        self._untold.difference_update(self._algorithm(rows).tolist())

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        rows = self._subject.rows([o.config for o in outcomes])
        self._note(rows)
        times = np.array([o.time_s for o in outcomes], np.float64)
        worked = np.isfinite(times)
        self._worked = np.concatenate([self._worked, rows[worked]])[-_RECENT:]
        self._worked_s = np.concatenate([self._worked_s, times[worked]])[-_RECENT:]
        for row, time_s in zip(rows, times, strict=True):
            self._since_best += 1
            if time_s < self._best_s * (1 - _NOISE / 2):
                self._since_best = 0
            if time_s < self._best_s:
                self._best_s, self._best = float(time_s), row
        for number, time_s in zip(self._algorithm(rows).tolist(), times, strict=True):
            if time_s > _DISAPPOINTING * self._promised.get(number, np.inf):
                self._promised[number] = np.inf
                self._untold.add(number)
        self._setting.learner.add(self._setting.group, self._subject.describe(rows), times)

    def expected_s(self) -> float | None:
        return self._expected_s

    # ------------------------------------------------------------------------------ choosing

    def _choose(self, n: int) -> Rows:
        self._grow_pool()
        left = np.flatnonzero(self._tried.untried(self._rows))
        if not len(left):
            self._expected_s = None
            return self._rows[left]
        predicted = self._predict(left)
        self._expected_s = float(predicted.min())
        if self._settled():
            return self._rows[left[:0]]
        order = np.argsort(predicted, kind="stable")
        rivals = self._rivals(left[order], predicted[order], n)
        first = _each_once(rivals + self._hinted(left, predicted, n - len(rivals)))
        room = n - len(first)
        explore = self._round(room * _EXPLORE) if len(self._worked) else 0
        local = self._round(room * _LOCAL) if self._best is not None else 0
        near = self._near_best(left, predicted, local)
        chosen = _each_once(first + near)
        near = chosen[len(first) :]
        best = self._spread(left[order], predicted[order], n - explore - len(chosen), chosen)
        chosen = first + best + near
        chosen += self._surprise(left[order], n - len(chosen), chosen)
        return self._rows[np.array(chosen, np.intp)]

    def _round(self, share: float) -> int:
        """The share as a whole number, right on average."""
        return int(share + self._rng.random())

    def _predict(self, places: npt.NDArray[np.intp]) -> Column:
        """Seconds, scaled by what was measured of each config's algorithm."""
        if self._features is None:
            raise RuntimeError("the pool is described before it is ranked")
        predicted = self._setting.learner.predict(self._features.take(places))
        return predicted * self._scales()[self._algorithm(self._rows[places])]

    def _algorithm(self, rows: Rows) -> Rows:
        """Number of each row's algorithm, where the task has a choice."""
        at = self._algorithm_at
        return np.zeros(len(rows), rows.dtype) if at is None else rows[:, at]

    def _scales(self) -> Column:
        """Measured over predicted seconds, by algorithm, of the configs that worked lately; what
        was not measured is taken to be off like the rest."""
        if not len(self._worked):
            return np.ones(self._algorithms)
        predicted = self._setting.learner.predict(self._subject.describe(self._worked))
        off = np.log(self._worked_s / predicted)
        scales = np.full(self._algorithms, np.median(off))
        algorithms = self._algorithm(self._worked)
        for number in np.unique(algorithms):
            own = off[algorithms == number]
            scales[number] += (np.median(own) - scales[number]) * len(own) / (len(own) + 2)
        return np.asarray(np.exp(scales), np.float64)

    def _rivals(self, order: npt.NDArray[np.intp], predicted: Column, n: int) -> list[int]:
        """The best configs of up to `n` algorithms that nothing is known of and that may win."""
        algorithms = self._algorithm(self._rows[order])
        best_s = min(self._best_s, float(predicted[0]))
        firsts = [np.flatnonzero(algorithms == number)[:1] for number in sorted(self._untold)]
        found = sorted(int(first[0]) for first in firsts if len(first))
        found = [at for at in found if predicted[at] <= _RIVAL * best_s][:n]
        for at in found:
            self._promised.setdefault(int(algorithms[at]), float(predicted[at]))
        return [int(order[at]) for at in found]

    def _hinted(self, left: npt.NDArray[np.intp], predicted: Column, n: int) -> list[int]:
        """Up to `n` of the hints that are not predicted to be much slower than the best."""
        worth = left[predicted <= _HINTED * predicted.min()]
        known = np.isin(self._space.keys(self._rows[worth]), self._space.keys(self._hints))
        return [int(place) for place in worth[known][:n]]

    def _settled(self) -> bool:
        if self._since_best < _PATIENCE or self._expected_s is None:
            return False
        return self._expected_s > self._best_s * (1 - _NOISE) or self._since_best >= 3 * _PATIENCE

    def _grow_pool(self) -> None:
        """The pool at first, then, where the space is only sampled, neighbours of its best."""
        if self._features is None:
            rows = self._space.rows(self._setting.pool, self._rng)
            rows = rows[self._rng.permutation(len(rows))]  # equal predictions: any order
            sampled_out = ~np.isin(self._space.keys(self._hints), self._space.keys(rows))
            self._rows = np.concatenate([rows, self._hints[sampled_out]])
            self._features = self._subject.describe(self._rows)
        if self._space.raw_size <= self._setting.pool:
            return
        predicted = self._predict(np.arange(len(self._rows)))
        starts = list(self._rows[np.argsort(predicted, kind="stable")[:_GROW]])
        if self._best is not None:
            starts.append(self._best)
        found = np.concatenate([self._space.neighbours(row) for row in starts])
        keys = self._space.keys(found)
        found = found[np.sort(np.unique(keys, return_index=True)[1])]
        found = found[~np.isin(self._space.keys(found), self._space.keys(self._rows))]
        self._extend(found)

    def _extend(self, rows: Rows) -> None:
        if not len(rows) or self._features is None:
            return
        more = self._subject.describe(rows)
        self._rows = np.concatenate([self._rows, rows])
        self._features = Features(
            names=more.names,
            values=np.concatenate([self._features.values, more.values]),
            prior_s=np.concatenate([self._features.prior_s, more.prior_s]),
        )

    def _near_best(self, left: npt.NDArray[np.intp], predicted: Column, n: int) -> list[int]:
        """Local descent: the best predicted configs one change away from the best measured, the
        sooner the less is known of the value that changes."""
        if self._best is None or n == 0:
            return []
        changed = self._rows[left] != self._best
        near = np.flatnonzero(changed.sum(axis=1) == 1)
        param = changed[near].argmax(axis=1)
        value = self._rows[left[near], param]
        seen = (self._worked[:, param] == value).sum(axis=0)
        score = np.log(predicted[near]) - _SPREAD / (1 + seen)
        return [int(p) for p in left[near[np.argsort(score, kind="stable")[:n]]]]

    def _spread(
        self, order: npt.NDArray[np.intp], predicted: Column, n: int, chosen: list[int]
    ) -> list[int]:
        """The best predicted, each paying for what it has in common with the batch so far and with
        what was measured: of equal predictions, the one that tells most."""
        top = order[: max(256, 16 * n)]
        score = np.log(predicted[: len(top)])
        rows = self._rows[top]
        common = np.zeros(len(top))
        score[np.isin(top, chosen)] = np.inf
        out: list[int] = []
        for row in (*self._worked, *self._rows[np.array(chosen, np.intp)]):
            common = np.maximum(common, (rows == row).mean(axis=1))
        while len(out) < n:
            pick = int(np.argmin(score + _SPREAD * common))
            if not np.isfinite(score[pick]):
                break
            out.append(int(top[pick]))
            score[pick] = np.inf
            common = np.maximum(common, (rows == rows[pick]).mean(axis=1))
        return out

    def _surprise(self, order: npt.NDArray[np.intp], n: int, chosen: list[int]) -> list[int]:
        """Exploration: random configs of the better half of the ranking."""
        half = order[: max(1, (len(order) + 1) // 2)]
        half = half[~np.isin(half, chosen)]
        return [int(p) for p in self._rng.choice(half, min(max(n, 0), len(half)), replace=False)]


def _each_once(places: list[int]) -> list[int]:
    return list(dict.fromkeys(places))


STRATEGIES.add("model", ModelStrategy)

"""Bayesian search, registered as `bayesian`: the config with the largest expected improvement is
measured next (Mockus 1978; Jones et al. 1998).

What is measured over what the prior predicts is a Gaussian process over a task's configs: configs
of one algorithm, and those that differ in few params and by little, are off by alike factors. It
starts from the analytical prior, or from what was learnt before the run, so that a few trials tell
what is wrong with it here; how uncertain it is says where a trial tells most.

Of a large space only the configs are considered that the prior, or one of its algorithms' own
order, puts first, and neighbours of the best. A batch is empty when no config is expected to gain
more than measurements scatter, and the last trials did not either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.tuner.strategies.base import STRATEGIES, Outcome, Setting, Tried, take_seeds
from search_spaces.base import Column
from search_spaces.params import Config, Param
from search_spaces.space import Rows, Space

_LOCAL = 0.15
"""Standard deviation, as log-time, of what configs alike in every param have in common. All of
these were first guesses: half or twice of each changed most sums of trials on four surveys by
less than a fifth. Those of algorithms and tasks (0.2 and 0.5 at first) are the pair, of twelve
that were tried, that takes the fewest on the two that the prior was not fitted to."""
_ALGORITHM = 0.3
"""The same of what configs of an algorithm have in common."""
_TASK = 0.3
"""The same of what all configs of a task have in common."""
_PARAM = 0.08
"""The same of what configs with one value of one param have in common."""
_NOISE = 0.01
"""The same of measurements."""
_FAILED = 0.7
"""Log-time that a failed config is worse than the worst that was measured."""
_CONSIDERED = 4096
"""Configs considered at a time, about."""
_OF_EACH = 256
"""Configs of each algorithm that are among them, by their own order."""
_REMEMBERED = 256
"""Trials that the process knows of, the latest."""
_HINTED = 1.3
"""A config that did well elsewhere is tried early if it is predicted to take at most this many
times as long as the best."""
_PATIENCE = 24
"""Trials without improvement before the expected one alone decides whether to go on."""
_WORTH = 0.002
"""Expected improvement, as log-time, that is worth a trial."""


@dataclass(frozen=True, slots=True)
class Covariance:
    """Covariance of the residuals of configs, by tables of the params' choices."""

    near: tuple[Column, ...]
    """By param, [choice, choice]: exponents of how much less alike two values make configs."""
    shared: tuple[Column, ...]
    """By param, [choice, choice]: what configs with these values have in common."""
    variance: float
    """That of one config."""

    @staticmethod
    def of(space: Space) -> Covariance:
        near, shared = [], []
        for param in space.params:
            apart = _apart(param)
            own = _PARAM**2 + (_ALGORITHM**2 if param.name == "algorithm" else 0.0)
            alike = np.exp(-apart / 2) if _is_number(param) else 1.0 - apart
            near.append(-apart / 2)
            shared.append(own * alike)
        variance = _TASK**2 + _LOCAL**2 + sum(float(table[0, 0]) for table in shared)
        return Covariance(tuple(near), tuple(shared), variance)

    def between(self, first: Rows, second: Rows) -> Column:
        """[first, second]"""
        exponent = np.zeros((len(first), len(second)))
        out = np.full_like(exponent, _TASK**2)
        for at, (near, shared) in enumerate(zip(self.near, self.shared, strict=True)):
            pairs = (first[:, at][:, None], second[:, at][None])
            exponent += near[pairs]
            out += shared[pairs]
        return np.asarray(out + _LOCAL**2 * np.exp(exponent))


class BayesianStrategy:
    """Proposes what is expected to improve most on the best so far."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._space = setting.subject.space
        self._kernel = Covariance.of(self._space)
        self._tried = Tried(self._space)
        self._rng = np.random.default_rng((setting.seed, setting.group))
        self._pool: Rows | None = None
        self._prior: Column = np.empty(0)
        self._rows: Rows = np.empty((0, len(self._space.params)), np.int32)
        """Measured."""
        self._off: Column = np.empty(0)
        """Log-time over the prior's, of each; infinity where it failed."""
        self._best_s = float("inf")
        self._best: Rows | None = None
        self._since_best = 0
        self._expected_s: float | None = None

    def propose(self, n: int) -> tuple[Config, ...]:
        out = take_seeds(self._setting.seeds, self._space, self._tried, n)
        if len(out) < n:
            rows = self._choose(n - len(out))
            self._tried.add(rows)
            out += [self._space.config(row) for row in rows]
        return tuple(out)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        rows = self._setting.subject.rows([o.config for o in outcomes])
        times = np.array([o.time_s for o in outcomes], np.float64)
        self._tried.add(rows)
        for row, time_s in zip(rows, times, strict=True):
            self._since_best += 1
            if time_s < self._best_s * (1 - _NOISE):
                self._since_best = 0
            if time_s < self._best_s:
                self._best_s, self._best = float(time_s), row
        off = np.log(times) - self._predicted(rows)
        self._rows = np.concatenate([self._rows, rows])[-_REMEMBERED:]
        self._off = np.concatenate([self._off, off])[-_REMEMBERED:]
        described = self._setting.subject.describe(rows)
        self._setting.learner.add(self._setting.group, described, times)

    def expected_s(self) -> float | None:
        return self._expected_s

    def _predicted(self, rows: Rows) -> Column:
        """Log-seconds that were predicted before the run."""
        described = self._setting.subject.describe(rows)
        return np.asarray(np.log(self._setting.learner.before(described)))

    def _choose(self, n: int) -> Rows:
        rows, prior = self._candidates()
        if not len(rows):
            self._expected_s = None
            return rows
        mean, spread, known = self._posterior(rows, prior)
        self._expected_s = float(np.exp(mean.min()))
        chosen = self._hinted(rows, mean, n) if not self._since_best else []
        best = np.log(self._best_s) if np.isfinite(self._best_s) else float(mean.min())
        if self._since_best >= _PATIENCE:
            gain = float(_improvement(best - mean, np.sqrt(spread)).max())
            if gain < _WORTH or self._since_best >= 3 * _PATIENCE:
                return rows[:0]
        for place in chosen:
            spread = self._told(rows, spread, known, place)
        while len(chosen) < min(n, len(rows)):
            gains = _improvement(best - mean, np.sqrt(spread))
            gains[chosen] = -np.inf
            place = int(np.argmax(gains)) if len(self._off) else _first(mean, chosen)
            chosen.append(place)
            best = min(best, float(mean[place]))
            spread = self._told(rows, spread, known, place)
        return rows[np.array(chosen, np.intp)]

    def _candidates(self) -> tuple[Rows, Column]:
        """Configs to choose from that were not tried, and log-seconds predicted of them."""
        if self._pool is None:
            rows = self._space.rows(self._setting.pool, self._rng)
            rows = rows[self._rng.permutation(len(rows))]  # equal predictions: any order
            rows = np.concatenate([rows, self._setting.subject.rows(self._setting.hints)])
            rows = self._tried.new(rows)
            prior = self._predicted(rows)
            first = self._first_of_all(rows, prior)
            self._pool, self._prior = rows[first], prior[first]
        rows, prior = self._pool, self._prior
        if self._best is not None and self._space.raw_size > len(rows):
            keys = self._space.keys(rows)
            near = self._tried.new(self._space.neighbours(self._best))
            near = near[~np.isin(self._space.keys(near), keys)]
            if len(near):
                rows = np.concatenate([rows, near])
                prior = np.concatenate([prior, self._predicted(near)])
                self._pool, self._prior = rows, prior
        left = self._tried.untried(rows)
        return rows[left], prior[left]

    def _first_of_all(self, rows: Rows, prior: Column) -> npt.NDArray[np.intp]:
        """Places of the configs that are considered, in any order of equal ones."""
        order = np.argsort(prior, kind="stable")
        kept = [order[:_CONSIDERED]]
        if "algorithm" in self._space.names:
            own = rows[order, self._space.names.index("algorithm")]
            kept += [order[own == number][:_OF_EACH] for number in np.unique(own)]
        return np.unique(np.concatenate(kept))

    def _posterior(self, rows: Rows, prior: Column) -> tuple[Column, Column, Column]:
        """Means and variances of log-seconds, and what `_told` needs: whitened covariances."""
        spread = np.full(len(rows), self._kernel.variance)
        if not len(self._off):
            return prior, spread, np.empty((0, len(rows)))
        worked = np.isfinite(self._off)
        worst = float(self._off[worked].max()) if worked.any() else 0.0
        off = np.where(worked, self._off, worst + _FAILED)
        own = self._kernel.between(self._rows, self._rows) + _NOISE**2 * np.eye(len(off))
        lower = np.linalg.cholesky(own)
        known = np.linalg.solve(lower, self._kernel.between(self._rows, rows))
        mean = prior + known.T @ np.linalg.solve(lower, off)
        return mean, np.maximum(spread - (known**2).sum(axis=0), _NOISE**2), known

    def _told(self, rows: Rows, spread: Column, known: Column, place: int) -> Column:
        """Variances once the config at `place` is measured as well: of a batch, the next one tells
        something else."""
        with_it = self._kernel.between(rows, rows[place][None])[:, 0] - known.T @ known[:, place]
        left = spread - with_it**2 / (spread[place] + _NOISE**2)
        return np.asarray(np.maximum(left, _NOISE**2))

    def _hinted(self, rows: Rows, mean: Column, n: int) -> list[int]:
        """Up to `n` of the hints that are not predicted to be much slower than the best."""
        hints = self._space.keys(self._setting.subject.rows(self._setting.hints))
        known = np.isin(self._space.keys(rows), hints)
        worth = known & (mean <= mean.min() + np.log(_HINTED))
        return [int(place) for place in np.flatnonzero(worth)[:n]]


def _apart(param: Param) -> Column:
    """[choice, choice]: how different values are: numbers by the square of their ratio's
    logarithm, others by being another."""
    if _is_number(param):
        at = np.log2(1.0 + np.array([int(choice) for choice in param.choices]))
        return np.asarray((at[:, None] - at[None]) ** 2)
    return 1.0 - np.eye(len(param.choices))


def _is_number(param: Param) -> bool:
    return all(not isinstance(choice, str) and int(choice) >= 0 for choice in param.choices)


def _first(mean: Column, chosen: list[int]) -> int:
    left = mean.copy()
    left[chosen] = np.inf
    return int(np.argmin(left))


def _improvement(gain: Column, spread: Column) -> Column:
    """Expected improvement of normal variables whose mean is `gain` below the best."""
    z = gain / spread
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(gain * _below(z) + spread * density)


def _below(z: Column) -> Column:
    """The normal distribution function, to 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    terms = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
    series = sum(c * t ** (n + 1) for n, c in enumerate(terms))
    tail = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(z >= 0, 1 - tail, tail))


STRATEGIES.add("bayesian", BayesianStrategy)

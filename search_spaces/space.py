"""Spaces: params with choices, and constraints over them.

In: params and vectorized constraints. Out: valid configs, as rows of choice indices (an integer
matrix [n, params], the form that whole spaces are handled in) or one at a time as `Config`.
Everything here is pure: nothing is cached and all randomness comes from the generator passed in.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ScheduleError
from search_spaces.params import Choice, Config, Param

Rows = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Configs = Mapping[str, npt.NDArray[Any]]
"""A matrix of configs: an array per param, float64 for numbers and object for strings, with one
entry per config."""
Cost = Callable[[Configs], npt.NDArray[np.float64]]

ENUMERABLE = 200_000
"""Spaces of at most this raw size are walked whole."""
_ROUNDS = 16
"""Rounds of rejection sampling before a space counts as exhausted."""
_MARKED = 64
"""Raw configs per draw of a round up to which those that were drawn are remembered."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named condition on configs, evaluated on many at once.

    `predicate(configs)` gives one bool per config, True where the config is valid. The name says
    what is limited ("registers", "l2 footprint"): rejections are counted under it."""

    name: str
    predicate: Callable[[Configs], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Space:
    """The configs that give each param one of its choices and satisfy every constraint."""

    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError(f"param names must differ, got {names}")
        if self.raw_size >= 2**62:
            raise ValueError(f"a space has fewer than 2**62 raw configs, got {self.raw_size}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.params)

    @property
    def raw_size(self) -> int:
        """Configs before constraints."""
        return math.prod(len(p.choices) for p in self.params)

    @property
    def size(self) -> int | None:
        """Valid configs; None where the space is too large to walk."""
        if self.raw_size > ENUMERABLE:
            return None
        return int(self.valid(self._unflatten(np.arange(self.raw_size))).sum())

    def restricted(self, settled: Mapping[str, Choice]) -> Space:
        """The configs of it that have these values. Raises ScheduleError for a param, or a value,
        that it does not have."""
        if missing := [param for param in settled if param not in self.names]:
            raise ScheduleError(f"configs of this space have no {missing[0]}")
        for param in self.params:
            if settled.get(param.name, param.choices[0]) not in param.choices:
                raise ScheduleError(f"{param.name} is never {settled[param.name]!r}")
        kept = (
            dataclasses.replace(p, choices=(settled[p.name],)) if p.name in settled else p
            for p in self.params
        )
        return dataclasses.replace(self, params=tuple(kept)) if settled else self

    # ------------------------------------------------------------------------------- validity

    def configs(self, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """The chosen values, one array per param: float64 for numbers, object for strings."""
        return dict(_LazyConfigs(self.params, rows))

    def valid(self, rows: Rows) -> Mask:
        """Which rows satisfy every constraint."""
        return self._check(rows)[0]

    def rejections(self, rows: Rows) -> dict[str, int]:
        """How many rows each constraint rejects; a row counts for the first one it fails."""
        return self._check(rows)[1]

    def survey(self, limit: int, rng: np.random.Generator) -> dict[str, int]:
        """Rejections of up to `limit` raw configs (all of them where there are no more)."""
        return self.rejections(self._unflatten(self._raw(limit, rng)))

    def _check(self, rows: Rows) -> tuple[Mask, dict[str, int]]:
        alive = np.arange(len(rows))
        counts: dict[str, int] = {}
        configs = _LazyConfigs(self.params, rows)
        for constraint in self.constraints:
            good = np.broadcast_to(np.asarray(constraint.predicate(configs), bool), alive.shape)
            rejected = len(alive) - int(good.sum())
            counts[constraint.name] = counts.get(constraint.name, 0) + rejected
            if rejected:
                alive = alive[good]
                configs = _LazyConfigs(self.params, rows[alive])
        mask = np.zeros(len(rows), bool)
        mask[alive] = True
        return mask, counts

    # -------------------------------------------------------------------------------- drawing

    def rows(self, limit: int, rng: np.random.Generator) -> Rows:
        """Valid configs without repeats: all of them where the raw size is at most `limit`, else
        what about `limit` random draws give (more draws where few are valid).

        Raises ScheduleError where none is found."""
        if self.raw_size <= limit:
            every = self._unflatten(np.arange(self.raw_size))
            return self._some(every[self.valid(every)], limit)
        return self._some(self._draw(max(1, limit // 4), limit, rng), limit)

    def sample(self, rng: np.random.Generator, n: int) -> Rows:
        """`n` different valid configs, evenly drawn; fewer where the space holds fewer.

        Raises ScheduleError where none is found."""
        if self.raw_size <= max(4096, 4 * n):
            every = self.rows(self.raw_size, rng)
            return every[rng.permutation(len(every))[:n]]
        found = self._some(self._draw(n, max(1024, 4 * n), rng), n)
        return found[rng.permutation(len(found))[:n]]

    def _draw(self, enough: int, draws: int, rng: np.random.Generator) -> Rows:
        """Rejection sampling: rounds of `draws` raw configs until `enough` are valid."""
        found = np.empty(0, np.int64)
        drawn = np.zeros(self.raw_size if self.raw_size <= _MARKED * draws else 0, bool)
        for _ in range(_ROUNDS):
            flat = self._raw(draws, rng)
            if len(drawn):
                flat = _fresh(flat, drawn)
            rows = self._unflatten(flat)
            found = np.union1d(found, flat[self.valid(rows)])
            if len(found) >= enough:
                break
        return self._unflatten(found)

    def _raw(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        if self.raw_size <= count:
            return np.arange(self.raw_size)
        return rng.integers(0, self.raw_size, count)

    def _some(self, rows: Rows, limit: int) -> Rows:
        if len(rows):
            return rows
        counts = self.survey(max(limit, 1000), np.random.default_rng(0))
        reasons = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        raise ScheduleError(
            f"no valid config in a space of {self.raw_size} raw ones (rejected by: {reasons}); "
            "widen the choices of the rule or loosen the constraint"
        )

    def mutate(self, rng: np.random.Generator, row: Rows) -> Rows:
        """A valid config near `row` and different from it: one param changed, sometimes more.

        Where no tried change is valid, a random valid config (`row` itself if it is the only)."""
        tries = 64
        counts = np.array([len(p.choices) for p in self.params])
        free = np.flatnonzero(counts > 1)
        if not len(free):
            return row.copy()
        out = np.repeat(row[None], tries, axis=0)
        changes = 1 + (rng.random(tries) < 0.3) + (rng.random(tries) < 0.1)
        for step in range(3):
            active = np.flatnonzero(changes > step)
            which = free[rng.integers(0, len(free), len(active))]
            near = out[active, which] + rng.choice((-1, 1), len(active))
            far = rng.integers(0, counts[which])
            inside = (near >= 0) & (near < counts[which]) & (rng.random(len(active)) < 0.5)
            out[active, which] = np.where(inside, near, far)
        good = self.valid(out) & (out != row).any(axis=1)
        chosen: Rows = out[int(np.argmax(good))] if good.any() else self.sample(rng, 1)[0]
        return chosen

    def neighbours(self, row: Rows) -> Rows:
        """Every valid config that differs from `row` in exactly one param, in param order."""
        out = [
            np.concatenate([row[:number], [choice], row[number + 1 :]])
            for number, param in enumerate(self.params)
            for choice in range(len(param.choices))
            if choice != row[number]
        ]
        if not out:
            return np.empty((0, len(self.params)), np.int32)
        rows: Rows = np.array(out, np.int32)
        return rows[self.valid(rows)]

    def descend(self, row: Rows, cost: Cost) -> Rows:
        """From `row` to the cheapest neighbour, as long as there is a cheaper one."""
        least = cost(self.configs(row[None]))[0]
        while len(near := self.neighbours(row)):
            costs = cost(self.configs(near))
            if costs.min() >= least:
                break
            row, least = near[int(np.argmin(costs))], costs.min()
        return row

    def least(self, starts: Rows, cost: Cost) -> Rows:
        """The cheapest of the rows that are downhill from these."""
        ends: Rows = np.array([self.descend(row, cost) for row in starts])
        found: Rows = ends[int(np.argmin(cost(self.configs(ends))))]
        return found

    # ----------------------------------------------------------------------------- one config

    def config(self, row: Rows) -> Config:
        return Config(
            tuple((p.name, p.choices[int(i)]) for p, i in zip(self.params, row, strict=True))
        )

    def row(self, config: Config) -> Rows:
        """Choice indices of a config. Raises ScheduleError where a value is not a choice."""
        if len(config.items) != len(self.params):
            raise ScheduleError(f"expected the params {self.names}, got {config.to_json()}")
        return np.array([_place(p, config) for p in self.params], np.int32)

    def contains(self, config: Config) -> bool:
        """Whether the config has exactly the space's params, with valid choices."""
        try:
            row = self.row(config)
        except ScheduleError:
            return False
        return bool(self.valid(row[None])[0])

    def as_of_today(self, config: Config) -> Config | None:
        """A config of this space as it was before it got more params: the first choice of each is
        what was done before there was one. None where the space does not contain the outcome."""
        values = dict(config.items)
        choices = tuple((p.name, values.get(p.name, p.choices[0])) for p in self.params)
        full = Config(choices)
        known = values.keys() <= dict(choices).keys()
        return full if known and self.contains(full) else None

    def closest(self, config: Config) -> Config | None:
        """A config of another space in this one: per param the same choice, or the nearest number
        by ratio, or the first; None where the outcome is not valid here."""
        values = dict(config.items)
        row = np.array([_nearest(p, values.get(p.name)) for p in self.params], np.int32)
        return self.config(row) if self.valid(row[None])[0] else None

    def keys(self, rows: Rows) -> npt.NDArray[np.int64]:
        """One integer per config, equal exactly for equal configs of this space."""
        return self._flatten(rows)

    def _flatten(self, rows: Rows) -> npt.NDArray[np.int64]:
        counts = [len(param.choices) for param in self.params]
        strides = [math.prod(counts[number + 1 :]) for number in range(len(counts))]
        return np.asarray(rows @ np.array(strides, np.int64), np.int64)

    def _unflatten(self, flat: npt.NDArray[np.int64]) -> Rows:
        out = np.empty((len(flat), len(self.params)), np.int32, order="F")
        for number in range(len(self.params) - 1, -1, -1):
            count = len(self.params[number].choices)
            rest = flat // count  # many times faster than divmod
            flat, out[:, number] = rest, flat - rest * count
        return out


def _fresh(flat: npt.NDArray[np.int64], drawn: Mask) -> npt.NDArray[np.int64]:
    """Those, each once, that were not drawn before; they are marked as drawn."""
    now = np.zeros_like(drawn)
    now[flat] = True
    now &= ~drawn
    drawn |= now
    return np.flatnonzero(now)


class _LazyConfigs(Mapping[str, npt.NDArray[Any]]):
    """Configs of some rows, each param's array made when a constraint first asks for it."""

    def __init__(self, params: Sequence[Param], rows: Rows) -> None:
        self._params = {param.name: (number, param) for number, param in enumerate(params)}
        self._rows = rows
        self._made: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._made:
            number, param = self._params[name]
            kind = object if isinstance(param.choices[0], str) else np.float64
            self._made[name] = np.array(param.choices, dtype=kind)[self._rows[:, number]]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


class ConfigsAt(Mapping[str, npt.NDArray[Any]]):
    """Some of many configs, by number; each param's array is made when it is first asked for."""

    def __init__(self, configs: Configs, numbers: npt.NDArray[np.intp]) -> None:
        self._configs, self._numbers = configs, numbers
        self._made: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._made:
            self._made[name] = self._configs[name][self._numbers]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)


def _place(param: Param, config: Config) -> int:
    values: dict[str, Choice] = dict(config.items)
    value = values.get(param.name)
    if value is None or value not in param.choices:
        raise ScheduleError(
            f"param {param.name}: expected one of {param.choices}, got {value!r}; "
            "take configs from the same space"
        )
    return param.choices.index(value)


def _nearest(param: Param, value: Choice | None) -> int:
    if value in param.choices:
        return param.choices.index(value)
    if not isinstance(value, int) or isinstance(param.choices[0], str):
        return 0
    ratios = [abs(math.log((abs(int(c)) + 1) / (abs(value) + 1))) for c in param.choices]
    return ratios.index(min(ratios))

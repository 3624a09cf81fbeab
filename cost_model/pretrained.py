"""Cost models learnt before a run, one per feature layout, used as the prior of the next.

In: data sets of any tasks and devices, or a file. Out: better priors, a JSON file, and how well
tasks and devices that were left out are ranked.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.atomic_file import write_text
from autotune.errors import ConfigError
from cost_model.features import FEATURE_VERSION, Features
from cost_model.metrics import rank_correlation, regret, top_k_recall
from cost_model.models.base import COST_MODELS, CostModel, Dataset, Train, fit_here
from search_spaces.base import Column

KIND = "autotune pretrained cost models"
Mask = npt.NDArray[np.bool_]
GENERAL = "xgb-general"
"""The model for tasks that it has not seen."""
FOLDS = 5
"""Groups of tasks, each left out once."""
LEAST = 16
"""Samples below which a layout is not worth a model."""
_DOUBTED = 8
"""Tasks of which half of what they teach is believed of another one at most. Measured by leaving
tasks out: believed whole, full surveys of a dozen tasks make the worst of the others worse."""
_BELIEFS = (0.0, 0.125, 0.25, 0.5, 1.0)
"""Shares of what was learnt that are tried on tasks that were left out."""
_TRIED_ON = 3
"""Folds for that."""
_FEWEST = (1, 2, 4)
"""Numbers of candidates, predicted to be fastest, of which the best should be near the fastest."""


class Pretrained:
    """Cost models by feature layout. Layouts that it does not know keep their prior."""

    def __init__(
        self,
        models: Mapping[tuple[str, ...], CostModel],
        about: str = "",
        beliefs: Mapping[tuple[str, ...], float] | None = None,
    ) -> None:
        self._models = dict(models)
        self.beliefs = dict(beliefs or {})
        """Shares of what was learnt that count, by layout."""
        self.about = about
        """What it was trained on, in words."""

    def __len__(self) -> int:
        return len(self._models)

    def improve(self, candidates: Features) -> Features:
        """The candidates with what was learnt in place of the analytical prior: as much of it as
        helped with tasks that were left out."""
        model = self._models.get(candidates.names)
        if model is None:
            return candidates
        factor = model.predict(candidates) / candidates.prior_s
        believed = candidates.prior_s * factor ** self.beliefs.get(candidates.names, _most(1))
        return dataclasses.replace(candidates, prior_s=believed)

    def save(self, path: Path) -> None:
        """Write the file. Raises ConfigError."""
        models = [
            {
                "model": m.name,
                "names": list(names),
                "belief": self.beliefs.get(names, _most(1)),
                "state": m.state(),
            }
            for names, m in self._models.items()
        ]
        data = {"kind": KIND, "features": FEATURE_VERSION, "about": self.about, "models": models}
        write_text(path, json.dumps(data), ConfigError)

    @staticmethod
    def load(path: Path) -> Pretrained:
        """Read a file. Raises ConfigError where it is not one of this version."""
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if data["kind"] != KIND:
                raise ValueError(f"it is {data['kind']!r}")
            version = data["features"]
            entries = [(tuple(e["names"]), e["model"], e["state"]) for e in data["models"]]
            beliefs = {
                tuple(e["names"]): float(e.get("belief", _most(e.get("tasks", 1))))
                for e in data["models"]
            }
        except OSError as error:
            raise ConfigError(f"cannot read cost model {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a trained cost model ({error}); see autotune model train"
            ) from None
        if version != FEATURE_VERSION:
            raise ConfigError(
                f"{path}: expected features of version {FEATURE_VERSION}, got {version}; "
                "train the model anew"
            )
        models = {}
        for names, name, state in entries:
            models[names] = COST_MODELS.get(name)(0)
            try:
                models[names].restore(state)
            except (ValueError, KeyError, TypeError) as error:  # XGBoost's own is a ValueError
                what = str(error).strip().splitlines()[0]
                raise ConfigError(f"{path} is damaged ({what}); train the model anew") from None
        return Pretrained(models, str(data.get("about", "")), beliefs)


def pretrain(
    sets: Sequence[Dataset],
    seed: int,
    about: str = "",
    name: str = GENERAL,
    train: Train = fit_here,
) -> Pretrained:
    """A model for every layout with enough samples."""
    models, beliefs = {}, {}
    for data in sets:
        if len(data.time_s) >= LEAST:
            models[data.names] = _trained(data, seed, name, train)
            beliefs[data.names] = _belief(data, seed, name, train)
    return Pretrained(models, about, beliefs)


def _trained(data: Dataset, seed: int, name: str, train: Train) -> CostModel:
    model = COST_MODELS.get(name)(seed)
    train(model, seed, data)
    return model


def _most(tasks: int) -> float:
    return tasks / (tasks + _DOUBTED)


def _belief(data: Dataset, seed: int, name: str, train: Train) -> float:
    """The share of what these tasks teach that helps most with those of them that were left out;
    the smaller one in doubt. Too few tasks to leave some out are believed by their number."""
    parts = np.unique(data.group)
    most = _most(len(parts))
    if len(parts) < _TRIED_ON:
        return most
    factor = np.ones(len(data.prior_s))
    folds = np.random.default_rng(seed).permutation(len(parts)) % _TRIED_ON
    for fold in range(_TRIED_ON):
        out = np.isin(data.group, parts[folds == fold])
        model = _trained(_rows(data, ~out), seed, name, train)
        factor[out] = model.predict(_described(data, out)) / data.prior_s[out]
    lost = [_lost(data.prior_s * factor ** (share * most), data) for share in _BELIEFS]
    return most * _BELIEFS[int(np.argmin(lost))]


def _lost(predicted: Column, data: Dataset) -> float:
    """How much slower than the fastest the first candidates are by these predictions: the mean of
    log-ratios over tasks."""
    found = []
    for number in np.unique(data.group):
        rows = (data.group == number) & np.isfinite(data.time_s)
        guess, measured = predicted[rows], data.time_s[rows]
        if len(measured):
            found += [math.log1p(regret(guess, measured, k)) for k in _FEWEST]
    return sum(found) / max(1, len(found))


# ------------------------------------------------------------------------------- cross-validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Quality of rankings: means over tasks."""

    tasks: int
    rank_correlation: float
    top_recall: float
    """Share of the fastest 8 that is among the 8 predicted fastest."""
    regret: float
    """How much slower the best of the 4 predicted fastest is than the fastest."""


def quality(predicted: Column, data: Dataset, rows: Mask | None = None) -> Quality:
    """How good predictions for a data set are, task by task; tasks with fewer than 8 samples say
    little and are left out. `rows`: a mask of the rows that count."""
    counted = np.ones(len(predicted), bool) if rows is None else rows
    found = []
    for number in np.unique(data.group[counted]):
        chosen = counted & (data.group == number)
        guess, measured = predicted[chosen], data.time_s[chosen]
        if np.isfinite(measured).sum() >= 8:
            found.append(
                (
                    rank_correlation(guess, measured),
                    top_k_recall(guess, measured, 8),
                    regret(guess, measured, 4),
                )
            )
    means = np.mean(found, axis=0) if found else np.full(3, np.nan)
    return Quality(
        tasks=len(found),
        rank_correlation=float(means[0]),
        top_recall=float(means[1]),
        regret=float(means[2]),
    )


def left_out(data: Dataset, part: npt.NDArray[Any], seed: int, train: Train = fit_here) -> Column:
    """Predictions of each row from what the rows of other parts (tasks, devices) teach. Parts are
    dealt to at most FOLDS folds."""
    parts = np.unique(part)
    folds = np.random.default_rng(seed).permutation(len(parts)) % FOLDS
    predicted = data.prior_s.copy()
    for fold in np.unique(folds):
        out = np.isin(part, parts[folds == fold])
        taught = pretrain([_rows(data, ~out)], seed, train=train)
        predicted[out] = taught.improve(_described(data, out)).prior_s
    return predicted


def _described(data: Dataset, chosen: Mask) -> Features:
    return Features(names=data.names, values=data.values[chosen], prior_s=data.prior_s[chosen])


def _rows(data: Dataset, chosen: Mask) -> Dataset:
    return Dataset(
        names=data.names,
        values=data.values[chosen],
        prior_s=data.prior_s[chosen],
        time_s=data.time_s[chosen],
        group=data.group[chosen],
    )

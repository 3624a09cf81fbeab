"""Features of candidates, from their tile structure: nothing is built.

In: a prediction for many configs. Out: a float32 matrix with one row per config and one named
column per feature, and the predicted seconds.

Sizes, counts and times enter as log2(1 + x): a tree then splits by ratio. The columns depend on
the rule (its axes, buffers and `extra`), not on the task: tasks of a rule share a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cost_model.analytic import Estimate
from cost_model.footprint import SLOTS, count
from cost_model.prediction import Prediction
from search_spaces.base import Column, TileStructure

FEATURE_VERSION = 7
"""Raised whenever a column changes its meaning; models of other versions are not used."""
_PRIOR_NAMES = {"time": "extra.expected", "work": "extra.counted"}
"""What the prior's cycles are called, by what they mean."""
_PRIOR_PLACES = {"gpu_contraction": 0, "gpu_nests": 3}
"""Where that column stands among the rule's own since version 7; of the other rules, behind."""
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Feature rows of many configs, and what the prior predicts for them."""

    names: tuple[str, ...]
    values: Matrix
    prior_s: Column

    def take(self, rows: npt.NDArray[np.intp]) -> Features:
        return Features(names=self.names, values=self.values[rows], prior_s=self.prior_s[rows])


def features(prediction: Prediction) -> Features:
    """Features of every config that was predicted, one row each, all finite."""
    structure, guess = prediction.structure, prediction.estimate
    columns: dict[str, Column] = {
        **_shape(structure),
        **_tiles(structure),
        **_work(structure, guess),
        **_memory(guess),
        **_extra(prediction),
    }
    values = np.empty((count(structure), len(columns)), np.float32)
    for number, column in enumerate(columns.values()):
        values[:, number] = column
    np.nan_to_num(values, copy=False, posinf=1e6, neginf=-1e6)
    return Features(names=tuple(columns), values=values, prior_s=guess.seconds)


def _extra(prediction: Prediction) -> dict[str, Column]:
    """The rule's own columns, and what its prior says."""
    columns = [(f"extra.{name}", c) for name, c in prediction.structure.extra.items()]
    if prediction.prior.means in _PRIOR_NAMES:
        place = _PRIOR_PLACES.get(prediction.rule, len(columns))
        name = _PRIOR_NAMES[prediction.prior.means]
        columns.insert(place, (name, np.log2(prediction.prior.relative)))
    return dict(columns)


def _log(column: Column | float) -> Column:
    logs: Column = np.log2(1 + np.maximum(np.asarray(column, np.float64), 0.0))
    return logs


def _shape(structure: TileStructure) -> dict[str, Column]:
    ones = np.ones(count(structure))
    out = {f"extent.{axis}": ones * _log(e) for axis, e in structure.extents.items()}
    out["flops"] = ones * _log(structure.flops)
    return out


def _tiles(structure: TileStructure) -> dict[str, Column]:
    return {
        f"tile{number}.{axis}": _log(column)
        for number, level in enumerate(structure.tiles)
        for axis, column in level.items()
    }


def _work(structure: TileStructure, guess: Estimate) -> dict[str, Column]:
    iterations = np.maximum(guess.traffic.iterations, 1.0)
    loads = sum(guess.traffic.read_elements, np.zeros(count(structure)))
    return {
        "prior": np.log2(guess.seconds),
        "compute": np.log2(guess.compute_s + 1e-12),
        "issue_ratio": guess.issue_s / guess.seconds,
        "compute_ratio": guess.compute_s / guess.seconds,
        "accumulators": structure.accumulators,
        "waste": structure.vector_axis_waste,
        "unrolled": _log(structure.unrolled),
        "chunks": _log(structure.parallel_chunks),
        "imbalance": guess.imbalance,
        "iterations": _log(iterations),
        "visits": _log(guess.traffic.register_visits),
        "flops_per_iteration": _log(structure.flops / iterations),
        "flops_per_element": _log(structure.flops / np.maximum(loads, 1.0)),
    }


def _memory(guess: Estimate) -> dict[str, Column]:
    out: dict[str, Column] = {}
    for number, slot in enumerate(SLOTS):
        out[f"served.{slot}"] = _log(guess.traffic.served_bytes[number])
        out[f"time_ratio.{slot}"] = guess.memory_s[number] / guess.seconds
    for number, held in enumerate(guess.traffic.tile_bytes):
        out[f"held.{SLOTS[number]}"] = _log(held)
    for number, elements in enumerate(guess.traffic.read_elements):
        out[f"moved.{number}"] = _log(elements)
    return out

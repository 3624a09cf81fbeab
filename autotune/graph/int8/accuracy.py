"""Accuracy of a graph on bytes. In: outputs in float32 and on bytes. Out: figures per output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.feeds import Feeds
from autotune.graph.int8.errors import decibels
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAccuracy:
    """One output over all samples, compared with float32."""

    output: str
    samples: int
    cosine: float
    """Cosine of the angle between the outputs as vectors: 1 where they are proportional."""
    snr_db: float
    max_error: float
    """Largest difference, relative to the largest value."""
    top1: float
    """Share of rows whose largest element is in the same place; a row is the last dimension that
    is longer than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What int8 did to a model. `contractions` multiply bytes; those of `kept` would lose too
    much and stay in float32: their nodes' names, with the decibels that bytes would have had.
    Those of `slower` would not gain: seconds in float32, and on bytes."""

    contractions: int
    kept: tuple[tuple[str, float], ...]
    outputs: tuple[OutputAccuracy, ...]
    slower: tuple[tuple[str, tuple[float, float]], ...] = ()


def compare(exact: Sequence[Feeds], got: Sequence[Feeds]) -> tuple[OutputAccuracy, ...]:
    """Figures for every floating-point output; both: outputs by name, sample by sample."""
    rows = []
    for name in exact[0] if exact else ():
        pairs = [
            (a[name].astype(np.float64), b[name].astype(np.float64))
            for a, b in zip(exact, got, strict=True)
        ]
        if exact[0][name].dtype.kind == "f" and pairs[0][0].size:
            rows.append(_compared(name, pairs))
    return tuple(rows)


def _compared(name: str, pairs: list[tuple[Array, Array]]) -> OutputAccuracy:
    a = np.concatenate([x.reshape(-1) for x, _ in pairs])
    b = np.concatenate([y.reshape(-1) for _, y in pairs])
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    same = [_largest(x) == _largest(y) for x, y in pairs]
    return OutputAccuracy(
        output=name,
        samples=len(pairs),
        cosine=float(a @ b) / lengths if lengths else float(np.array_equal(a, b)),
        snr_db=decibels(a, b),
        max_error=float(np.abs(a - b).max()) / (float(np.abs(a).max()) or 1.0),
        top1=float(np.concatenate(same).mean()),
    )


def _largest(array: Array) -> Array:
    """Places of the largest elements of an array's rows."""
    length = next((e for e in reversed(array.shape) if e > 1), 1)
    return np.asarray(array.reshape(-1, length).argmax(axis=1))

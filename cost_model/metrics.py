"""Metrics of a ranking. In: predicted and measured seconds of the same candidates."""

from __future__ import annotations

import numpy as np

from search_spaces.base import Column


def rank_correlation(predicted: Column, measured: Column) -> float:
    """Spearman's: 1 for the same order, -1 for the reverse, 0 where either is constant. Failed
    candidates (infinite) are tied as the slowest."""
    a, b = _ranks(predicted), _ranks(measured)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0


def top_k_recall(predicted: Column, measured: Column, k: int) -> float:
    """Share of the k fastest measured that are among the k fastest predicted. Failed candidates
    (infinite) are none of the fastest: where fewer worked, k is their number."""
    k = min(k, int(np.isfinite(measured).sum()))
    if k == 0:
        return 1.0
    chosen = np.argsort(predicted, kind="stable")[:k]
    limit = np.sort(measured)[k - 1]
    return float((measured[chosen] <= limit).mean())


def regret(predicted: Column, measured: Column, k: int = 1) -> float:
    """How much slower the best of the k fastest predicted is than the fastest: 0 is perfect;
    infinity where all k failed."""
    chosen = np.argsort(predicted, kind="stable")[: max(1, k)]
    return float(measured[chosen].min() / measured.min() - 1)


def _ranks(values: Column) -> Column:
    """Ranks from 0, ties sharing their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts + 1) / 2
    ranks: Column = mean[place].astype(np.float64)
    return ranks

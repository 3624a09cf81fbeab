"""Check of a candidate's results. In: outputs, oracle values. Out: a verdict.

Errors are relative to the largest value of the reference: what a fused sum of many terms can keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotune.types import Array

TOLERANCE = {
    "float32": 2e-4, "float64": 1e-9, "bfloat16": 3e-2, "float16": 4e-3, "tf32": 8e-3,
    "int8": 2e-4,
}  # fmt: skip
"""Error allowed, as a share of the largest value, by the precision that was asked for."""
MAX_SETTLED = 64
"""Elements that are NaN, or differ, which are computed again by the oracle."""
MOST_ROUNDED = 0.02
"""Share of rounded integers that may be one off: in float32 a sum may end across a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`error`: '' if right, else one line. `max_error`: relative to the largest value."""

    error: str = ""
    max_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Oracle values of a task at points [P, rank]; `oracle` gives them at other points."""

    points: Array
    expected: Array
    oracle: Callable[[Array], Array]
    dtype: str
    rounded: bool = False
    """Whether floats were rounded to integers at the end: a few of these may differ by one."""

    @property
    def tolerance(self) -> float:
        return TOLERANCE.get(self.dtype, 0.0)


def check_points(reference: Reference, output: Array) -> Verdict:
    """The sampled points, and every NaN, against the oracle."""
    verdict = _compare(reference, output, reference.points, reference.expected)
    if verdict.error or output.dtype.kind != "f":
        return verdict
    unwritten = np.argwhere(np.isnan(output))[:MAX_SETTLED]
    if len(unwritten) == 0:
        return verdict
    return _compare(reference, output, unwritten, reference.oracle(unwritten))


def check_against(reference: Reference, output: Array, accepted: Array) -> tuple[Verdict, bool]:
    """The whole output against one that was accepted before. Where they differ the oracle decides:
    (verdict on `output`, whether `accepted` held)."""
    limit = 2.0 if reference.rounded else 2 * reference.tolerance * _scale(accepted)
    wrong = ~_close(output, accepted, limit)
    if not wrong.any():
        return Verdict(), True
    where = np.argwhere(wrong)
    chosen = where[np.linspace(0, len(where) - 1, min(len(where), MAX_SETTLED)).astype(np.int64)]
    expected = reference.oracle(chosen)
    verdict = _compare(reference, output, chosen, expected, _scale(accepted))
    held = _compare(reference, accepted, chosen, expected, _scale(accepted))
    return verdict, not held.error


def _compare(
    reference: Reference, output: Array, points: Array, expected: Array, scale: float = 0.0
) -> Verdict:
    if len(points) == 0:
        return Verdict()
    got = output[tuple(points.T)] if points.shape[1] else output.reshape(1)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = expected.astype(output.dtype)
    scale = max(scale, _scale(reference.expected), _scale(expected))
    right = _close(got, wanted, reference.tolerance * scale)
    if reference.rounded:
        close = _close(got, wanted, 1.0)
        few = int((~right).sum()) <= max(MOST_ROUNDED * len(points), 2)
        right = close if few else right & close
    if right.all():
        return Verdict(max_error=_largest_error(got, wanted, scale))
    worst = int(np.argmin(right))
    place = ",".join(str(int(i)) for i in points[worst])
    text = (
        f"{int((~right).sum())} of {len(points)} checked elements differ; "
        f"[{place}]: expected {wanted[worst]}, got {got[worst]} (largest value {scale:.6g})"
    )
    return Verdict(error=text, max_error=_largest_error(got, wanted, scale))


def _close(got: Array, wanted: Array, limit: float) -> Array:
    if got.dtype.kind == "b":
        return np.asarray(got == wanted)
    if got.dtype.kind != "f":
        apart = np.where(got > wanted, got - wanted, wanted - got)
        return np.asarray(apart.astype(np.uint64) <= limit)
    with np.errstate(over="ignore", invalid="ignore"):
        close = (got == wanted) | (np.abs(got - wanted) <= limit)
    return np.asarray(close | (np.isnan(got) & np.isnan(wanted)))


def _scale(values: Array) -> float:
    """Largest finite magnitude, 1 where there is none."""
    if values.dtype.kind != "f":
        return 1.0
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) or 1.0 if finite.size else 1.0


def _largest_error(got: Array, wanted: Array, scale: float) -> float:
    if got.dtype.kind != "f":
        return 0.0
    both = np.isfinite(got) & np.isfinite(wanted)
    difference = np.abs(got[both].astype(np.float64) - wanted[both])
    return float(difference.max()) / scale if difference.size else 0.0

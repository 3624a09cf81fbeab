"""Default schedules on the machine that the prior was fitted to, on two that it was not, and on
one of these held to AVX2."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.machines import priors
from benchmarks.search import search_surveys


@pytest.mark.parametrize(
    ("name", "count", "bounds"),
    [
        ("zen4", 40, (0.025, 0.12, 0.7)),
        ("granite_rapids", 40, (0.07, 0.25, 0.75)),
        ("emerald_rapids", 40, (0.08, 0.25, 0.8)),
        ("emerald_rapids_avx2", 20, (0.03, 0.25, 0.8)),
    ],
)
def test_the_first_by_the_prior_is_near_the_best(
    name: str, count: int, bounds: tuple[float, float, float]
) -> None:
    """Bounds a little above what there is: what loses more is seen here."""
    median, most, correlation = bounds
    facts = priors.measured(name)
    surveys = search_surveys.machine_surveys(priors.MACHINES[name])
    found = [priors.ranked(s, facts) for s in surveys.values()]
    lost = np.array([r.regret for r in found])
    assert len(found) == count
    assert np.median(lost) <= median
    assert lost.max() <= most
    assert np.median([r.correlation for r in found]) >= correlation

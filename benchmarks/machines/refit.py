"""Fitted factors of the prior, fitted anew on one machine's surveys and tested on the others'.

    python benchmarks/machines/refit.py [FACTOR ...]

In: surveys and measured facts of each machine, as benchmarks/machines/priors.py has them. Out: a
line per factor and machine that it is fitted on: how many times its value is best there, by the
mean regret of the prior's first config, and that mean there and on the other machines, before and
after.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.machines.priors import MACHINES, measured, ranked
from benchmarks.search import search_surveys
from benchmarks.search.recorded_spaces import Survey

FACTORS = (
    "TILE_CYCLES", "ACCUMULATOR_CYCLES", "STEP_CYCLES", "NARROW_VECTOR_COST", "LONE_VECTOR_COST",
    "LONG_BODY_COST", "LONG_TILED_BODY_COST", "SPILL_COST", "SPILL_RISK", "DATA_COST",
    "WEIGHT_COST", "POINT_STORES", "ADDITION_CYCLES", "FETCHES", "WRITES",
)  # fmt: skip
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Times its value now that a factor may be."""


@contextlib.contextmanager
def scaled(name: str, scale: float) -> Iterator[None]:
    """The factor of that name, in every module of a rule that has it, times `scale`."""
    found = {
        module: float(getattr(module, name))
        for key, module in tuple(sys.modules.items())
        if key.startswith("search_spaces") and isinstance(getattr(module, name, None), float)
    }
    if not found:
        raise SystemExit(f"error: no factor is called {name}; known: {', '.join(FACTORS)}")
    try:
        for module, value in found.items():
            setattr(module, name, value * scale)
        yield
    finally:
        for module, value in found.items():
            setattr(module, name, value)


def regrets(surveys: Mapping[str, Mapping[str, Survey]]) -> dict[str, float]:
    """Mean regret of the prior's first config, by machine."""
    return {
        name: float(np.mean([ranked(s, measured(name)).regret for s in tasks.values()]))
        for name, tasks in surveys.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("factors", nargs="*", metavar="FACTOR", help="only these")
    options = parser.parse_args()
    surveys = {n: search_surveys.machine_surveys(folder) for n, folder in MACHINES.items()}
    now = regrets(surveys)
    print(f"{'':22}{'fitted on':20}{'times':>6}{'there':>16}{'elsewhere':>16}")
    for factor in options.factors or FACTORS:
        found = {1.0: now}
        for scale in (s for s in SCALES if s != 1.0):
            with scaled(factor, scale):
                found[scale] = regrets(surveys)
        for name in surveys:
            best = min(SCALES, key=lambda s: (found[s][name], abs(s - 1)))
            others = [n for n in surveys if n != name]
            before, after = (np.mean([found[s][n] for n in others]) for s in (1.0, best))
            print(
                f"{factor:22}{name:20}{best:6.2f}{now[name]:8.1%}{found[best][name]:8.1%}"
                f"{before:8.1%}{after:8.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()

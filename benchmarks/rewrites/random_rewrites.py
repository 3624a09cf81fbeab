"""Random graphs rewritten by random sequences of what applies, against the graphs before.

    python benchmarks/rewrites/random_rewrites.py [--count 100000] [--first 0] [--processes 2]

In: how many graphs; each is the left side of a shipped rewrite over random shapes, with shared
operators behind it, from a seed of its own. Up to five rewrites are applied one after the other.
Both graphs are evaluated at random points of a prime field: outputs must be equal there. Then in
float32, against the original in float64: the largest error over the largest value, before and
after. Prints counts, how often each rewrite was used, and errors; exits with 1 where two differ.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.rewrite.arithmetic import Residue
from autotune.rewrite.evaluate import drawn
from autotune.types import Array
from tests.properties.test_rewrites import REWRITES, evaluated, random_graph, rewritten

SHOWN = 1_000
"""Graphs between two lines of progress."""


def error(graph: Graph, feeds: dict[str, Array], exact: dict[str, Array]) -> float:
    """The largest error of float32 over the largest value; nan where values are none."""
    got, worst = run_graph(graph, feeds, "float32"), 0.0
    for name, wanted in exact.items():
        largest = float(np.abs(wanted).max(initial=0.0))
        if not np.isfinite(largest) or largest == 0.0:
            return float("nan")
        worst = max(worst, float(np.abs(got[name] - wanted).max()) / largest)
    return worst


def one(number: int) -> tuple[tuple[str, ...], bool, float, float]:
    """(rewrites that were applied, whether all outputs are equal, errors before and after)."""
    rng = np.random.default_rng([number, 21])
    graph = random_graph(REWRITES[number % len(REWRITES)], rng)
    after, names = rewritten(graph, rng, REWRITES)
    points = {n: drawn(t.shape, Residue, rng, 1 << 60) for n, t in graph.inputs}
    pairs = zip(evaluated(graph, points), evaluated(after, points), strict=True)
    equal = all(a.shape == b.shape and bool(np.all(a == b)) for a, b in pairs)
    feeds = {n: rng.standard_normal(t.shape).astype(np.float32) for n, t in graph.inputs}
    with np.errstate(all="ignore"):
        exact = run_graph(graph, feeds)
        return tuple(names), equal, error(graph, feeds, exact), error(after, feeds, exact)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.count)
    used: Counter[str] = Counter()
    wrong: list[int] = []
    errors: list[tuple[float, float]] = []
    begin = time.perf_counter()
    with multiprocessing.Pool(options.processes) as pool:
        results = zip(numbers, pool.imap(one, numbers, chunksize=64), strict=True)
        for done, (number, (names, equal, before, after)) in zip(itertools.count(1), results):
            used.update(names)
            wrong += [] if equal else [number]
            if np.isfinite(before) and np.isfinite(after):
                errors.append((before, after))
            if done % SHOWN == 0:
                print(f"{done} graphs, {len(wrong)} differ", flush=True)
    took = time.perf_counter() - begin
    print(f"{options.count} graphs, {sum(used.values())} rewrites of {len(used)} kinds, "
          f"{len(wrong)} differ over the field{': seeds ' if wrong else ''}"
          f"{', '.join(map(str, wrong[:20]))}; {took:.0f} s")  # fmt: skip
    for name, column in zip(("before", "after"), zip(*errors, strict=True), strict=True):
        high = np.quantile(column, [0.5, 0.999, 1.0])
        print(f"float32 {name}: error over the largest value {high[0]:.0e} in the median, "
              f"{high[1]:.0e} at 99.9 %, {high[2]:.0e} at most")  # fmt: skip
    print(", ".join(f"{name} {count}" for name, count in used.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What searches for rewrites find and take, by predicted times: as compiling searches, with the
generated rewrites, and with a beam so wide that it keeps all that it reaches.

    python benchmarks/rewrite_search.py [NAME ...] [--time 60] [--folder build/rewrites]

Models are those of `rewrite_models.py`. Nothing is run: a graph's time is the sum of its tasks'
predicted ones, which is what a search minimizes. Prints for each model the predicted milliseconds
without rewrites, with those found by hand, with the generated ones too, and with either and a wide
beam; seconds of each search (of the thread) and whether it ended by itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autotune.frontend import load_model
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.request import CompileRequest
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import generated_for, shipped
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.search import search
from benchmarks.rewrite_models import MODELS, write

WIDE = 64
"""Graphs of as many steps that a wide beam goes on from."""


def searched(
    graph: Graph, rewrites: tuple[Rewrite, ...], costs: Costs, time_s: float, **width: int
) -> tuple[str, str]:
    """(predicted milliseconds; how long it took, and what was taken)."""
    begin = time.thread_time()
    found = search(graph, rewrites, costs, time_s, **width)
    took_s = time.thread_time() - begin
    total = sum(n * costs.predicted(t) for t, n in costs.tasks(found.graph).items())
    ended = "" if found.complete else ", not ended"
    steps = ", ".join(dict.fromkeys(s.rewrite for s in found.steps)) or "none"
    return f"{total * 1e3:.3f}", f"{took_s:.1f} s{ended}: {steps}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--time", type=float, default=60.0, help="seconds of a wide search")
    parser.add_argument("--folder", type=Path, default=Path("build/rewrites"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ways_named = "by hand | all | wide | all, wide"
    print(f"| model | none, ms | {ways_named} | {ways_named} |\n|" + " --- |" * 10)
    for name in options.names or MODELS:
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            write(name, path)
        target = CompileRequest(path, threads=1).wanted_target()
        graph = optimize(load_model(path, None), CLEAN)
        costs = Costs(target)
        everything = (*shipped(), *generated_for(graph))
        ways = [
            searched(graph, shipped(), Costs(target), 2.0),
            searched(graph, everything, Costs(target), 2.0),
            searched(graph, shipped(), costs, options.time, width=WIDE),
            searched(graph, everything, costs, options.time, width=WIDE),
        ]
        none = searched(graph, (), costs, 0.0)[0]
        cells = [name, none, *(w[0] for w in ways), *(w[1] for w in ways)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

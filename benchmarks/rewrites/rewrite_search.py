"""What searches for rewrites find and take, by predicted times: as compiling searches, with the
generated rewrites, and with a beam so wide that it keeps all that it reaches.

    python benchmarks/rewrites/rewrite_search.py [NAME ...] [--time 60] [--every]
        [--folder build/rewrites]

Models are those of `rewrite_models.py`. Nothing is run: a graph's time is the sum of its tasks'
predicted ones, which is what a search minimizes. Prints for each model the predicted milliseconds
without rewrites, with those found by hand, with the generated ones too, and with either and a wide
beam; seconds of each search (of the thread) and whether it ended by itself.

`--every`: instead, every graph of up to eight steps that rewrites found by hand lead to, whatever
the estimate says of a step and however slow it is, until none is new or time is up. The best of
all is what any extraction from a saturated graph finds, an integer program among them: where all
are seen and none is faster than the search's, there is nothing that one would gain. Prints the
predicted milliseconds by the search and the least of all, how many graphs were seen and whether
these were all, and what the fastest took.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.frontend import load_model
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.request import CompileRequest
from autotune.rewrite import search as searching
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import generated_for, shipped
from autotune.rewrite.match import Finder, Match
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.search import search
from autotune.types import Task
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


class Counted(Costs):
    """Costs that count the graphs that are asked for."""

    graphs = 0

    def tasks(self, graph: Graph) -> Counter[Task]:
        """As of Costs."""
        self.graphs += 1
        return super().tasks(graph)


class Everything:
    """An estimate by which every step is worth it."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def promises(self, _: Match, __: Finder) -> bool:
        """Whether it is."""
        return True


@contextlib.contextmanager
def unguided() -> Iterator[None]:
    """Searches leave no step out, and prefer what gains least, too."""
    with contextlib.ExitStack() as stack:
        changed = {"MatchEstimate": Everything, "_LOSS": math.inf, "_FEW_WAYS": 1 << 30,
                   "_SURE": 1.0, "_WORTH_S": 0.0}  # fmt: skip
        for name, value in changed.items():
            stack.enter_context(mock.patch.object(searching, name, value))
        yield


def every(name: str, graph: Graph, costs: Counted, time_s: float) -> None:
    """Print a model's row: the search beside all graphs."""
    quick = searched(graph, shipped(), costs, 2.0)
    costs.graphs = 0
    with unguided():
        least = searched(graph, shipped(), costs, time_s, width=1 << 30)
    ended = "some" if "not ended" in least[1] else "all"
    cells = [name, quick[0], least[0], f"{costs.graphs} ({ended})", quick[1], least[1]]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--time", type=float, default=60.0, help="seconds of a wide search")
    parser.add_argument("--folder", type=Path, default=Path("build/rewrites"))
    parser.add_argument("--every", action="store_true", help="see all graphs that steps lead to")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ways_named = "by hand | all | wide | all, wide"
    if options.every:
        print("| model | search, ms | least | graphs | search | least |\n|" + " --- |" * 6)
    else:
        print(f"| model | none, ms | {ways_named} | {ways_named} |\n|" + " --- |" * 10)
    for name in options.names or MODELS:
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            write(name, path)
        target = CompileRequest(path, threads=1).wanted_target()
        graph = optimize(load_model(path, None), CLEAN)
        if options.every:
            every(name, graph, Counted(target), options.time)
            continue
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

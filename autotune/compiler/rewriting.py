"""The rewrites of a request, ready to search a graph with. In: a target, the name of rewrites,
a tuning log. Out: a function from a graph to the one found.

Graphs are compared by measured times where the log has all tasks in which they differ, else by the
prior's for the target, whatever the machine says: whoever tunes and whoever compiles gets the same
from the same log.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from autotune.compiler.layout_costs import measured_in
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT, raised
from autotune.graph.ir import Graph
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import ALL, generated_for, wanted
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.search import Found, search
from autotune.target import Target


def rewriting(
    target: Target, rewrites: str | os.PathLike[str] | None = None, log: LogStore | None = None
) -> Callable[[Graph], Found] | None:
    """The search for a target; None where nothing is to be rewritten. Raises ConfigError where a
    file has what is not proven."""
    if target.kind != "cpu":
        return None
    found = wanted(rewrites)
    if target.accuracy != "normal":
        found = tuple(r for r in found if r.exact)
    costs = Costs(target, measured_in(log, target) if log is not None else None)

    def rewrite(graph: Graph) -> Found:
        try:
            return search(graph, (*found, *_generated(graph)), costs)
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect costs a gain, never a result
            raised("rewriting", error, "the graph stays as it is")
            return Found(graph=graph)

    def _generated(graph: Graph) -> tuple[Rewrite, ...]:
        if rewrites != ALL:
            return ()
        return tuple(r for r in generated_for(graph) if r.exact or target.accuracy == "normal")

    return rewrite if found else None

"""Steps over a sequence as one op. In: values, and a function that builds a step. Out: every
step's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.frontend.assembly import Assembler
from autotune.graph.build import GraphBuilder
from autotune.types import TensorType

Build = Callable[[Assembler, str, Sequence[str], Sequence[str]], str]
"""(what to build with, the state, a row of each moving value, fixed values) -> the new state."""


def recurrence(
    n: Assembler,
    state: str,
    moving: Sequence[str],
    fixed: Sequence[str],
    build: Build,
    *,
    reverse: bool = False,
) -> str:
    """[T, ...] states of `moving` [T, ...], from the first row to the last, or backward."""
    step = Assembler(GraphBuilder("step"))

    def taken(name: str, value: str, rows: bool) -> str:
        shape = n.shape(value)[1:] if rows else n.shape(value)
        return step.builder.input(name, TensorType(dtype=n.dtype(value), shape=shape))

    names = {"s": taken("s", state, False)}
    names |= {f"m{k}": taken(f"m{k}", value, True) for k, value in enumerate(moving)}
    names |= {f"f{k}": taken(f"f{k}", value, False) for k, value in enumerate(fixed)}
    rows = [f"m{k}" for k in range(len(moving))]
    whole = [f"f{k}" for k in range(len(fixed))]
    body = step.builder.finish([("new", build(step, "s", rows, whole))])
    held = list(fixed)
    for name, array in body.constants.items():
        names[name] = f"f{len(held)}"
        held.append(n.builder.constant(array))
    nodes = tuple(
        (node.op, tuple(names.get(i, i) for i in node.inputs), node.output, node.attrs)
        for node in body.nodes
    )
    return n.op(
        "recur", state, *moving, *held, moving=len(moving), reverse=int(reverse), body=nodes
    )

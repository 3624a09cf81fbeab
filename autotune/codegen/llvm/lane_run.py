"""Elements that unrolled steps multiply vectors by, loaded several at a time.

Arm's multiply-adds take one lane of a register for one factor. Where steps of an unrolled
reduction read neighbours, these come by one load, and stay in a register for all of the steps:

    for k in 4 unroll: sum[p, v] sum= mul(data[p, 4*step + k], weights[4*step + k, v])
    ->  x = data[p, 4*step .. 4*step + 3];  sum[p, v] sum= mul(x[k], weights[4*step + k, v])

In: an unrolled loop. Out: how many elements a load takes, 0 where it is better to load each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotune.machine.cpu import RUN_LANES, RUNS
from autotune.program.ir import Apply, Buffer, For, If, Index, Load, Select, Stmt, Store, Value


def run_width(loop: For, buffers: Mapping[str, Buffer], registers: int) -> int:
    """Elements of a load in an unrolled loop over a register tile's steps: all sums, all loads and
    a step's vectors must fit into `registers`, with one for what is on its way."""
    width = next((w for w in RUNS if loop.extent % w == 0), 0)
    if not width or any(_depends(s, loop.var) for s in loop.body):
        return 0
    products = list(_products(loop.body, {}, 1))
    if not products or not all(lanes == RUN_LANES for _, _, lanes in products):
        return 0
    held = 0
    for store, unrolled, _ in products:
        if buffers[store.buffer].scope != "register":
            return 0
        held += _count(store.indices, unrolled)
        for load in _loads(store.value):
            if buffers[load.buffer].dtype != "float32":
                return 0
            held += _count(load.indices, unrolled)
    return width if held + 1 <= registers else 0


def runs_along(value: Index, var: str) -> bool:
    """Whether an index goes from one element to the next with a variable."""
    atoms = [atom for atom, _ in value.terms if not isinstance(atom, str)]
    return value.coefficient(var) == 1 and not any(Index(((a, 1),)).reads({var}) for a in atoms)


def _depends(stmt: Stmt, var: str) -> bool:
    """Whether anything but loops and products is done, or what is done depends on the step."""
    if isinstance(stmt, For):
        known = stmt.kind in ("unroll", "vector")
        return not known or any(_depends(s, var) for s in stmt.body)
    if isinstance(stmt, If):
        guarded = any(b.index.reads({var}) for b in stmt.bounds)
        return guarded or any(_depends(s, var) for s in stmt.body)
    if not isinstance(stmt, Store) or stmt.combine != "sum":
        return True
    return not isinstance(stmt.value, Apply) or stmt.value.fn != "mul" or _selects(stmt.value)


def _selects(value: Value) -> bool:
    if isinstance(value, Apply):
        return any(map(_selects, value.args))
    return isinstance(value, Select)


def _products(
    body: Sequence[Stmt], unrolled: Mapping[str, int], lanes: int
) -> Iterator[tuple[Store, Mapping[str, int], int]]:
    """Stores with the unrolled loops around them, and their lanes."""
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt, unrolled, lanes
        elif isinstance(stmt, If):
            yield from _products(stmt.body, unrolled, lanes)
        elif isinstance(stmt, For):
            vector = stmt.kind == "vector"
            inside = unrolled if vector else {**unrolled, stmt.var: stmt.extent}
            yield from _products(stmt.body, inside, stmt.extent if vector else lanes)


def _count(indices: Sequence[Index], unrolled: Mapping[str, int]) -> int:
    """Different places that unrolled loops make of one."""
    count = 1
    for var, extent in unrolled.items():
        count *= extent if any(i.reads({var}) for i in indices) else 1
    return count


def _loads(value: Value) -> Iterator[Load]:
    if isinstance(value, Load):
        yield value
    elif isinstance(value, Apply):
        for part in value.args:
            yield from _loads(part)

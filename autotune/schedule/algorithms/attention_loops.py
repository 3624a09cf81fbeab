"""Recognizing naive attention in a program: a softmax between two products."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.errors import ScheduleError
from autotune.ops import OPS
from autotune.program import ir
from autotune.program.rewrite import Body, find_buffer, map_indices, stores_of, value_loads
from autotune.schedule.loops.compute import nest_of, root_body
from autotune.tasks.build import compute_nest
from autotune.types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProduct:
    """out[loops] = sum over `reduce` of left * right; `right` does not depend on the rows, which
    are the last loop but one, and `left` not on the columns, the last."""

    loops: tuple[ir.For, ...]
    reduce: ir.For
    left: ir.Load
    right: ir.Load

    @property
    def rows(self) -> ir.For:
        return self.loops[-2]

    @property
    def columns(self) -> ir.For:
        return self.loops[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(f(queries * keys)) * values and its epilogue, as found in a program.

    `score`: f, over a load of the scores' buffer at the scores' loops; `result`: what is stored of
    an element of the second product, over a load of its buffer at its loops."""

    scores: AttentionProduct
    mix: AttentionProduct
    score: ir.Value
    result: ir.Store
    nests: Body
    inner: tuple[str, ...]
    """Buffers that only these nests use."""
    dtype: str
    seen: int | None
    """Row i looks at keys up to i + seen; None where f hides nothing by its place."""
    guarded: bool
    """Whether a row without any score gives zeros."""

    @property
    def batch(self) -> tuple[ir.For, ...]:
        return self.scores.loops[:-2]


def find_attention(program: ir.Program, scores: str, weights: str, mix: str) -> Attention:
    """`scores`: of queries and keys; `weights`: their softmax; `mix`: the second product.

    ScheduleError where they are not computed by nests at the root that follow each other."""
    body = root_body(program)
    start = next(i for i, s in enumerate(body) if s is nest_of(program, scores))
    nests = list(body[start:])
    first = _product(nests.pop(0), scores)
    source, score = scores, None
    if nests and not stores_of((nests[0],), f"{weights}.max"):
        source, score = _elementwise(nests.pop(0), first.loops, scores)
    type_ = TensorType(dtype="float32", shape=tuple(loop.extent for loop in first.loops))
    last = {"axis": len(type_.shape) - 1}
    stages = OPS.get("softmax").expression([(source, type_)], (weights, type_), last)
    expected = tuple(stmt for c in stages for stmt in compute_nest(c, {}, {}))
    if tuple(nests[: len(expected)]) != expected:
        raise ScheduleError(f"{weights} is not the softmax of the rows of {source}")
    nests = nests[len(expected) :]
    inner = {scores, source, *(c.output for c in stages)}
    used = weights
    if nests and not stores_of((nests[0],), mix):
        used = _guarded(nests.pop(0), first.loops, weights)
        inner.add(used)
    if not nests:
        raise ScheduleError(f"{mix} is not computed behind {weights}")
    second = _product(nests.pop(0), mix)
    cell = tuple(ir.index(loop.var) for loop in second.loops)
    result = ir.Store(mix, cell, ir.Load(mix, cell))
    if nests:
        inner.add(mix)
        name, value = _elementwise(nests.pop(0), second.loops, mix)
        result = ir.Store(name, cell, value)
    if nests:
        raise ScheduleError(f"something else is computed behind {result.buffer}")
    _check_joined(first, second, used)
    point = tuple(ir.index(loop.var) for loop in first.loops)
    return Attention(
        scores=first,
        mix=second,
        score=ir.Load(scores, point) if score is None else score,
        result=result,
        nests=body[start:],
        inner=tuple(sorted(inner)),
        seen=None if score is None else _seen(score, *(c.var for c in first.loops[-2:])),
        guarded=used != weights,
        dtype=find_buffer(program, scores).dtype,
    )


def _guarded(nest: ir.Stmt, loops: tuple[ir.For, ...], weights: str) -> str:
    """What a nest computes that has zeros for rows of weights without scores, and is the weights
    otherwise."""
    used, value = _elementwise(nest, loops, weights)
    one = ir.Load(weights, tuple(ir.index(loop.var) for loop in loops))
    if value != ir.fn("where", ir.fn("ne", one, one), ir.Const(0.0), one):
        raise ScheduleError(f"{used} is more than zeros for rows of {weights} without scores")
    return used


def _seen(score: ir.Value, row: str, column: str) -> int | None:
    """The most by which a key may lie behind a row, if scores behind it are -inf."""
    match score:
        case ir.Select((ir.Bound(left, 0, _),), _, ir.Const(value)) if value == -math.inf:
            rest = left - row + column
            return rest.const if rest.is_const else None
        case ir.Apply("add", (one, other)):
            found = (_seen(v, row, column) for v in (one, other))
            return next((f for f in found if f is not None), None)
    return None


def _check_joined(first: AttentionProduct, second: AttentionProduct, weights: str) -> None:
    """The second product sums over the columns of the first, row by row."""
    rows = [loop.extent for loop in first.loops[:-1]]
    point = (*(ir.index(loop.var) for loop in second.loops[:-1]), ir.index(second.reduce.var))
    same = [loop.extent for loop in second.loops[:-1]] == rows
    if not same or second.left != ir.Load(weights, point):
        raise ScheduleError(f"the second product is not one of the rows of {weights}")


def chain_of(stmt: ir.Stmt) -> tuple[tuple[ir.For, ...], Body]:
    """Loops that hold nothing but each other, and what the innermost holds."""
    chain: list[ir.For] = []
    body: Body = (stmt,)
    while len(body) == 1 and isinstance(body[0], ir.For):
        chain.append(body[0])
        body = body[0].body
    return tuple(chain), body


def _product(nest: ir.Stmt, buffer: str) -> AttentionProduct:
    refuse = ScheduleError(f"{buffer} is not a plain product")
    loops, body = chain_of(nest)
    if len(loops) < 2 or len(body) != 2:
        raise refuse
    init, reduce = body
    cell = tuple(ir.index(loop.var) for loop in loops)
    if init != ir.Store(buffer, cell, ir.Const(0.0)) or not isinstance(reduce, ir.For):
        raise refuse
    (update,) = reduce.body if len(reduce.body) == 1 else (None,)
    if not isinstance(update, ir.Store) or update != ir.Store(buffer, cell, update.value, "sum"):
        raise refuse
    match update.value:
        case ir.Apply("mul", (ir.Load() as left, ir.Load() as right)):
            pass
        case _:
            raise refuse
    apart = [(left, loops[-1].var), (right, loops[-2].var)]
    if any(var in _vars(load) for load, var in apart) or left.buffer == right.buffer:
        raise refuse
    return AttentionProduct(loops=loops, reduce=reduce, left=left, right=right)


def _vars(load: ir.Load) -> frozenset[str]:
    return frozenset[str]().union(*(i.vars() for i in load.indices))


def _elementwise(nest: ir.Stmt, loops: tuple[ir.For, ...], source: str) -> tuple[str, ir.Value]:
    """(buffer, value over other loops) of a nest that makes each element of one of `source`."""
    own, body = chain_of(nest)
    refuse = ScheduleError(f"what follows {source} is not computed element by element")
    if [loop.extent for loop in own] != [loop.extent for loop in loops] or len(body) != 1:
        raise refuse
    store = body[0]
    point = tuple(ir.index(loop.var) for loop in own)
    if not isinstance(store, ir.Store) or store.combine or store.indices != point:
        raise refuse
    if any(v.buffer == source and v.indices != point for v in value_loads(store.value)):
        raise refuse
    env = {a.var: ir.index(b.var) for a, b in zip(own, loops, strict=True)}
    return store.buffer, moved(store.value, env)


def moved(value: ir.Value, env: dict[str, ir.Index]) -> ir.Value:
    """The value with loops replaced by indices."""
    return map_indices(value, lambda i: i.substitute(env))

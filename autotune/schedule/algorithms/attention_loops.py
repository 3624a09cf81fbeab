"""Recognizing naive attention in a program: a softmax between two products."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.errors import ScheduleError
from autotune.ops import OPS
from autotune.program.ir import (
    Apply,
    Bound,
    Const,
    For,
    Index,
    Load,
    Program,
    Select,
    Stmt,
    Store,
    Value,
    fn,
    index,
)
from autotune.program.rewrite import Body, find_buffer, map_indices, stores_of, value_loads
from autotune.schedule.loops.compute import nest_of, root_body
from autotune.tasks.build import compute_nest
from autotune.types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProduct:
    """out[loops] = sum over `reduce` of left * right; `right` does not depend on the rows, which
    are the last loop but one, and `left` not on the columns, the last."""

    loops: tuple[For, ...]
    reduce: For
    left: Load
    right: Load

    @property
    def rows(self) -> For:
        return self.loops[-2]

    @property
    def columns(self) -> For:
        return self.loops[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(f(queries * keys)) * values and its epilogue, as found in a program.

    `score`: f, over a load of the scores' buffer at the scores' loops; `result`: what is stored of
    an element of the second product, over a load of its buffer at its loops."""

    scores: AttentionProduct
    mix: AttentionProduct
    score: Value
    result: Store
    nests: Body
    inner: tuple[str, ...]
    """Buffers that only these nests use."""
    dtype: str
    seen: int | None
    """Row i looks at keys up to i + seen; None where f hides nothing by its place."""
    guarded: bool
    """Whether a row without any score gives zeros."""

    @property
    def batch(self) -> tuple[For, ...]:
        return self.scores.loops[:-2]


def find_attention(program: Program, scores: str, weights: str, mix: str) -> Attention:
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
    cell = tuple(index(loop.var) for loop in second.loops)
    result = Store(mix, cell, Load(mix, cell))
    if nests:
        inner.add(mix)
        name, value = _elementwise(nests.pop(0), second.loops, mix)
        result = Store(name, cell, value)
    if nests:
        raise ScheduleError(f"something else is computed behind {result.buffer}")
    _check_joined(first, second, used)
    point = tuple(index(loop.var) for loop in first.loops)
    return Attention(
        scores=first,
        mix=second,
        score=Load(scores, point) if score is None else score,
        result=result,
        nests=body[start:],
        inner=tuple(sorted(inner)),
        seen=None if score is None else _seen(score, *(c.var for c in first.loops[-2:])),
        guarded=used != weights,
        dtype=find_buffer(program, scores).dtype,
    )


def _guarded(nest: Stmt, loops: tuple[For, ...], weights: str) -> str:
    """What a nest computes that has zeros for rows of weights without scores, and is the weights
    otherwise."""
    used, value = _elementwise(nest, loops, weights)
    one = Load(weights, tuple(index(loop.var) for loop in loops))
    if value != fn("where", fn("ne", one, one), Const(0.0), one):
        raise ScheduleError(f"{used} is more than zeros for rows of {weights} without scores")
    return used


def _seen(score: Value, row: str, column: str) -> int | None:
    """The most by which a key may lie behind a row, if scores behind it are -inf."""
    match score:
        case Select((Bound(left, 0, _),), _, Const(value)) if value == -math.inf:
            rest = left - row + column
            return rest.const if rest.is_const else None
        case Apply("add", (one, other)):
            found = (_seen(v, row, column) for v in (one, other))
            return next((f for f in found if f is not None), None)
    return None


def _check_joined(first: AttentionProduct, second: AttentionProduct, weights: str) -> None:
    """The second product sums over the columns of the first, row by row."""
    rows = [loop.extent for loop in first.loops[:-1]]
    point = (*(index(loop.var) for loop in second.loops[:-1]), index(second.reduce.var))
    same = [loop.extent for loop in second.loops[:-1]] == rows
    if not same or second.left != Load(weights, point):
        raise ScheduleError(f"the second product is not one of the rows of {weights}")


def chain_of(stmt: Stmt) -> tuple[tuple[For, ...], Body]:
    """Loops that hold nothing but each other, and what the innermost holds."""
    chain: list[For] = []
    body: Body = (stmt,)
    while len(body) == 1 and isinstance(body[0], For):
        chain.append(body[0])
        body = body[0].body
    return tuple(chain), body


def _product(nest: Stmt, buffer: str) -> AttentionProduct:
    refuse = ScheduleError(f"{buffer} is not a plain product")
    loops, body = chain_of(nest)
    if len(loops) < 2 or len(body) != 2:
        raise refuse
    init, reduce = body
    cell = tuple(index(loop.var) for loop in loops)
    if init != Store(buffer, cell, Const(0.0)) or not isinstance(reduce, For):
        raise refuse
    (update,) = reduce.body if len(reduce.body) == 1 else (None,)
    if not isinstance(update, Store) or update != Store(buffer, cell, update.value, "sum"):
        raise refuse
    match update.value:
        case Apply("mul", (Load() as left, Load() as right)):
            pass
        case _:
            raise refuse
    apart = [(left, loops[-1].var), (right, loops[-2].var)]
    if any(var in _vars(load) for load, var in apart) or left.buffer == right.buffer:
        raise refuse
    return AttentionProduct(loops=loops, reduce=reduce, left=left, right=right)


def _vars(load: Load) -> frozenset[str]:
    return frozenset[str]().union(*(i.vars() for i in load.indices))


def _elementwise(nest: Stmt, loops: tuple[For, ...], source: str) -> tuple[str, Value]:
    """(buffer, value over other loops) of a nest that makes each element of one of `source`."""
    own, body = chain_of(nest)
    refuse = ScheduleError(f"what follows {source} is not computed element by element")
    if [loop.extent for loop in own] != [loop.extent for loop in loops] or len(body) != 1:
        raise refuse
    store = body[0]
    point = tuple(index(loop.var) for loop in own)
    if not isinstance(store, Store) or store.combine or store.indices != point:
        raise refuse
    if any(v.buffer == source and v.indices != point for v in value_loads(store.value)):
        raise refuse
    env = {a.var: index(b.var) for a, b in zip(own, loops, strict=True)}
    return store.buffer, moved(store.value, env)


def moved(value: Value, env: dict[str, Index]) -> Value:
    """The value with loops replaced by indices."""
    return map_indices(value, lambda i: i.substitute(env))

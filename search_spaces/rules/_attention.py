"""Describing attention: its sizes, and what a config should cost.

In: a task whose softmax stands between two products. Out: plain data for the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotune.target import Target
from autotune.types import Task, TaskNode
from search_spaces.base import Access, Column
from search_spaces.rules._cost import tile_rate
from search_spaces.rules._rates import imbalance
from search_spaces.space import Columns

_SOFTMAX_CYCLES = 14.0
"""Per vector of scores: the largest, the exponential, the sum."""
_ROW_CYCLES = 60.0
"""Of a row and a block of keys: reductions over lanes."""
_RAGGED = 1.06
"""Of a product whose last tile is smaller than the others."""
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_CYCLE = 10.0
_FEW = 4
"""Elements of the batch per thread: fewer leave all waiting for a thread that lost its core."""
_UNEVEN = 1.07
"""Time of the busiest thread over that of all. Keys and values that all threads pack together
first cost several per cent."""
_SEEN = 0.3
"""Share of a stream from a cache that arithmetic does not hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductPart:
    """One of the two products. `tensor` is its result, `packed` its right operand of so many
    dimensions; `channel_dim`, of the last two of them, is the one over columns."""

    name: str
    tensor: str
    packed: str
    rank: int
    channel_dim: int

    @property
    def short(self) -> str:
        """What the names of its loops begin with."""
        return self.name[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTask:
    """Sizes and names of softmax(f(queries * keys)) * values."""

    batch: tuple[int, ...]
    rows: int
    keys: int
    depth: int
    width: int
    weights: str
    """The softmax's result."""
    seen: int | None
    """Row i looks at keys up to i + seen; None: at all."""
    score: ProductPart
    mix: ProductPart

    @property
    def count(self) -> int:
        return math.prod(self.batch)


def attention_of(task: Task) -> AttentionTask | None:
    """None where the task is no attention."""
    makers = {out: n for n in task.nodes for out in n.outputs}
    mix = task.nodes[task.anchor]
    softmax = makers.get(mix.inputs[0]) if mix.op == "matmul" else None
    if softmax is not None and softmax.op == "where":
        softmax = makers.get(softmax.inputs[2])
    products = [n for n in task.nodes if n.op == "matmul"]
    if softmax is None or softmax.op != "softmax" or len(products) != 2:
        return None
    first = next(n for n in products if n is not mix)
    scores = task.value(first.outputs[0]).type.shape
    return AttentionTask(
        batch=scores[:-2],
        rows=scores[-2],
        keys=scores[-1],
        depth=task.value(first.inputs[0]).type.shape[-1],
        width=task.value(mix.outputs[0]).type.shape[-1],
        weights=softmax.outputs[0],
        seen=next((_offset(n) for n in task.nodes if n.op == "causal"), None),
        score=_part(task, "score", first),
        mix=_part(task, "mix", mix),
    )


def _offset(node: TaskNode) -> int:
    offset = dict(node.attrs).get("offset", 0)
    assert isinstance(offset, int)
    return offset


def _part(task: Task, name: str, node: TaskNode) -> ProductPart:
    transposed = bool(dict(node.attrs).get("transpose_b", False))
    return ProductPart(
        name=name,
        tensor=node.outputs[0],
        packed=node.inputs[1],
        rank=len(task.value(node.inputs[1]).type.shape),
        channel_dim=0 if transposed else 1,
    )


def cycles(a: AttentionTask, target: Target, columns: Columns) -> Column:
    """Cycles of the whole task per config, on all threads together."""
    lanes = float(target.lanes())
    rows = columns["rows"].astype(np.float64)
    keys = columns["keys"].astype(np.float64)
    blocks = np.ceil(a.rows / rows)
    computed = a.count * blocks * rows * _share_seen(a, rows, keys)
    total = _product(target, columns, "score", a.keys, a.depth) * a.depth
    total = total + _product(target, columns, "mix", a.width, a.keys) * a.keys
    total = total * computed + computed * math.ceil(a.keys / lanes) * _SOFTMAX_CYCLES
    total = total + computed * (a.keys / keys) * _ROW_CYCLES
    # Scores are written and read three times; keys and values come once per block of rows.
    block = rows * keys * 4.0
    streams = (a.keys * (a.depth + a.width)) * 4.0
    held = block + np.minimum(keys * (a.depth + a.width) * 4.0, streams)
    passes = computed * a.keys * 4.0 * 4.0
    total = total + np.where(block > target.l1_bytes / 2, passes / _L2_BYTES_PER_CYCLE, 0) * _SEEN
    total = total + np.where(held > target.l2_bytes, passes / _L3_BYTES_PER_CYCLE, 0) * _SEEN
    speed = np.where(
        streams + block > 0.75 * target.l2_bytes, _L3_BYTES_PER_CYCLE, _L2_BYTES_PER_CYCLE
    )
    total = total + a.count * blocks * streams / speed * _SEEN
    chunks = a.count * (blocks if split_rows(a, target) else 1.0) + 0 * rows
    return np.asarray(total * imbalance(chunks, target), np.float64)


def _share_seen(a: AttentionTask, rows: Column, keys: Column) -> Column:
    """Of all blocks of keys, those that are not left out."""
    if a.seen is None:
        return np.ones(len(rows))
    pairs, which = np.unique(np.stack([rows, keys]), axis=1, return_inverse=True)
    shares = []
    for size, block in pairs.T:
        last = np.arange(size, a.rows + size, size) + a.seen
        shares.append(np.mean(np.ceil(np.minimum(last, a.keys) / block)) * block / a.keys)
    return np.asarray(np.asarray(shares)[which.reshape(-1)], np.float64)


def _product(target: Target, columns: Columns, which: str, channels: int, depth: int) -> Column:
    """Cycles per row and step of the reduction of a product."""
    vectors = columns[f"{which}_vectors"].astype(np.float64)
    points = columns[f"{which}_tile"].astype(np.float64)
    given = {"lanes": np.full(len(points), target.lanes()), "unroll": columns["unroll"]}
    count = math.ceil(channels / target.lanes())
    blocks = np.ceil(count / vectors)
    last = count - (blocks - 1) * vectors
    rate = (count - last) * tile_rate(target, given, points, vectors, depth)
    rate = rate + last * tile_rate(target, given, points, last, depth)
    weights = vectors * np.where(columns["unroll"] > 1, 2, 1)
    crowded = points * vectors + weights + 1 > target.vector_registers
    ragged = np.where(count % vectors != 0, _RAGGED, 1.0)
    ragged = ragged * np.where(columns["rows"] % points != 0, _RAGGED, 1.0)
    return np.asarray(rate * ragged * np.where(crowded, 2.0, 1.0))


def ideal_cycles(a: AttentionTask, target: Target) -> float:
    """Of the multiply-adds alone."""
    return a.count * a.rows * a.keys * (a.depth + a.width) / target.lanes()


def split_rows(a: AttentionTask, target: Target) -> bool:
    """Whether threads share blocks of rows, not only elements of the batch, as these are few or do
    not come out even."""
    if target.threads == 1 or not a.batch:
        return not a.batch
    even = -(-a.count // target.threads) * target.threads
    return a.count < _FEW * target.threads or even > _UNEVEN * a.count


def accesses_of(a: AttentionTask) -> tuple[Access, ...]:
    def access(name: str, rows: str, extent: int, width: int, written: bool = False) -> Access:
        return Access(
            buffer=name, item_bytes=4, shape=(a.count, extent, width), written=written,
            dims=((("batch", 1),), ((rows, 1),), (("depth", 1),)),
        )  # fmt: skip

    return (
        access("queries", "row", a.rows, a.depth),
        access("keys", "key", a.keys, a.depth),
        access("values", "key", a.keys, a.width),
        access("out", "row", a.rows, a.width, written=True),
    )

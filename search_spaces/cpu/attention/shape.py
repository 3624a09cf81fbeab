"""Describing attention: its sizes.

In: a task whose softmax stands between two products. Out: plain data for the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.sizes import is_size
from autotune.target import Target
from autotune.tasks.flops import causal_offset
from autotune.types import Task, TaskNode
from search_spaces.base import Access

_FEW = 4
"""Elements of the batch per thread: fewer leave all waiting for a thread that lost its core
(chosen)."""
_UNEVEN = 1.07
"""Time of the busiest thread over that of all. Keys and values that all threads pack together
first cost several per cent."""


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
        seen=next((causal_offset(n) for n in task.nodes if n.op == "causal"), None),
        score=_part(task, "score", first),
        mix=_part(task, "mix", mix),
    )


def _part(task: Task, name: str, node: TaskNode) -> ProductPart:
    transposed = bool(dict(node.attrs).get("transpose_b", False))
    return ProductPart(
        name=name,
        tensor=node.outputs[0],
        packed=node.inputs[1],
        rank=len(task.value(node.inputs[1]).type.shape),
        channel_dim=0 if transposed else 1,
    )


def split_rows(a: AttentionTask, target: Target) -> bool:
    """Whether threads share blocks of rows, not only elements of the batch, as these are few or do
    not come out even."""
    if target.threads == 1 or not a.batch:
        return not a.batch
    if is_size(a.count):
        return True
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

"""Describing contractions: their loops, and what they read.

In: a task whose anchor is a convolution or matrix product. Out: plain data for the rule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.tasks.build import loop_var
from autotune.types import ITEM_BYTES, SHORT_FLOATS, Task
from search_spaces.base import Access, Column
from search_spaces.space import Configs

STRIPS_FIRST = "bands_first"
"""Order of loops, by its name in logs, in which threads have strips of rows, or of points where
there are no rows, then channel blocks first: each needs all weights, but reads mostly data that it
has made itself."""
_FEW_POINTS = 16
"""Points up to which all of a contraction's time goes into reading its weights (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """The loops of a contraction. Extents are of the whole problem, channels of one group."""

    tensor: str
    batch: tuple[tuple[str, int], ...]
    groups: int
    rows: tuple[str, int] | None
    points: tuple[str, int]
    channels: tuple[str, int]
    reduce: tuple[tuple[str, int], ...]
    data: str
    weights: str
    weight_rank: int
    channel_dim: int
    constant: bool
    strides: tuple[int, int]
    dilation: tuple[int, int]
    plain: bool = False
    """Whether vectors of the weights can be read where they lie, without a packed copy."""
    weight_step: int = 1
    """Elements from one row of the weights to the next, where they lie."""
    item_bytes: int = 4
    """Bytes of an element of the data and the weights: 1 for uint8 times int8, 2 for short floats,
    whose weights may be float32 if they are constant."""

    @property
    def depth(self) -> int:
        """Multiply-adds of one output element."""
        return math.prod(e for _, e in self.reduce)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return float(self.depth * self.channels[1] * self.groups * self.item_bytes)

    @property
    def reduce_dim(self) -> int:
        """Dimension of the weights along the innermost reduction."""
        if self.rows:
            return 2
        return 2 * self.weight_rank - 3 - self.channel_dim

    @property
    def count(self) -> int:
        """Elements of the batch."""
        return math.prod(e for _, e in self.batch)

    @property
    def one_per_group(self) -> bool:
        """Whether every group makes a single channel, so that no two read the same data."""
        return self.groups > 1 and self.channels[1] == 1

    @property
    def streams(self) -> bool:
        """Whether weights are used so few times that bringing them in is most of the work."""
        return self.constant and self.count * self.row_count * self.points[1] <= _FEW_POINTS

    @property
    def row_count(self) -> int:
        return self.rows[1] if self.rows else 1


def is_contraction(task: Task, *, short: bool = True) -> bool:
    """Whether the anchor is a float32 convolution or product, not depthwise, of given operands;
    `short`: these may be short floats; otherwise constants of a product may be bytes."""
    node = task.nodes[task.anchor]
    made_here = any(task.value(v).role == "local" for v in node.inputs)
    if made_here or node.op not in ("matmul", "conv2d"):
        return False
    c = contraction_of(task)
    if c.item_bytes == 1:
        return c.constant and c.reduce[-1][1] % 4 == 0 and not c.one_per_group
    narrow = {task.value(v).type.dtype for v in node.inputs} & set(SHORT_FLOATS)
    if task.value(node.outputs[0]).type.dtype != "float32" or (narrow and not short):
        return False
    if task.value(c.weights).type.dtype == "int8":
        return node.op == "matmul" and c.constant and not short
    if node.op == "matmul":
        return True
    return not (c.one_per_group and c.reduce[2][1] == 1)


def contraction_of(task: Task) -> Contraction:
    """Describe the anchor of a task."""
    node = task.nodes[task.anchor]
    tensor, (data, weights) = node.outputs[0], node.inputs[:2]
    out = task.value(tensor).type.shape
    a, b = task.value(data).type.shape, task.value(weights).type.shape
    attrs: dict[str, Any] = dict(node.attrs)

    def loop(axis: str, extent: int) -> tuple[str, int]:
        return loop_var(tensor, axis), extent

    constant = task.value(weights).role == "constant"
    item_bytes = min(4, ITEM_BYTES[task.value(data).type.dtype])
    if node.op == "conv2d":
        groups = attrs.get("groups", 1)
        return Contraction(
            tensor=tensor, batch=(loop("n", out[0]),), groups=groups, rows=loop("oh", out[1]),
            points=loop("ow", out[2]), channels=loop("oc", out[3] // groups),
            reduce=(loop("kh", b[0]), loop("kw", b[1]), loop("ic", b[2])),
            data=data, weights=weights, weight_rank=4, channel_dim=3, constant=constant,
            strides=attrs.get("strides", (1, 1)), dilation=attrs.get("dilations", (1, 1)),
            item_bytes=item_bytes,
        )  # fmt: skip
    transposed = bool(attrs.get("transpose_b", False))
    batch = tuple(loop(f"b{i}", e) for i, e in enumerate(out[:-2]))
    steps = task.value(weights).layout.strides[-2:]
    return Contraction(
        plain=not constant and not transposed and steps[1] == 1, weight_step=steps[0],
        tensor=tensor, batch=batch, groups=1, rows=None, points=loop("m", out[-2]),
        channels=loop("n", out[-1]), reduce=(loop("k", a[-1]),), data=data, weights=weights,
        weight_rank=len(b), channel_dim=len(b) - (2 if transposed else 1), constant=constant,
        strides=(1, 1), dilation=(1, 1), item_bytes=item_bytes,
    )  # fmt: skip


def tiled_contraction(task: Task) -> Contraction:
    """The same for tiles of points: where constant weights meet single rows, these lie along the
    batch (of a sequence before its batch: 197 x 1 x 768)."""
    c = contraction_of(task)
    longest = max(c.batch, key=lambda loop: loop[1], default=c.points)
    if c.rows or c.points[1] > 1 or longest[1] == 1 or not c.constant or c.weight_rank > 2:
        return c
    rest = (*(loop for loop in c.batch if loop != longest), c.points)
    return dataclasses.replace(c, batch=rest, points=longest)


def accesses_of(task: Task, c: Contraction) -> tuple[Access, ...]:
    data, weights = (task.value(v).type.shape for v in (c.data, c.weights))
    out, item = task.value(c.tensor).type.shape, c.item_bytes
    stored = ITEM_BYTES[task.by_role("output")[0].type.dtype]
    if c.rows:
        s, d = c.strides, c.dilation
        window = (
            (("batch", 1),), (("row", s[0]), ("kh", d[0])), (("point", s[1]), ("kw", d[1])),
            (("ic", 1),),
        )  # fmt: skip
        return (
            Access(buffer="data", item_bytes=item, shape=data, dims=window),
            Access(
                buffer="weights", item_bytes=item, shape=weights,
                dims=((("kh", 1),), (("kw", 1),), (("ic", 1),), (("channel", 1),)),
            ),
            Access(
                buffer="out", item_bytes=stored, shape=out, written=True,
                dims=((("batch", 1),), (("row", 1),), (("point", 1),), (("channel", 1),)),
            ),
        )  # fmt: skip
    count = math.prod(e for _, e in c.batch)
    k = c.reduce[0][1]
    shared = len(weights) == 2
    return (
        Access(
            buffer="data", item_bytes=item, shape=(count, c.points[1], k),
            dims=((("batch", 1),), (("point", 1),), (("k", 1),)),
        ),
        Access(
            buffer="weights", item_bytes=item,
            shape=(1 if shared else count, k, c.channels[1]),
            dims=(() if shared else (("batch", 1),), (("k", 1),), (("channel", 1),)),
        ),
        Access(
            buffer="out", item_bytes=stored, shape=(count, c.points[1], c.channels[1]),
            dims=((("batch", 1),), (("point", 1),), (("channel", 1),)), written=True,
        ),
    )  # fmt: skip


def levels_of(
    inside: Mapping[str, Column],
    configs: Configs,
    tile: Mapping[str, Column],
    reduce: tuple[str, ...],
) -> tuple[Mapping[str, Column], ...]:
    """Tiles inside the batch loop, then inside each outer loop, then one reduction step. In:
    extents inside the batch loop (in strips: inside one of these) and of a register tile."""
    order, ones = configs["order"], np.ones(len(configs["order"]))
    levels: list[dict[str, Column]] = [{"batch": ones}]
    depth = {
        STRIPS_FIRST: {"channel": 0, "row": 1, "point": 2},
        "channels_first": {"channel": 0, "row": 1, "point": 2},
        "rows_first": {"row": 0, "channel": 1, "point": 2},
        "points_first": {"row": 0, "point": 1, "channel": 2},
    }
    for level in range(3):
        now: dict[str, Column] = {}
        for axis, size in tile.items():
            reached = np.zeros(len(ones), bool)
            for name, at in depth.items():
                reached |= (order == name) & (at[axis] <= level)
            now[axis] = np.where(reached, size, inside[axis])
        levels.append(now)
    levels.append(dict.fromkeys(reduce, ones))
    return tuple(levels)

"""Describing contractions: their loops, what they read, how they may be computed.

In: a task whose anchor is a convolution or matrix product. Out: plain data for the rule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.ops.conv import tiled_reach
from autotune.program.winograd import points_of
from autotune.tasks.build import loop_var
from autotune.types import ITEM_BYTES, SHORT_FLOATS, Task
from search_spaces.base import Access, Column
from search_spaces.space import Columns

BANDS = "bands_first"
"""Order of loops in which threads have rows, or points where there are none, of their own, then
channel blocks first: each needs all weights, but reads mostly data that it has made itself."""
WINOGRAD = {
    "winograd2": (2, 2), "winograd4": (4, 4), "winograd4x2": (4, 2), "winograd5": (5, 5),
    "winograd6": (6, 6),
}  # fmt: skip
"""Algorithm -> height and width of its tiles of output points: those that divide an image best
multiply least."""
_STRIDED = ("winograd2", "winograd4")
_POINTS = 8
"""At which Winograd's algorithm evaluates along a side: more lose too many digits."""
_SIDE = 11
"""Inputs that a tile reads along a side: more do not stay in registers."""
_FEW_POINTS = 16
_LEAST = 16
"""Channels of a group, where there are several: with fewer, the transforms cost more than they
save."""
_LEAST_DEPTH, _LEAST_POINTS = 64, 32
"""Depth and channels, and points, below which combining quarters takes more than it saves."""


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
    """Of the data and the weights: 1 for uint8 times int8, 2 for short floats, whose weights may
    be float32 if they are constant."""
    winograd: tuple[str, ...] = ()
    """Forms of Winograd's algorithm that can compute this."""
    strassen: bool = False
    """Whether Strassen's algorithm can compute this."""
    halved: str = ""
    """The loop over points that it halves; empty: all of them as one."""

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

    def tile_rows(self, form: str) -> int:
        """Rows of Winograd tiles of that form."""
        return -(-self.row_count // self.tile_sides(form)[0])

    def tile_columns(self, form: str) -> int:
        return -(-self.points[1] // self.tile_sides(form)[1])

    def tile_sides(self, form: str) -> tuple[int, int]:
        """Height and width of a tile: 1 along a dimension that the kernel does not span."""
        (kh, kw), (height, width) = (e for _, e in self.reduce[:2]), WINOGRAD[form]
        return (height if kh > 1 else 1, width if kw > 1 else 1)

    def blocks(self, form: str) -> tuple[int, ...]:
        """Sizes of blocks of tiles: whole rows of them, or parts of one row."""
        rows, columns = self.tile_rows(form), self.tile_columns(form)
        parts = [d for d in range(4, columns) if columns % d == 0]
        return (*parts, *(columns * d for d in range(1, rows + 1) if rows % d == 0))

    def block_shape(self, form: str, block: int) -> tuple[int, int]:
        """Rows and columns of tiles of a block of that size."""
        columns = self.tile_columns(form)
        return (1, block) if block < columns else (block // columns, columns)

    @property
    def strassen_points(self) -> int:
        """Rows of each of Strassen's seven products."""
        return -(-self.count * self.row_count * self.points[1] // 2)

    def tile_points(self, form: str) -> int:
        """Multiplications of a tile per channel pair."""
        (kh, kw), (h, w) = (e for _, e in self.reduce[:2]), self.tile_sides(form)
        return points_of(h, kh, self.strides[0]) * points_of(w, kw, self.strides[1])


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
    halves = _strassen_halves(task)
    halved = loop_var(tensor, halves) if halves else ""
    item_bytes = min(4, ITEM_BYTES[task.value(data).type.dtype])
    if node.op == "conv2d":
        groups = attrs.get("groups", 1)
        return Contraction(
            tensor=tensor, batch=(loop("n", out[0]),), groups=groups, rows=loop("oh", out[1]),
            points=loop("ow", out[2]), channels=loop("oc", out[3] // groups),
            reduce=(loop("kh", b[0]), loop("kw", b[1]), loop("ic", b[2])),
            data=data, weights=weights, weight_rank=4, channel_dim=3, constant=constant,
            strides=attrs.get("strides", (1, 1)), dilation=attrs.get("dilations", (1, 1)),
            winograd=_winograd_forms(task) if item_bytes == 4 else (), item_bytes=item_bytes,
            strassen=halves is not None, halved=halved,
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
        strassen=halves is not None, halved=halved,
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


def _strassen_halves(task: Task) -> str | None:
    """The axis over points of a product to halve, "" for all as one; None where quarters are not
    worth combining: a convolution of more than a point, few points, or short sums."""
    node = task.nodes[task.anchor]
    data, weights, out = (task.value(v) for v in (*node.inputs[:2], node.outputs[0]))
    attrs: dict[str, Any] = dict(node.attrs)
    plain = {"pads": (0, 0, 0, 0), "groups": 1}
    floats = all(v.type.dtype == "float32" for v in (data, weights, out))
    if weights.role != "constant" or not floats:
        return None
    if any(attrs.get(k, v) != v for k, v in plain.items()):
        return None
    axes: tuple[str, ...] = ("n", "oh", "ow")
    if node.op == "matmul":
        axes = (*(f"b{i}" for i in range(len(out.type.shape) - 2)), "m")
        if len(weights.type.shape) != 2:
            return None
    elif weights.type.shape[:2] != (1, 1):
        return None
    *points, channels = out.type.shape
    depth, count = data.type.shape[-1], math.prod(points)
    if depth % 2 or channels % 2 or min(depth, channels) < _LEAST_DEPTH or count < _LEAST_POINTS:
        return None
    return next((a for a, extent in zip(axes, points, strict=True) if extent % 2 == 0), "")


def _winograd_forms(task: Task) -> tuple[str, ...]:
    """Those whose tiles the data's halo covers."""
    node = task.nodes[task.anchor]
    data, weights = (task.value(v) for v in node.inputs[:2])
    kernel = weights.type.shape[:2]
    attrs: dict[str, Any] = dict(node.attrs)
    strides = attrs.get("strides", (1, 1))
    if weights.role != "constant" or max(kernel) < 2 or weights.type.shape[2] == 1:
        return ()  # a single channel's transform costs what it saves: no halo is kept for it
    out = task.value(node.outputs[0]).type.shape
    narrow = weights.type.shape[2] < _LEAST or out[3] // attrs.get("groups", 1) < _LEAST
    if attrs.get("groups", 1) > 1 and narrow:
        return ()
    if max(strides) > 2 or attrs.get("dilations", (1, 1)) != (1, 1):
        return ()
    if any(1 < k < s for k, s in zip(kernel, strides, strict=True)):
        return ()

    def fits(form: str) -> bool:
        tile = WINOGRAD[form]
        reach = tiled_reach(data.type, weights.type, attrs, tile)
        covered = all(
            b <= x and a <= y for (b, a), (x, y) in zip(reach, data.layout.halo, strict=True)
        )
        sides = [(m, k, s) for m, k, s in zip(tile, kernel, strides, strict=True) if k > 1]
        exact = all(m + -(-k // s) - 1 <= _POINTS for m, k, s in sides)
        small = all(points_of(m, k, s) <= _SIDE for m, k, s in sides)
        known = form in _STRIDED or (len(sides) == 2 and max(strides) == 1)
        return covered and exact and small and known and max(out[1:3]) >= max(tile)

    return tuple(form for form in WINOGRAD if fits(form))


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
    columns: Columns,
    tile: Mapping[str, Column],
    reduce: tuple[str, ...],
) -> tuple[Mapping[str, Column], ...]:
    """Tiles inside the batch loop, then inside each outer loop, then one reduction step. In:
    extents inside the batch loop (in bands: inside one of these) and of a register tile."""
    order, ones = columns["order"], np.ones(len(columns["order"]))
    levels: list[dict[str, Column]] = [{"batch": ones}]
    depth = {
        BANDS: {"channel": 0, "row": 1, "point": 2},
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

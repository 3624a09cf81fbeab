"""Random ONNX models of kernels between chains of views.

In: a seed and a kind of kernel. Out: a model and its inputs. Up to six operators that only move
elements (transposes, slices of any step, gathers, concats, pads, splits, reshapes, reversals)
stand in front of every operand and behind the result, so that kernels read and write what lies in
any order, at any offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.types import Array
from tests.properties.onnx_graphs import OPSET, Shape
from tests.unit.frontend.onnx_models import nodes_model

LONGEST = 6
"""Views in a row."""
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 24)
"""Extents around the widths of vectors."""
LARGEST = 6000
"""Elements of a value."""
MOVING = (
    "Transpose", "Slice", "Gather", "Concat", "Pad", "Split", "Reshape", "Tile", "Expand",
    "GatherElements", "GatherND", "ScatterND", "DepthToSpace", "SpaceToDepth", "Trilu", "Where",
    "Neg", "Abs", "Relu", "Identity", "MaxPool", "TopK", "ArgMax", "ArgMin", "Cast",
)  # fmt: skip
"""Operators whose results have no rounding errors."""


class ChainModel:
    """A model that grows by one node at a time; every choice comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.shapes: dict[str, Shape] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.exact: set[str] = set()
        self.feeds: dict[str, Array] = {}
        for _ in range(self.draw(1, 2)):
            shape = [self.pick(EXTENTS) for _ in range(self.pick((4, 4, 3, 2)))]
            while math.prod(shape) > LARGEST // 4:
                shape[self.draw(0, len(shape) - 1)] = self.draw(1, 4)
            self.given(self.array(*shape))

    @property
    def real(self) -> list[str]:
        """The values that are no integers."""
        return [v for v, dtype in self.dtypes.items() if dtype == np.float32 and self.shapes[v]]

    def draw(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.draw(0, len(choices) - 1)]

    def array(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def given(self, array: Array) -> str:
        """An input with these elements."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        self._know(name, array.shape, array.dtype, exact=True)
        return name

    def node(
        self, op: str, operands: Sequence[Any], outputs: int = 1, take: int = 0,
        **attrs: Any,
    ) -> str | None:  # fmt: skip
        """A node's output of that number; nothing where an operand is, or where it has too many
        elements or none."""
        if any(operand is None for operand in operands):
            return None
        number = len(self.nodes)
        names, tensors = [], list[onnx.TensorProto]()
        for position, operand in enumerate(operands):
            if isinstance(operand, str):
                names.append(operand)
            else:
                names.append(f"c{number}_{position}")
                tensors.append(numpy_helper.from_array(np.asarray(operand), names[-1]))
        results = [f"{op.lower()}_{number}_{i}" for i in range(outputs)]
        node = helper.make_node(op, names, results, name=results[0], **attrs)
        found = self._inferred(node, tensors)
        if any(not 0 < math.prod(shape) <= LARGEST for shape, _ in found):
            return None
        exact = op in MOVING and all(n in self.exact or n not in self.shapes for n in names)
        for name, (shape, dtype) in zip(results, found, strict=True):
            self._know(name, shape, dtype, exact)
        self.nodes.append(node)
        self.tensors += tensors
        return results[take]

    def _know(self, name: str, shape: Shape, dtype: np.dtype[Any], exact: bool) -> None:
        self.shapes[name], self.dtypes[name] = shape, dtype
        self.exact |= {name} if exact else set()

    def _inferred(
        self, node: onnx.NodeProto, tensors: Sequence[onnx.TensorProto]
    ) -> list[tuple[Shape, np.dtype[Any]]]:
        """What ONNX's own shape inference says of a node."""
        known = {n: np.empty(self.shapes[n], self.dtypes[n]) for n in node.input
                 if n in self.shapes}  # fmt: skip
        model = nodes_model([node], known, tensors, list(node.output), OPSET)
        found = []
        for output in model.graph.output:
            kind = output.type.tensor_type
            shape = tuple(d.dim_value for d in kind.shape.dim)
            found.append((shape, helper.tensor_dtype_to_np_dtype(kind.elem_type)))
        return found

    def model(self, *outputs: str) -> onnx.ModelProto:
        return nodes_model(self.nodes, self.feeds, self.tensors, outputs, OPSET)


def transpose(m: ChainModel, x: str) -> str | None:
    return m.node("Transpose", [x], perm=m.rng.permutation(len(m.shapes[x])).tolist())


def sliced(m: ChainModel, x: str) -> str | None:
    """Some axes, each forward or backward in steps of up to three."""
    shape = m.shapes[x]
    axes = m.rng.permutation(len(shape))[: m.draw(1, min(3, len(shape)))]
    bounds = []
    for axis in axes:
        step, extent = m.pick((-3, -2, -1, -1, 1, 1, 2, 3)), shape[axis]
        first = m.draw(0, extent - 1) if m.draw(0, 1) else (extent - 1 if step < 0 else 0)
        last = m.draw(first, extent - 1) if step > 0 else m.draw(0, first)
        if m.draw(0, 1):
            last = extent - 1 if step > 0 else 0
        end = last + (1 if step > 0 else -1)
        bounds.append((first, end if end >= 0 else -(2**31), step))
    starts, ends, steps = (np.array(column) for column in zip(*bounds, strict=True))
    return m.node("Slice", [x, starts, ends, np.array(axes), steps])


def reversal(m: ChainModel, x: str) -> str | None:
    axis = m.draw(0, len(m.shapes[x]) - 1)
    ends = (np.array([v]) for v in (-1, -(2**31), axis, -1))
    return m.node("Slice", [x, *ends])


def affine_gather(m: ChainModel, x: str) -> str | None:
    """Places first + i * step, in any direction; some count from the end."""
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    extent, step = shape[axis], m.pick((-3, -2, -1, -1, 0, 1, 2))
    first = m.draw(0, extent - 1)
    room = extent - 1 - first if step > 0 else first
    count = m.draw(1, room // abs(step) + 1) if step else m.draw(1, 3)
    places = first + step * np.arange(count) - (extent if m.draw(0, 1) else 0)
    return m.node("Gather", [x, places], axis=axis)


def gather(m: ChainModel, x: str) -> str | None:
    """Places in any order, sometimes in two dimensions; constants, or an input."""
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    where = m.pick(((shape[axis],), (shape[axis],), (3,), (2, 2)))
    places = m.rng.integers(-shape[axis], shape[axis], where)
    return m.node("Gather", [x, m.given(places) if m.draw(0, 1) else places], axis=axis)


def concat(m: ChainModel, x: str) -> str | None:
    """With itself, what fits of the other values, or a constant."""
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    rest = (*shape[:axis], *shape[axis + 1 :])
    fit: list[str | Array] = [
        v
        for v, s in m.shapes.items()
        if len(s) == len(shape)
        and (*s[:axis], *s[axis + 1 :]) == rest
        and m.dtypes[v] == m.dtypes[x]
    ]
    beside = m.array(*shape[:axis], m.draw(1, 3), *shape[axis + 1 :])
    fit.append(beside.astype(m.dtypes[x]))
    parts = [x, m.pick(fit), m.pick(fit)][: m.draw(2, 3)]
    return m.node("Concat", parts[:: m.pick((1, -1))], axis=axis)


def pad(m: ChainModel, x: str) -> str | None:
    shape, mode = m.shapes[x], m.pick(("constant", "constant", "reflect", "edge", "wrap"))
    most = [min(e - 1, 2) if mode in ("reflect", "wrap") else 2 for e in shape]
    pads = [m.draw(0, p) * m.draw(0, 1) for p in most * 2]
    if mode == "constant":
        pads = [-1 if p and e > 3 and m.draw(0, 1) else p
                for p, e in zip(pads, shape * 2, strict=True)]  # fmt: skip
    value = [np.asarray(m.pick((0.0, 0.0, 1.5)), m.dtypes[x])] if mode == "constant" else []
    return m.node("Pad", [x, np.array(pads), *value], mode=mode)


def split(m: ChainModel, x: str) -> str | None:
    """One of two or three parts; the others may be read later on."""
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    count = min(shape[axis], m.draw(2, 3))
    if count < 2:
        return None
    cuts = np.sort(m.rng.choice(np.arange(1, shape[axis]), count - 1, replace=False))
    sizes = np.diff([0, *cuts, shape[axis]])
    return m.node("Split", [x, sizes], outputs=count, take=m.draw(0, count - 1), axis=axis)


def reshape(m: ChainModel, x: str) -> str | None:
    """Two dimensions joined, one parted, or one of extent 1 added."""
    shape = m.shapes[x]
    at, way = m.draw(0, len(shape) - 1), m.draw(0, 2)
    if way == 0 and at + 1 < len(shape):
        joined = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
        return m.node("Reshape", [x, np.array(joined)])
    if way == 1 and len(shape) < 6:
        part = m.pick([d for d in range(1, shape[at] + 1) if shape[at] % d == 0])
        parted = [*shape[:at], part, shape[at] // part, *shape[at + 1 :]]
        return m.node("Reshape", [x, np.array(parted)])
    return m.node("Reshape", [x, np.array(factors(m, math.prod(shape), m.draw(1, 5)))])


def spread(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    if m.draw(0, 1):
        return m.node("Tile", [x, np.array([m.pick((1, 1, 2)) for _ in shape])])
    return m.node("Expand", [x, np.array([2, *(1 for _ in shape)])])


VIEWS = (
    transpose, transpose, transpose, sliced, sliced, reversal, reversal, affine_gather, gather,
    concat, pad, split, reshape, reshape, spread,
)  # fmt: skip


def chain(m: ChainModel, x: str) -> str:
    """A value behind up to six views."""
    for _ in range(m.draw(0, LONGEST)):
        x = m.pick(VIEWS)(m, x) or x
    return x


def factors(m: ChainModel, size: int, rank: int) -> list[int]:
    """Extents of that many dimensions with that many elements."""
    out = []
    for left in range(rank - 1, 0, -1):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        near = sorted(divisors, key=lambda d: abs(math.log(d) - math.log(size) / (left + 1)))
        out.append(m.pick(near[:4]))
        size //= out[-1]
    return [*out, size]


def of_rank(m: ChainModel, x: str, *ranks: int) -> str:
    """The value in a rank that the kernel takes."""
    shape = m.shapes[x]
    if len(shape) in ranks:
        return x
    made = m.node("Reshape", [x, np.array(factors(m, math.prod(shape), m.pick(ranks)))])
    assert made is not None
    return made


def like(m: ChainModel, shape: Shape) -> str | None:
    """A second operand of that shape, behind a chain of its own."""
    x = chain(m, m.pick(m.real))
    size, wanted = math.prod(m.shapes[x]), math.prod(shape)
    flat = m.node("Reshape", [x, np.array([size])])
    if size < wanted:
        flat = m.node("Tile", [flat, np.array([-(-wanted // size)])])
        size *= -(-wanted // size)
    if size > wanted:
        ends = (np.array([v]) for v in (size - wanted, size))
        flat = m.node("Slice", [flat, *ends])
    if not shape:
        return m.node("Reshape", [flat, np.array([], np.int64)])
    turned = m.rng.permutation(len(shape)).tolist()
    whole = m.node("Reshape", [flat, np.array([shape[d] for d in turned], np.int64)])
    return m.node("Transpose", [whole], perm=[turned.index(d) for d in range(len(shape))])

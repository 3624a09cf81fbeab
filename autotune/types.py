"""Small value types shared by every room: tensor types, memory layouts, attributes, tasks.

A `Task` is one fused subgraph in canonical form: what a board builds and times, and what the
tuning log is keyed by. It is pure data (JSON both ways).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from autotune.op_names import logged_op, todays_op
from autotune.sizes import is_size, symbols_of

Array = npt.NDArray[Any]
Attr = int | float | str | bool | tuple[Any, ...]
Attrs = Mapping[str, Attr]
Role = Literal["input", "constant", "local", "output"]
ROLES = get_args(Role)

DTYPES = (
    "float32", "float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
    "bool",
)  # fmt: skip
SHORT_FLOATS = ("bfloat16", "float16")
"""Types that tensors between kernels, and buffers inside them, may have; nothing is computed in
them. Arrays hold the float32 values that they stand for; see `program.packing.stored`."""
NARROW = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn", "int4", "uint4", "int2", "uint2",
)  # fmt: skip
"""Types that only inputs and outputs of models have, outside: what numpy, by the package
ml_dtypes, calls them. Inside, their values are float32 and bytes."""
ITEM_BYTES = (
    {name: np.dtype(name).itemsize for name in DTYPES}
    | dict.fromkeys(SHORT_FLOATS, 2)
    | dict.fromkeys(NARROW, 1)
)
"""Bytes of an element."""


def is_real(dtype: str) -> bool:
    """Whether elements of the type are floating-point numbers, however short."""
    return dtype.startswith("float") or dtype in SHORT_FLOATS


def is_unsigned(dtype: str) -> bool:
    """Whether elements of the type are integers without a sign; truth values are not."""
    return dtype.startswith("uint")


def held_as(dtype: str) -> str:
    """numpy's type for arrays of such values: numpy has no bfloat16."""
    return "float32" if dtype == "bfloat16" else dtype


def lowest(dtype: str) -> float:
    """What `max` starts from: an int for integer dtypes."""
    return -float("inf") if dtype in ("float32", "float64") else int(np.iinfo(dtype).min)


def highest(dtype: str) -> float:
    """What `min` starts from: an int for integer dtypes."""
    return float("inf") if dtype in ("float32", "float64") else int(np.iinfo(dtype).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """Element type and static shape of a tensor. A scalar has shape ()."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"dtype must be one of {', '.join(ITEM_BYTES)}, got {self.dtype!r}")
        for extent in self.shape:  # no generator: types are made for each new size of a model
            if not (isinstance(extent, int) or is_size(extent)) or extent < 0:
                raise ValueError(f"shape must be non-negative integers, got {self.shape}")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    out, step = [], 1
    for extent in reversed(shape):
        out.append(step)
        step *= extent
    return tuple(reversed(out))


def is_turned(array: Array) -> bool:
    """Whether the elements lie densely in memory, in another order of the dimensions: copying them
    would only take memory until they are packed."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    return array.size > 1 and array.transpose(order).flags.c_contiguous


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a tensor: strides in elements, and a halo of readable zeros around it.

    `halo[d] = (before, after)`: indices -before .. extent+after-1 of dimension d may be read, and
    are zero outside 0 .. extent-1. A producer writes the interior only; the storage's halo is
    zeroed by whoever owns the storage. The pointer given to a kernel is that of element 0,0,...
    """

    strides: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.strides) != len(self.halo):
            raise ValueError("strides and halo must have one entry per dimension")

    @staticmethod
    def dense(shape: tuple[int, ...]) -> Layout:
        return Layout(strides=dense_strides(shape), halo=((0, 0),) * len(shape))

    @staticmethod
    def haloed(shape: tuple[int, ...], halo: tuple[tuple[int, int], ...]) -> Layout:
        padded = tuple(e + b + a for e, (b, a) in zip(shape, halo, strict=True))
        return Layout(strides=dense_strides(padded), halo=halo)

    def span(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(elements before the pointer, elements from the pointer on) that a kernel may touch."""
        if math.prod(shape) == 0:
            return 0, 0
        dims = list(zip(shape, self.strides, self.halo, strict=True))
        before = sum(s * b for _, s, (b, _) in dims)
        after = sum(s * (e - 1 + a) for e, s, (_, a) in dims) + 1
        return before, after


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValue:
    """A tensor of a task. role: input (activation), constant (weights), local or output.

    `layout` matters for inputs and outputs. Constants and locals are dense."""

    name: str
    type: TensorType
    role: Role
    layout: Layout

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role of {self.name} is {self.role!r}")


EXACT = "exact"
"""Attribute of convolutions and matrix products: 1 where no algorithm may make small values of
their result out of large ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """One operator of a task; attrs sorted by name, values JSON-able."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A fused subgraph in canonical form: nodes in topological order over values named by rule.

    Names: inputs i0.., constants c0.., locals t0.., outputs o0.. in order of first use, so that
    two models that differ in names give equal tasks. Exactly one output.
    """

    nodes: tuple[TaskNode, ...]
    values: tuple[TaskValue, ...]
    anchor: int
    """Index of the node that decides the rule and the task's op name (the heaviest one)."""

    @property
    def op(self) -> str:
        return self.nodes[self.anchor].op

    @property
    def key(self) -> str:
        """Canonical key: the op as logs name it, 16 hex digits of the SHA-256 of the JSON text."""
        return _task_key(self)

    def value(self, name: str) -> TaskValue:
        return next(v for v in self.values if v.name == name)

    def by_role(self, role: Role) -> tuple[TaskValue, ...]:
        return tuple(v for v in self.values if v.role == role)

    @property
    def params(self) -> tuple[TaskValue, ...]:
        """The kernel's arguments: inputs, constants, outputs, each in order of `values`."""
        return self.by_role("input") + self.by_role("constant") + self.by_role("output")

    def to_json(self) -> dict[str, Any]:
        return {
            "anchor": self.anchor,
            "nodes": [
                {
                    "op": logged_op(n.op),
                    "inputs": list(n.inputs),
                    "outputs": list(n.outputs),
                    "attrs": {k: _plain(v) for k, v in n.attrs},
                }
                for n in self.nodes
            ],
            "values": [
                {
                    "name": v.name,
                    "dtype": v.type.dtype,
                    "shape": list(v.type.shape),
                    "role": v.role,
                    "strides": list(v.layout.strides),
                    "halo": [list(h) for h in v.layout.halo],
                }
                for v in self.values
            ],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Task:
        nodes = tuple(
            TaskNode(
                op=todays_op(n["op"]),
                inputs=tuple(n["inputs"]),
                outputs=tuple(n["outputs"]),
                attrs=freeze_attrs(n["attrs"]),
            )
            for n in data["nodes"]
        )
        values = tuple(
            TaskValue(
                name=v["name"],
                type=TensorType(dtype=v["dtype"], shape=tuple(v["shape"])),
                role=v["role"],
                layout=Layout(
                    strides=tuple(v["strides"]), halo=tuple((int(b), int(a)) for b, a in v["halo"])
                ),
            )
            for v in data["values"]
        )
        return Task(nodes=nodes, values=values, anchor=int(data["anchor"]))


def _plain(value: Attr) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def tuples(value: Any) -> Any:
    """A value of JSON with its lists as tuples."""
    return tuple(tuples(v) for v in value) if isinstance(value, list | tuple) else value


def freeze_attrs(attrs: Mapping[str, Any]) -> tuple[tuple[str, Attr], ...]:
    """Attributes as a sorted tuple, lists turned into tuples."""
    return tuple((k, tuples(attrs[k])) for k in sorted(attrs))


@functools.lru_cache(maxsize=65536)
def _task_key(task: Task) -> str:
    text = json.dumps(task.to_json(), sort_keys=True, separators=(",", ":"), default=_size_text)
    return f"{logged_op(task.op)}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _size_text(size: object) -> list[str]:
    """A size that only a run knows, in the text of a key: the expression, its symbols' ranges."""
    return [repr(size), *sorted(f"{s.name}={s.low}..{s.high}" for s in symbols_of(size))]

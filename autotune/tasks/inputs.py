"""Data to check and time candidates with. In: a task and a seed. Out: arrays, output points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from autotune.ops import OPS
from autotune.program import ir
from autotune.program.functions import apply_function
from autotune.tasks.build import node_computes
from autotune.types import SHORT_FLOATS, Array, Task, TaskValue, is_unsigned

# Ops that are undefined or ill-conditioned for some inputs: which input must be positive.
_POSITIVE_INPUTS = {"sqrt": 0, "rsqrt": 0, "log": 0, "pow": 0, "reciprocal": 0, "div": 1, "mod": 1}
_OF_SHARES = ("asin", "acos", "atanh")
"""Ops that are defined from -1 to 1."""
_DRAWN = 1_000_003
"""Values drawn for an operand, at most; larger ones repeat them, at a prime distance."""
_KEEP_SIGN = ("add", "mul", "div", "max", "min", "sqrt", "reduce_sum", "reduce_mean", "expand")


def random_inputs(task: Task, seed: int) -> dict[str, Array]:
    """Arrays for every input and constant: floats of unit spread, contraction weights scaled by
    1/sqrt(fan-in), valid gather indices, and positive numbers under roots and in divisors; bytes
    that are multiplied, of the whole range, and factors that bring such sums back to unit spread
    (or to that of bytes)."""
    rng = np.random.default_rng(seed)
    computes = {n.outputs[0]: node_computes(task, n) for n in task.nodes}
    scales = _weight_scales(task, computes) | _step_scales(task, computes)
    bytes_ = _contracted_bytes(task)
    limits = _index_limits(task, computes)
    positive = _positive_values(task)
    ranges = _fixed_point_ranges(task, computes)
    shares = {i for n in task.nodes if n.op in _OF_SHARES for i in n.inputs}
    above_one = {i for n in task.nodes if n.op == "acosh" for i in n.inputs}
    out: dict[str, Array] = {}
    for value in task.by_role("input") + task.by_role("constant"):
        # Large weights repeat numbers at a prime distance: drawing each would take longer than
        # measuring with them.
        count = min(value.type.size, _DRAWN)
        if value.name in ranges:
            drawn = rng.integers(*ranges[value.name], count).astype(value.type.dtype)
        elif value.name in bytes_:
            drawn = _whole_range(value.type.dtype, count, rng)
        else:
            drawn = _random(value, count, rng, limits.get(value.name))
        if value.name in positive:
            drawn = _positive(drawn)
        if value.name in shares:
            drawn = drawn / (1 + np.abs(drawn))
        if value.name in above_one:
            drawn = 1 + np.abs(drawn)
        if value.name in scales:
            drawn = drawn * drawn.dtype.type(scales[value.name])
        out[value.name] = np.resize(drawn, value.type.shape)
    return out


def sample_points(task: Task, seed: int, count: int) -> Array:
    """At most `count` points of the output [P, rank]: corners, then borders, then anywhere."""
    shape = task.by_role("output")[0].type.shape
    if math.prod(shape) <= count:
        every = list(itertools.product(*(range(e) for e in shape)))
        return np.asarray(every, np.int64).reshape(len(every), len(shape))
    rng = np.random.default_rng(seed)
    ends = [sorted({0, e - 1}) for e in shape]
    corners = list(itertools.islice(itertools.product(*ends), max(1, count // 2)))
    rest = rng.integers(0, shape, size=(count - len(corners), len(shape)))
    border = len(rest) // 3
    dimension = rng.integers(0, len(shape), size=border)
    last = np.asarray(shape)[dimension] - 1
    rest[np.arange(border), dimension] = np.where(rng.random(border) < 0.5, 0, last)
    return np.concatenate([np.asarray(corners, np.int64), rest.astype(np.int64)])


def _random(value: TaskValue, count: int, rng: np.random.Generator, limit: int | None) -> Array:
    dtype = value.type.dtype
    if dtype == "bool":
        return rng.random(count) < 0.5
    if dtype in SHORT_FLOATS:
        drawn = rng.standard_normal(count, np.float32)
        return apply_function(f"to_{dtype}", [drawn]).astype(np.float32)
    if dtype.startswith("float"):
        return rng.standard_normal(count, np.float32).astype(dtype, copy=False)
    if limit is not None:
        return np.asarray(rng.integers(-limit, limit, count)).astype(dtype)
    low = 0 if is_unsigned(dtype) else -8
    return np.asarray(rng.integers(low, 9, count)).astype(dtype)


def _whole_range(dtype: str, count: int, rng: np.random.Generator) -> Array:
    """Bytes; int8 without its lowest value, as weights are."""
    low, end = (0, 256) if dtype == "uint8" else (-127, 128)
    return rng.integers(low, end, count).astype(dtype)


def _positive(array: Array) -> Array:
    if array.dtype.kind == "f":
        return np.asarray(np.abs(array) + array.dtype.type(0.25))
    return array if array.dtype.kind == "b" else np.maximum(np.abs(array), 1)


def _weight_scales(task: Task, computes: dict[str, tuple[ir.Compute, ...]]) -> dict[str, float]:
    """1/sqrt(fan-in) by name of a constant of floats that is an operand of a contraction."""
    constants = {v.name for v in task.by_role("constant") if v.type.dtype.startswith("float")}
    out: dict[str, float] = {}
    for node in task.nodes:
        if OPS.get(node.op).kind == "contraction":
            fan_in = math.prod(a.extent for a in computes[node.outputs[0]][-1].reduce)
            out |= {i: 1 / math.sqrt(max(fan_in, 1)) for i in node.inputs if i in constants}
    return out


def _contracted_bytes(task: Task) -> set[str]:
    """Names of bytes that are factors of a contraction, or widened to floats."""
    kinds = {v.name: v.type.dtype for v in task.params}
    return {
        name
        for node in task.nodes
        if OPS.get(node.op).kind == "contraction" or node.op == "to_float32"
        for name in node.inputs
        if kinds.get(name) in ("uint8", "int8")
    }


def _step_scales(task: Task, computes: dict[str, tuple[ir.Compute, ...]]) -> dict[str, float]:
    """By name of a constant that multiplies bytes, or sums of their products, widened to floats:
    what brings them to unit spread, or to a part of the range of the bytes that are stored."""
    spread: dict[str, float] = {}
    stored = task.by_role("output")[0].type.dtype in ("uint8", "int8")
    wanted = 50.0 if stored else 1.0
    constants = {v.name for v in task.by_role("constant") if v.type.dtype == "float32"}
    types = {v.name: v.type.dtype for v in task.values}
    out: dict[str, float] = {}
    for node in task.nodes:
        result, first = node.outputs[0], node.inputs[0] if node.inputs else ""
        if OPS.get(node.op).kind == "contraction" and types[result] == "int32":
            fan_in = math.prod(a.extent for a in computes[result][-1].reduce)
            spread[result] = 1e4 * math.sqrt(max(fan_in, 1))
        elif node.op == "add" and first in spread and types[result] == "int32":
            spread[result] = spread[first]
        elif node.op == "to_float32" and (first in spread or types[first] in ("uint8", "int8")):
            spread[result] = spread.get(first, 100.0)
        elif node.op == "mul" and set(node.inputs) & spread.keys():
            found = max(spread[i] for i in node.inputs if i in spread)
            out |= {i: wanted / found for i in node.inputs if i in constants}
    return out


def _fixed_point_ranges(
    task: Task, computes: dict[str, tuple[ir.Compute, ...]]
) -> dict[str, tuple[int, int]]:
    """By name of an operand of `requantize`: what to draw it from, so that the last of them gives
    numbers of the size of bytes, and others keep what they get."""
    params = {v.name for v in task.params}
    bits = {v.name: 7.0 if v.type.dtype in ("uint8", "int8") else 20.0 for v in task.params}
    last = max((n for n, node in enumerate(task.nodes) if node.op == "requantize"), default=-1)
    out: dict[str, tuple[int, int]] = {}
    for number, node in enumerate(task.nodes[: last + 1]):
        first, result = node.inputs[0] if node.inputs else "", node.outputs[0]
        bits[result] = max((bits.get(i, 0.0) for i in node.inputs), default=0.0)
        if OPS.get(node.op).kind == "contraction":
            fan_in = math.prod(a.extent for a in computes[result][-1].reduce)
            bits[result] = 13 + math.log2(max(fan_in, 1)) / 2
        elif node.op == "scalar":
            size = abs(float(dict(node.attrs)["value"]))  # type: ignore[arg-type]
            bits[result] = math.log2(max(size, 1))
        elif node.op == "mul":
            bits[result] = sum(bits.get(i, 0.0) for i in node.inputs)
        elif node.op == "requantize":
            least = int(dict(node.attrs).get("least_shift", 1))  # type: ignore[arg-type]
            shift = 31 + (round(bits[first]) - 6 if number == last else 0)
            wanted = {
                first: (-(1 << 20), 1 << 20),
                node.inputs[1]: (1 << 30, (1 << 31) - 1),
                node.inputs[2]: (max(least, shift - 1), max(least, shift) + 2),
            }
            out |= {name: r for name, r in wanted.items() if name in params}
            bits[result] = bits[first] + 31 - shift
    return out


def _index_limits(task: Task, computes: dict[str, tuple[ir.Compute, ...]]) -> dict[str, int]:
    """Smallest extent that an integer value is used to index, by name.

    Indices that are computed inside the task limit every integer input."""
    params = {v.name for v in task.params}
    out: dict[str, int] = {}
    for compute in itertools.chain.from_iterable(computes.values()):
        for atom in _places(compute):
            names = [atom.buffer] if atom.buffer in params else params
            out |= {n: min(atom.extent, out.get(n, atom.extent)) for n in names}
    return out


def _places(compute: ir.Compute) -> Iterator[ir.LoadIndex]:
    yield from _gathers(compute.body)
    if compute.updates is not None:
        yield from _gathers(compute.updates.value)
        yield from _gathers(ir.Load(compute.output, compute.updates.place))


def _gathers(value: ir.Value) -> Iterator[ir.LoadIndex]:
    indices: tuple[ir.Index, ...] = ()
    if isinstance(value, ir.Load):
        indices = value.indices
    elif isinstance(value, ir.IndexValue):
        indices = (value.index,)
    elif isinstance(value, ir.Apply):
        for arg in value.args:
            yield from _gathers(arg)
    elif isinstance(value, ir.Select):
        yield from _gathers(value.then)
        yield from _gathers(value.other)
        indices = tuple(b.index for b in value.bounds)
    for i in indices:
        yield from (atom for atom, _ in i.terms if isinstance(atom, ir.LoadIndex))


def _positive_values(task: Task) -> set[str]:
    """Names of values that must be positive, followed back through ops that keep the sign."""
    out: set[str] = set()
    for node in reversed(task.nodes):
        keeps = node.op in _KEEP_SIGN or OPS.get(node.op).kind == "view"
        if keeps and node.outputs[0] in out:
            out |= set(node.inputs)
        if node.op in _POSITIVE_INPUTS:
            out.add(node.inputs[_POSITIVE_INPUTS[node.op]])
    return out

"""Batch norm and other constant factors go into weights; constant addends merge into one bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldAffine:
    """(conv(x, W) + b) * s + t -> conv(x, W * s) + (b * s + t).

    s is a constant per output channel, or a scalar (which also passes through reshapes and
    transposes); W is constant, of floats, and what is in between has no other reader. Arithmetic
    on constants is done in double precision. Elsewhere x * s * t -> x * (s * t). Of integers
    x + s + t -> x + (s + t) alone."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _folded)


def _folded(new: Rewriter, node: Node) -> str | None:
    if node.op not in ("mul", "div", "add", "sub"):
        return None
    floats = new.graph.types[node.output].dtype.startswith("float")
    if not floats and node.op != "add":
        return None
    value, operand = new.inputs(node)
    if node.op in ("mul", "add") and new.known(operand) is None:
        value, operand = operand, value
    known = new.known(operand)
    shape = new.graph.types[node.output].shape
    if known is None or new.known(value) is not None or new.shape(value) != shape:
        return None
    constant = known.astype(np.float64 if floats else np.int64)
    if node.op in ("mul", "div"):
        if node.op == "div" and not constant.all():
            return None
        return _scaled(new, value, 1.0 / constant if node.op == "div" else constant, node)
    if node.op == "sub":
        shift = new.constant((-constant).astype(known.dtype), operand)
        return _shifted(new, value, -constant, node) or new.emit("add", [value, shift], node)
    return _shifted(new, value, constant, node)


def _scaled(new: Rewriter, value: str, factor: Array, like: Node) -> str | None:
    """A value equal to value * factor that needs no multiplication at run time."""
    source = new.producer(value)
    if source is None or not new.used_once(value):
        return None
    if source.op in ("conv2d", "matmul"):
        return _scaled_contraction(new, source, factor)
    if source.op in ("reshape", "transpose") and factor.size == 1:
        inner = _scaled(new, source.inputs[0], factor.reshape(()), like)
        return inner and new.emit(source.op, [inner], source, **source.attributes)
    operand = _constant_operand(new, source, factor)
    if operand is None:
        return None
    inner_value, constant = operand
    dtype = new.types[value].dtype
    product = new.constant((constant.astype(np.float64) * factor).astype(dtype), like.output)
    if source.op == "mul":
        return new.emit("mul", [inner_value, product], source)
    inner = _scaled(new, inner_value, factor, like)
    return inner and new.emit("add", [inner, product], source)


def _scaled_contraction(new: Rewriter, source: Node, factor: Array) -> str | None:
    data, weights = source.inputs
    channels = new.shape(source.output)[-1]
    if weights not in new.constants or source.attributes.get("transpose_b"):
        return None
    if factor.size not in (1, channels) or (factor.size > 1 and factor.shape[-1] != channels):
        return None
    array = new.constants[weights]
    if array.dtype.kind != "f":  # bytes have no room for the factor
        return None
    scaled = (array * factor.reshape(-1)).astype(array.dtype)
    return new.emit(source.op, [data, new.constant(scaled, weights)], source, **source.attributes)


def _shifted(new: Rewriter, value: str, shift: Array, like: Node) -> str | None:
    """value + shift where value is itself x + constant: one addition."""
    source = new.producer(value, "add")
    operand = _constant_operand(new, source, shift) if source and new.used_once(value) else None
    if source is None or operand is None:
        return None
    inner, constant = operand
    total = (constant.astype(shift.dtype) + shift).astype(new.types[value].dtype)
    return new.emit("add", [inner, new.constant(total, like.output)], source)


def _constant_operand(new: Rewriter, source: Node, beside: Array) -> tuple[str, Array] | None:
    """(the varying operand, the array of the constant one) of x + c or x * c as large as x, where
    c and another constant combined are no outer product, larger than both."""
    shape = new.shape(source.output)
    if source.op not in ("add", "mul"):
        return None
    for varying, fixed in (source.inputs, source.inputs[::-1]):
        known = new.known(fixed)
        if known is None or new.known(varying) is not None:
            continue
        compact = np.broadcast(known, beside).size == max(known.size, beside.size)
        return (varying, known) if compact and new.shape(varying) == shape else None
    return None

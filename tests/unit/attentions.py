"""Small attention tasks, as the partition of a model gives them."""

from __future__ import annotations

import dataclasses

from autotune.types import Task
from tests.unit.codegen.kernels import node, task, value

Shape = tuple[int, ...]


def attention(
    batch: Shape,
    *sizes: int,
    mask: Shape | None = None,
    where: Shape | None = None,
    causal: int | None = None,
    guarded: bool = False,
    residual: bool = False,
    transposed: bool = True,
) -> Task:
    """softmax(q k / 2) v; `sizes`: rows, keys, depth, width; k is [keys, depth] if `transposed`.

    An additive mask; a boolean one, true where scores count; only keys up to row + `causal`; zeros
    for rows without any score if `guarded`; a residual added to the result."""
    rows, keys, depth, width = sizes
    scores, out = (*batch, rows, keys), (*batch, rows, width)
    nodes = [
        node("matmul", "i0 i1", "t0", transpose_b=transposed),
        node("scalar", "", "t1", dtype="float32", value=0.5),
        node("mul", "t0 t1", "t2"),
    ]
    values = [
        value("i0", (*batch, rows, depth)),
        value("i1", (*batch, keys, depth) if transposed else (*batch, depth, keys)),
        value("t0", scores),
        value("t1", ()),
        value("t2", scores),
    ]
    last = "t2"
    if mask:
        nodes.append(node("add", "t2 i2", "t3"))
        values += [value("i2", mask), value("t3", scores)]
        last = "t3"
    if where:
        nodes.append(node("scalar", "", "t7", dtype="float32", value=float("-inf")))
        nodes.append(node("where", f"c0 {last} t7", "t4"))
        values += [value("c0", where, "bool"), value("t7", ()), value("t4", scores)]
        last = "t4"
    if causal is not None:
        nodes.append(node("causal", last, "t11", offset=causal))
        values.append(value("t11", scores))
        last = "t11"
    nodes.append(node("softmax", last, "t5", axis=len(scores) - 1))
    values += [value("t5", scores), value("i3", (*batch, keys, width))]
    last = "t5"
    if guarded:
        nodes.append(node("ne", "t5 t5", "t8"))
        nodes.append(node("scalar", "", "t9", dtype="float32", value=0.0))
        nodes.append(node("where", "t8 t9 t5", "t10"))
        values += [value("t8", scores, "bool"), value("t9", ()), value("t10", scores)]
        last = "t10"
    nodes.append(node("matmul", f"{last} i3", "t6" if residual else "o0", transpose_b=False))
    anchor = len(nodes) - 1
    if residual:
        nodes.append(node("add", "t6 i4", "o0"))
        values += [value("t6", out), value("i4", out)]
    return dataclasses.replace(task(nodes, *values, value("o0", out)), anchor=anchor)

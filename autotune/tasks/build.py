"""A task as naive loops. In: a Task. Out: the Program that every schedule starts from.

One top-level loop nest per Compute of the task's nodes, in order; everything that is no param is a
dense scratch buffer allocated around the whole body. Loop variables are `<tensor>_<axis>`, dots
replaced by underscores. A tensor whose zero padding no halo provides is copied into a scratch
buffer `<tensor>.pad` that has one. Scalars become literals, or sizes of the call.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ops import OPS
from autotune.program import ir
from autotune.program.rewrite import in_loops
from autotune.types import SHORT_FLOATS, Layout, Task, TaskNode, TaskValue, is_real

Pads = tuple[tuple[int, int], ...]
Body = tuple[ir.Stmt, ...]
Literal = ir.Const | ir.IndexValue
"""A number, or a size as one."""


def build_program(task: Task) -> ir.Program:
    """The task's tensor expressions as loops, all serial."""
    computes, scalars = task_computes(task)
    params = tuple(_param(v) for v in task.params)
    local = {c.output: ir.Buffer.dense(c.output, c.dtype, c.shape, "scratch") for c in computes}
    for param in params:
        local.pop(param.name, None)
    buffers = {b.name: b for b in (*params, *local.values())}
    padded = _pad_buffers(computes, buffers)
    produced = {c.output for c in computes}
    body: Body = ()
    for tensor, buffer in padded.items():
        if tensor not in produced:
            body += _pad_nest(buffers[tensor], buffer)
    for compute in computes:
        body += compute_nest(compute, {t: b.name for t, b in padded.items()}, scalars)
        if compute.output in padded:
            body += _pad_nest(buffers[compute.output], padded[compute.output])
    for buffer in reversed((*local.values(), *padded.values())):
        body = (ir.Alloc(buffer, body),)
    return ir.Program(task.op, params, body)


def task_computes(task: Task) -> tuple[list[ir.Compute], dict[str, Literal]]:
    """Tensor expressions of a task in order, and its scalars (which have none)."""
    computes: list[ir.Compute] = []
    scalars: dict[str, Literal] = {}
    for node in task.nodes:
        found = node_computes(task, node)
        scalar = node.op == "scalar" and task.value(node.outputs[0]).role != "output"
        if scalar and isinstance(found[0].body, Literal):
            scalars[node.outputs[0]] = found[0].body
        else:
            computes += found
    return computes, scalars


def node_computes(task: Task, node: TaskNode) -> tuple[ir.Compute, ...]:
    """Tensor expressions of one node."""
    inputs = [(name, task.value(name).type) for name in node.inputs]
    output = (node.outputs[0], task.value(node.outputs[0]).type)
    return OPS.get(node.op).expression(inputs, output, dict(node.attrs))


def loop_var(tensor: str, axis: str) -> str:
    """Name of the loop of an axis of the Compute that makes a tensor."""
    return f"{tensor.replace('.', '_')}_{axis}"


def _param(value: TaskValue) -> ir.Buffer:
    return ir.Buffer(
        value.name,
        value.type.dtype,
        value.type.shape,
        "param",
        value.layout.strides,
        value.layout.halo,
        constant=value.role == "constant",
        written=value.role == "output",
    )


def _pad_buffers(
    computes: list[ir.Compute], buffers: Mapping[str, ir.Buffer]
) -> dict[str, ir.Buffer]:
    """Padded copies by tensor name, for tensors whose own halo does not cover what is read."""
    wanted: dict[str, Pads] = {}
    for compute in computes:
        for tensor, pads in compute.pads:
            before = wanted.get(tensor, pads)
            wanted[tensor] = tuple(
                (max(a, c), max(b, d)) for (a, b), (c, d) in zip(before, pads, strict=True)
            )
    out: dict[str, ir.Buffer] = {}
    for tensor, pads in wanted.items():
        own = buffers[tensor]
        covered = all(b <= x and a <= y for (b, a), (x, y) in zip(pads, own.halo, strict=True))
        if not covered:
            layout = Layout.haloed(own.shape, pads)
            out[tensor] = ir.Buffer(
                f"{tensor}.pad", own.dtype, own.shape, "scratch", layout.strides, layout.halo
            )
    return out


def _pad_nest(source: ir.Buffer, target: ir.Buffer) -> Body:
    """Copy a tensor and write zeros around it."""
    loops, point, bounds = [], [], []
    for d, (extent, (before, after)) in enumerate(zip(source.shape, target.halo, strict=True)):
        var = loop_var(target.name, f"d{d}")
        loops.append((var, extent + before + after))
        point.append(ir.index(var) - before)
        if before or after:
            bounds.append(ir.Bound(point[-1], 0, extent))
    short = source.dtype in SHORT_FLOATS  # which have no literals
    zero = ir.Const(0.0) if short else ir.Const(0.0 if is_real(source.dtype) else 0, source.dtype)
    value: ir.Value = ir.Load(source.name, tuple(point))
    copied: ir.Value = ir.Select(
        tuple(bounds), ir.fn("to_float32", value) if short else value, zero
    )
    copied = ir.fn(f"to_{source.dtype}", copied) if short else copied
    return in_loops(loops, (ir.Store(target.name, tuple(point), copied),))


def compute_nest(
    compute: ir.Compute, padded: Mapping[str, str], scalars: Mapping[str, Literal]
) -> Body:
    """The loop nest of one Compute, over padded copies by tensor name and literals."""
    env = {
        a.name: ir.index(loop_var(compute.output, a.name))
        for a in (*compute.axes, *compute.reduce)
    }
    own_pads = {tensor for tensor, _ in compute.pads}
    renamed = {t: n for t, n in padded.items() if t in own_pads}
    value = _bind(compute.body, env, renamed, scalars)
    point = tuple(env[a.name] for a in compute.axes)
    body: Body = (ir.Store(compute.output, point, value, compute.combine),)
    if compute.combine:
        inner = [(loop_var(compute.output, a.name), a.extent) for a in compute.reduce]
        start = compute.init if compute.dtype.startswith("float") else int(compute.init)
        init = ir.Store(compute.output, point, ir.Const(start, compute.dtype))
        body = (init, *in_loops(inner, body))
    loops = [(loop_var(compute.output, a.name), a.extent) for a in compute.axes]
    return in_loops(loops, body) + _updates_nest(compute, scalars)


def _updates_nest(compute: ir.Compute, scalars: Mapping[str, Literal]) -> Body:
    """The loop nest of what joins a tensor afterwards."""
    updates = compute.updates
    if updates is None:
        return ()
    env = {a.name: ir.index(loop_var(compute.output, a.name)) for a in updates.axes}
    place = tuple(_bind_index(i, env, scalars) for i in updates.place)
    value = _bind(updates.value, env, {}, scalars)
    loops = [(loop_var(compute.output, a.name), a.extent) for a in updates.axes]
    return in_loops(loops, (ir.Store(compute.output, place, value, updates.combine),))


def _bind(
    value: ir.Value,
    env: Mapping[str, ir.Index],
    renamed: Mapping[str, str],
    scalars: Mapping[str, Literal],
) -> ir.Value:
    """A Compute's body with axes as loop variables, padded tensors and scalars resolved."""
    if isinstance(value, ir.Load):
        if value.buffer in scalars:
            return scalars[value.buffer]
        indices = tuple(_bind_index(i, env, scalars) for i in value.indices)
        return ir.Load(renamed.get(value.buffer, value.buffer), indices)
    if isinstance(value, ir.Apply):
        return ir.Apply(value.fn, tuple(_bind(a, env, renamed, scalars) for a in value.args))
    if isinstance(value, ir.IndexValue):
        return ir.IndexValue(_bind_index(value.index, env, scalars), value.dtype)
    if isinstance(value, ir.Select):
        bounds = tuple(
            ir.Bound(_bind_index(b.index, env, scalars), b.lo, b.hi) for b in value.bounds
        )
        then = _bind(value.then, env, renamed, scalars)
        return ir.Select(bounds, then, _bind(value.other, env, renamed, scalars))
    return value


def _bind_index(
    value: ir.Index, env: Mapping[str, ir.Index], scalars: Mapping[str, Literal]
) -> ir.Index:
    value = value.substitute(env)
    if not scalars:
        return value
    out = ir.Index((), value.const)
    for atom, c in value.terms:
        out = out + _bind_atom(atom, scalars) * c
    return out


def _bind_atom(atom: ir.Atom, scalars: Mapping[str, Literal]) -> ir.Index:
    if isinstance(atom, str):
        return ir.index(atom)
    if isinstance(atom, ir.LoadIndex):
        if atom.buffer not in scalars:
            return ir.Index(((atom, 1),))
        known = _amount(scalars[atom.buffer])
        from_start = known + atom.extent if known < 0 else known
        return ir.clamp(ir.index(from_start), 0, atom.extent - 1)
    inner = _bind_index(atom.index, {}, scalars)
    if isinstance(atom, ir.FloorDiv):
        return inner // atom.divisor
    return inner % atom.divisor if isinstance(atom, ir.Mod) else ir.clamp(inner, atom.lo, atom.hi)


def _amount(scalar: Literal) -> int:
    """A scalar as a whole number, or as the size that it is."""
    return int(scalar.value) if isinstance(scalar, ir.Const) else scalar.index.const

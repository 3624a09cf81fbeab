"""A task that tells whether denormal numbers are flushed where it is measured. Out: a request."""

from __future__ import annotations

from autotune.measure.types import MeasureRequest, Timing
from autotune.target import Target
from autotune.types import Task, TaskNode, freeze_attrs
from tests.unit.measure.tasks import value

SHAPE = (4, 96)
FACTORS = (1e-25, 1e-15, 1e20, 1e20)
"""Of ordinary numbers the second makes denormal ones; the others bring them back."""


def request(target: Target) -> MeasureRequest:
    """Its numbers multiplied by all factors: right where denormal ones are kept, else zeros."""
    nodes, values, product = [], [value("i0", "input", SHAPE)], "i0"
    for number, factor in enumerate(FACTORS, 1):
        scalar, out, role = f"s{number}", f"t{number}", "local"
        if number == len(FACTORS):
            out, role = "o0", "output"
        attrs = freeze_attrs({"value": factor, "dtype": "float32"})
        nodes.append(TaskNode(op="scalar", inputs=(), outputs=(scalar,), attrs=attrs))
        nodes.append(TaskNode(op="mul", inputs=(product, scalar), outputs=(out,)))
        values += [value(scalar, "local", ()), value(out, role, SHAPE)]
        product = out
    task = Task(nodes=tuple(nodes), values=tuple(values), anchor=len(nodes) - 1)
    quick = Timing(budget_s=0.01, min_repeat_s=0.0002)
    return MeasureRequest(task=task, schedule=(), target=target, timing=quick, seed=3)

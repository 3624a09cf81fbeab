"""Sizes of a scatter, for its rules. In: a task. Out: numbers."""

from __future__ import annotations

import math

from autotune.types import Task


class Sizes:
    """Sizes of a scatter: images before the axis, updates of one, elements of one, places."""

    def __init__(self, task: Task) -> None:
        node = task.nodes[task.anchor]
        places, updates = (task.value(i).type.shape for i in node.inputs[1:])
        out = task.value(node.outputs[0]).type.shape
        axis = dict(node.attrs).get("axis", 0)
        assert isinstance(axis, int)
        axis %= len(out)
        self.outer = math.prod(out[:axis])
        self.updates, self.places = updates[axis], out[axis]
        self.width = math.prod(out[axis + 1 :])
        self.last = out[-1] if axis < len(out) - 1 and places[-1] == 1 else 1
        """Elements side by side that share a place."""
        self.size = math.prod(out)

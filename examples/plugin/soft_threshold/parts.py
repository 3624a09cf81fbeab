"""What the plugin adds by being imported: an op, a rule, a target, a command."""

from __future__ import annotations

import numpy as np

from autotune.cli import COMMANDS, Command
from autotune.ops import OPS
from autotune.ops.elementwise import Activation, number
from autotune.program.ir import Const, Value, fn
from autotune.target import Target, add_target
from autotune.types import Array, Attrs, Task
from search_spaces.base import RULES
from search_spaces.cpu.nests.rule import NestsRule

NAME = "soft_threshold"
TARGET = """
name = "workbench"
kind = "cpu"
triple = "x86_64-unknown-linux-gnu"
cpu = "haswell"
features = "+avx2,+fma"
vector_bytes = 32
vector_registers = 16
cores = 4
l1_bytes = 32768
l2_bytes = 262144
l3_bytes = 6291456
"""


def formula(x: Value, attrs: Attrs, dtype: str) -> Value:
    """x moved toward 0 by `limit`, and 0 where it is nearer: x - min(max(x, -limit), limit)."""
    limit = number(attrs, "limit")
    low, high = Const(-limit, dtype), Const(limit, dtype)
    return fn("sub", x, fn("min", fn("max", x, low), high))


def reference(x: Array, attrs: Attrs) -> Array:
    """The same by numpy."""
    limit = number(attrs, "limit")
    return x - np.clip(x, x.dtype.type(-limit), x.dtype.type(limit))


class Thresholds(NestsRule):
    """Thresholds on CPUs, scheduled as other elementwise chains, under a name of their own."""

    name = "thresholds"
    priority = 1

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and task.op == NAME


OPS.add(NAME, Activation(NAME, formula, reference))
RULES.add(Thresholds.name, Thresholds())
add_target("workbench", TARGET)
COMMANDS.add("threshold", Command("threshold numbers", "soft_threshold.command"))

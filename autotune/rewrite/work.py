"""Work that a rewrite can save: operations, and elements moved, of the right side against those
of the left one, at a few sizes, whichever values are constants. No machine is asked: what saves
nowhere here is not looked for where models are compiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.ops import OPS
from autotune.rewrite.apply import build
from autotune.rewrite.evaluate import Inference
from autotune.rewrite.prove import Instance, instances_of
from autotune.rewrite.rule import Application, Rewrite
from autotune.types import Attr

_SIZES = 4
"""Sizes that work is counted at."""
_LARGEST = 64
_MOVED = 4.0
"""Operations that reading or writing an element counts as, about (chosen)."""


def saves(rewrite: Rewrite) -> bool:
    """Whether the right side is less work at some size, for some choice of constants."""
    rng = np.random.default_rng(0)
    names = [v.name for v in rewrite.values]
    sides = (rewrite.right, rewrite.left)
    for instance in instances_of(rewrite, rng, _SIZES, largest=_LARGEST):
        for count in range(len(names)):
            for known in itertools.combinations(names, count):
                after, before = (_work(rewrite, side, instance, known) for side in sides)
                if after < before:
                    return True
    return False


def _work(
    rewrite: Rewrite, sides: Sequence[Application | str], instance: Instance, known: Sequence[str]
) -> float:
    inference = Inference(instance.shapes)
    constant = set(known)
    total = 0.0

    def emit(op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> str:
        nonlocal total
        name = inference.emit(op, inputs, attrs)
        if constant.issuperset(inputs):
            constant.add(name)
            return name
        if OPS.get(op).kind == "view" and op != "transpose":
            return name
        output, operands = inference.types[name], [inference.types[i] for i in inputs]
        flops = float(output.size)
        if op == "matmul":
            flops *= 2 * operands[0].shape[-1]
        if op == "conv2d":
            flops *= 2 * math.prod(operands[1].shape[:3])
        total += flops + _MOVED * (output.size + sum(t.size for t in operands))
        return name

    try:
        build(rewrite, sides, instance.symbols, {n: n for n in instance.shapes}, emit)
    except ModelError:
        return math.inf
    return total

"""The test case of a task, on which all its candidates run. In: a task and a seed. Out: inputs,
oracle values and storage, and the verdict on what a candidate wrote."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.errors import BuildError
from autotune.measure.check import Reference, Verdict, check_against, check_points
from autotune.measure.storage import (
    PATTERN,
    GuardedTensor,
    place,
    place_dense,
    place_input,
    take_output,
)
from autotune.program.ir import Pack
from autotune.program.packing import apply_pack
from autotune.tasks.evaluate import evaluate_points
from autotune.tasks.inputs import random_inputs, sample_points
from autotune.types import ITEM_BYTES, Array, Task

CHECKED_POINTS = 400
"""Elements of a result that are compared with the reference, where computing all takes long."""
MAX_PACKED = 6
"""Packings of a task's weights that are kept."""
COPIES = 3
"""Copies of every tensor: as drawn, as the kernel wants it, as the reference or a packed form."""
GIB = 1 << 30
"""Bytes of a gibibyte."""


@dataclass(slots=True, kw_only=True)
class Case:
    """A task's data under one seed: what all of its candidates share."""

    arrays: dict[str, Array]
    reference: Reference
    inputs: dict[str, GuardedTensor]
    output: GuardedTensor
    packed: OrderedDict[Pack | str, GuardedTensor] = field(default_factory=OrderedDict)
    accepted: Array | None = None
    """Output of the first candidate found right."""

    def nbytes(self) -> int:
        blocks = (*self.inputs.values(), self.output, *self.packed.values())
        return sum(a.nbytes for a in self.arrays.values()) + sum(s.block.nbytes for s in blocks)

    def constant(self, name: str, pack: Pack | None) -> GuardedTensor:
        """A constant as the candidate wants it; the last few forms are kept."""
        key: Pack | str = pack or name
        if key not in self.packed:
            array = self.arrays[name]
            self.packed[key] = place_dense(apply_pack(pack, array) if pack else array)
            while len(self.packed) > MAX_PACKED:
                self.packed.popitem(last=False)
        self.packed.move_to_end(key)
        return self.packed[key]


def operands_of(case: Case, task: Task, packs: Iterable[Pack]) -> list[tuple[Array, int]]:
    """A kernel's arguments in order, the output last: memory of each, and where in it its first
    element lies."""
    packed = {pack.buffer: pack for pack in packs}
    tensors = [case.inputs[v.name] for v in task.by_role("input")]
    tensors += [case.constant(v.name, packed.get(v.name)) for v in task.by_role("constant")]
    tensors.append(case.output)
    return [(t.block, t.address - t.block.ctypes.data) for t in tensors]


def make_case(task: Task, seed: int, precision: str = "float32") -> Case:
    """Inputs, oracle values and storage of a task. Raises BuildError if memory is too small."""
    wanted = sum(sum(v.layout.span(v.type.shape)) * ITEM_BYTES[v.type.dtype] for v in task.params)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if COPIES * wanted > memory:
        raise BuildError(
            f"the task's tensors take {wanted / GIB:.1f} GiB, measuring keeps them {COPIES} "
            f"times, and this machine has {memory / GIB:.1f} GiB of memory: at most "
            f"{memory / COPIES / GIB:.1f} GiB can be measured here"
        )
    arrays = random_inputs(task, seed)
    points = sample_points(task, seed, CHECKED_POINTS)
    (output,) = task.by_role("output")
    reference = Reference(
        points=points,
        expected=evaluate_points(task, arrays, points),
        oracle=lambda where: evaluate_points(task, arrays, where),
        dtype=precision if output.type.dtype == "float32" else output.type.dtype,
        rounded=any(n.op == "round" for n in task.nodes),
    )
    return Case(
        arrays=arrays,
        reference=reference,
        inputs={v.name: place_input(v, arrays[v.name]) for v in task.by_role("input")},
        output=place(output, PATTERN),
    )


def judge(case: Case) -> Verdict:
    """Verdict on what a kernel just wrote into the case's output."""
    output, outside = take_output(case.output)
    if outside:
        return Verdict(error=f"{outside} bytes outside the output were overwritten")
    verdict = check_points(case.reference, output)
    if verdict.error:
        return verdict
    if case.accepted is not None:
        whole, held = check_against(case.reference, output, case.accepted)
        if whole.error:
            return whole
        if held:
            return verdict
    case.accepted = output
    return verdict

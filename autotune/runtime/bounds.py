"""Checks of what an image says of memory against itself. In: an image out of a file. Out: nothing,
or a ValueError that names what does not fit.

Code is trusted, what is said beside it is checked: every address lies within the block that it is
of, every row and line of a table of open sizes exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from autotune.memory import physical_bytes
from autotune.runtime.image import FIRST_INPUT, ModelImage, Port
from autotune.runtime.open_image import OpenImage, OpenPlan
from autotune.types import ITEM_BYTES, TensorType

LARGEST_BYTES = 1 << 46
"""Bytes of a block that no processor has addresses for."""
CALLS = 1 << 16
"""Calls that no model has: lives counted in more have no room beside bytes in a native word."""


def check_bounds(image: ModelImage | OpenImage) -> None:
    """Raises ValueError, or TypeError."""
    _text("name", image.name)
    for name, version in image.versions:
        _text("versions", name)
        _text("versions", version)
    if not image.objects:
        raise ValueError("there is no object code")
    if isinstance(image, OpenImage):
        _check_open(image)
    else:
        _check_fixed(image)


def check_room(image: ModelImage | OpenImage) -> None:
    """Raises MemoryError where this machine has less memory than a run needs."""
    if isinstance(image, ModelImage):
        needed, here = image.arena_bytes + image.workspace_bytes, physical_bytes()
        if needed > here:
            raise MemoryError(f"a run needs {needed} bytes of memory, this machine has {here}")


def _check_fixed(image: ModelImage) -> None:
    own = (image.arena_bytes, image.constants.nbytes, image.workspace_bytes)
    blocks = (*own, *(port.type.nbytes for port in image.inputs), *image.output_bytes)
    for nbytes in blocks:
        _whole("bytes of a block", nbytes, LARGEST_BYTES)
    for number, port in enumerate(image.inputs):
        if port.base != FIRST_INPUT + number:
            raise ValueError(f"input {port.name!r:.80} is not at its place")
    for port in (*image.inputs, *image.outputs):
        _check_port(port, blocks)
    for kernel in image.kernels:
        _text("name of a kernel", kernel.symbol)
        for base, offset in kernel.args:
            _whole("offset of an argument", offset, blocks[_whole("block", base, len(blocks) - 1)])
    inputs, outputs = ({p.name for p in side} for side in (image.inputs, image.outputs))
    if any(name not in inputs or then not in outputs for name, then in image.updates):
        raise ValueError("updates of what is no input or output")


def _check_port(port: Port, blocks: Sequence[int]) -> None:
    _text("name of a port", port.name)
    if port.declared:
        TensorType(dtype=port.declared, shape=())
    room = blocks[_whole("block", port.base, len(blocks) - 1)]
    shape, strides = port.type.shape, port.strides
    if len(shape) != len(strides):
        raise ValueError(f"{port.name!r:.80} has {len(shape)} extents and {len(strides)} strides")
    steps = [_whole("stride", abs(s), LARGEST_BYTES) * (1 if s >= 0 else -1) for s in strides]
    reaches = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    first = sum(r for r in reaches if r < 0)
    last = sum(r for r in reaches if r > 0) + 1
    item, at = ITEM_BYTES[port.type.dtype], _whole("offset", port.offset_bytes, LARGEST_BYTES)
    if port.type.size and (at + first * item < 0 or at + last * item > room):
        raise ValueError(f"{port.name!r:.80} lies outside of its memory")


def _check_open(image: OpenImage) -> None:
    for plan in image.further:
        _text("name of a function", plan.amounts)
        _whole("objects", plan.objects, len(image.objects))
    for plan in image.plans:
        _check_plan(plan)
    for name, _ in (*image.types.inputs, *image.types.outputs, *image.types.ranges):
        _text("name of a size, or of what has sizes", name)
    known = {name for name, _ in image.types.ranges}
    for unit in image.units:
        if unit.name not in known or _whole("step", unit.step, LARGEST_BYTES) < 1:
            raise ValueError("a unit is not of one of the model's sizes")
        _whole("least", unit.least, LARGEST_BYTES)
    for _, allowed in image.types.ranges:
        for size in (allowed.least, allowed.most, allowed.step):
            _whole("a range", size, LARGEST_BYTES)
        if allowed.step < 1 or allowed.least > allowed.most:
            raise ValueError("a range is empty")
    _check_choice(image)


def _check_choice(image: OpenImage) -> None:
    choice = image.choice
    if (choice is None) != (not image.further):
        raise ValueError("plans and their choice are not both there")
    if choice is None:
        return
    tried = len(choice.plans)
    if not tried or choice.counts.shape != (tried, len(image.units)) or choice.counts.min() < 0:
        raise ValueError("the choice of a plan is of other sizes")
    _within(choice.plans, 1 + len(image.further))


def _check_plan(plan: OpenPlan) -> None:
    rows = _whole("rows", plan.rows, LARGEST_BYTES) + 1
    for port in (*plan.inputs, *plan.outputs):
        _text("name of a port", port.name)
        TensorType(dtype=port.dtype, shape=())
        if port.declared:
            TensorType(dtype=port.declared, shape=())
        _below(rows, (*port.shape, *port.strides, port.offset))
        _whole("block", port.base, FIRST_INPUT + len(plan.inputs) + len(plan.output_bytes))
    _below(rows, plan.output_bytes)
    _check_table(plan, rows)
    _check_arena(plan, rows)


def _check_table(plan: OpenPlan, rows: int) -> None:
    table = plan.table
    lines = len(table.drivers)
    for name in table.drivers:
        _text("name of a kernel", name)
    shapes = (table.words.shape[:1], table.strips.shape, table.seconds.shape,
              table.extents.shape[:1], table.workspace.shape)  # fmt: skip
    flat = (table.words.ndim, table.extents.ndim, table.choices.ndim) == (2, 2, 2)
    if not lines or not flat or any(shape != (lines,) for shape in shapes):
        raise ValueError("the table of calls has lines of different lengths")
    if table.lengths.shape != table.extents.shape or table.filled.shape[:1] != (2,):
        raise ValueError("the table of calls has columns of different lengths")
    for numbers in (table.strips, table.extents, table.workspace, table.filled[1]):
        _within(numbers, rows)
    _within(table.filled[0], table.words.size)
    _within(table.choices, lines)


def _check_arena(plan: OpenPlan, rows: int) -> None:
    arena, blocks = plan.arena, len(plan.arena.first)
    lives = (arena.first.shape, arena.last.shape, arena.starts.shape)
    if lives != ((blocks,),) * 3 or arena.numbers.shape != plan.table.choices.shape[:1]:
        raise ValueError("the table of the arena has columns of different lengths")
    if blocks and not (arena.first.min() >= 0 and (arena.first <= arena.last).all()):
        raise ValueError("a block of the arena ends before it begins")
    for numbers, count in (
        (arena.last, CALLS), (arena.numbers + 1, CALLS), (arena.starts, rows),
        (arena.sized[:, 0], blocks), (arena.sized[:, 1], rows),
        (arena.moved[:, 0], rows), (arena.moved[:, 1], blocks),
    ):  # fmt: skip
        _within(numbers, count)


def _whole(name: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} must be a whole number up to {most}, got {value!r:.80}")
    return value


def _text(name: str, value: object) -> None:
    if type(value) is not str:
        raise TypeError(f"{name} must be a string, got {value!r:.80}")


def _below(rows: int, numbers: Iterable[object]) -> None:
    for number in numbers:
        _whole("row", number, rows - 1)


def _within(numbers: npt.NDArray[np.int64], count: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < count):
        raise ValueError("the table of calls names what is not there")

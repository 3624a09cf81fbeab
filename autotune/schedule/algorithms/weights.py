"""Constant weights in the form that a schedule wants.

In: a program and one of its constant params. Out: the program with that param as it lies once
packed, and the packing among those that compiling applies.
"""

from __future__ import annotations

import dataclasses

from autotune.errors import ScheduleError
from autotune.program.ir import Buffer, Pack, Program
from autotune.program.packing import packed_shape
from autotune.program.rewrite import loads_of
from autotune.types import dense_strides


def free_weights(program: Program, name: str, rank: int, where: str) -> Buffer:
    """A constant param that nothing has packed and that is read with `rank` indices only.

    ScheduleError where it is not, with `where` it may be used.
    """
    param = next((p for p in program.params if p.name == name), None)
    if param is None or not param.constant or any(p.buffer == name for p in program.packs):
        raise ScheduleError(f"{name} is not a constant param that is not packed yet")
    if any(v.buffer == name and len(v.indices) != rank for v in loads_of(program.body)):
        raise ScheduleError(f"{name} is used outside the {where}")
    return param


def with_pack(program: Program, pack: Pack) -> Program:
    """The program with a pack in place of what its buffer had; the body is as before."""
    shape = packed_shape(pack)
    params = tuple(
        Buffer(
            p.name, pack.dtype or p.dtype, shape, "param", dense_strides(shape),
            ((0, 0),) * len(shape), constant=True,
        )
        if p.name == pack.buffer
        else p
        for p in program.params
    )  # fmt: skip
    others = tuple(p for p in program.packs if p.buffer != pack.buffer)
    return dataclasses.replace(program, params=params, packs=(*others, pack))

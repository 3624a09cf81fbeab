"""Programs that read and write backward, at offsets and where other memory says.

Loops over a few axes store what lies at sums of them with coefficients of either sign, divided,
clamped or read from memory, in buffers whose dimensions lie in any order; then random steps of
schedules. Machine code does what the interpreter does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import BuildError, ScheduleError
from autotune.program.analysis import interval
from autotune.program.ir import (
    Bound,
    Buffer,
    Const,
    For,
    Index,
    Load,
    LoadIndex,
    Program,
    Select,
    Stmt,
    Store,
    Value,
    clamp,
    fn,
    index,
    walk,
)
from autotune.program.text import print_program
from autotune.schedule import schedule_from_json
from autotune.target import Target, host_target, load_target
from autotune.tasks.inputs import random_inputs
from autotune.types import Task, TaskValue
from tests.contracts.case import in_other_orders
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.properties.test_schedule import random_schedule
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value

Draw = Callable[[st.SearchStrategy[Any]], Any]
EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 17])
STEPS = st.sampled_from([-3, -2, -1, -1, 1, 2])


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """A program, and a task whose values are its params."""

    task: Task
    program: Program


@st.composite
def moves(draw: Draw) -> Moves:
    extents = {f"d{n}": draw(EXTENTS) for n in range(draw(st.integers(1, 3)))}
    while len(extents) > 1 and size(extents) > 600:
        extents.popitem()
    places = [draw(place(extents)) for _ in range(draw(st.integers(1, 3)))]
    source = shape_of(places, extents)
    written = [axis_backward(draw, d, e) for d, e in draw(st.permutations(list(extents.items())))]
    values = [value("i0", source), value("c0", (9,), "int64")]
    out = value("o0", shape_of(written, extents))
    made = in_other_orders(
        task([node("copy", "i0", "o0")], *values, out), draw(st.integers(0, 99))
    )
    body = draw(loaded(tuple(places), extents, source))
    statement: Stmt = Store("o0", tuple(written), body)
    for name, extent in reversed(draw(st.permutations(list(extents.items())))):
        statement = For(name, extent, "serial", (statement,))
    params = tuple(param(v) for v in made.values)
    return Moves(made, Program("moves", params, (statement,)))


def size(extents: dict[str, int]) -> int:
    total = 1
    for extent in extents.values():
        total *= extent
    return total


@st.composite
def place(draw: Draw, extents: dict[str, int]) -> Index:
    """Where one dimension is read: never below zero."""
    names = list(extents)
    at = index(draw(st.integers(0, 3)))
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        at = at + index(name) * draw(STEPS)
    kind = draw(st.sampled_from(["sum", "sum", "sum", "divided", "rest", "clamped", "read"]))
    if kind == "divided":
        at = at // draw(st.sampled_from([2, 3, 4]))
    elif kind == "rest":
        at = at % draw(st.sampled_from([2, 3, 4]))
    elif kind == "clamped":
        return clamp(at, 0, draw(st.integers(0, 5)))
    elif kind == "read":
        name = draw(st.sampled_from(names))
        backward = index(name) * -1 + (extents[name] - 1)
        where = draw(st.sampled_from([index(name), backward])) % 9
        return Index(((LoadIndex("c0", (where,), draw(st.integers(1, 6))), 1),))
    low, _ = interval(at, extents)
    return at - low


def axis_backward(draw: Draw, name: str, extent: int) -> Index:
    """An axis of the output as it is, or from its end; or elements apart."""
    if draw(st.booleans()):
        return index(name)
    step = draw(st.sampled_from([-2, -1, -1, 2]))
    return index(name) * step + (-step * (extent - 1) if step < 0 else 0)


def shape_of(places: list[Index], extents: dict[str, int]) -> tuple[int, ...]:
    return tuple(interval(at, extents)[1] + 1 for at in places)


@st.composite
def loaded(
    draw: Draw, places: tuple[Index, ...], extents: dict[str, int], source: tuple[int, ...]
) -> Value:
    """What is stored: an element, two of them, or one where it is inside."""
    first: Value = Load("i0", places)
    kind = draw(st.sampled_from(["one", "one", "sum", "guarded"]))
    if kind == "sum":
        mirrored = tuple(p * -1 + (e - 1) for p, e in zip(places, source, strict=True))
        return fn("add", first, Load("i0", mirrored))
    if kind == "guarded":
        name = draw(st.sampled_from(list(extents)))
        shift, step = draw(st.integers(-2, 2)), draw(STEPS)
        bound = Bound(index(name) * step + shift, -1, draw(st.integers(1, 6)))
        return Select((bound,), first, Const(1.5, "float32"))
    return first


def param(v: TaskValue) -> Buffer:
    return Buffer(
        v.name, v.type.dtype, v.type.shape, "param", v.layout.strides, v.layout.halo,
        constant=v.role == "constant", written=v.role == "output",
    )  # fmt: skip


def in_vectors(draw: Draw, program: Program) -> Program:
    """The innermost loops, or parts of them, as vectors."""
    loops = [s.var for s in walk(program.body) if isinstance(s, For)]
    last = loops[-1]
    steps: list[dict[str, Any]] = []
    if len(loops) > 1 and draw(st.booleans()):
        steps.append({"step": "fuse", "outer": loops[-2], "inner": last, "fused": "f"})
        last = "f"
    if draw(st.booleans()):
        factor = draw(st.sampled_from([2, 3, 4, 8, 16]))
        split = {"step": "split", "loop": last, "factor": factor, "outer": "so", "inner": "si"}
        steps.append(split)
        last = "si"
    for step in schedule_from_json([*steps, {"step": "vectorize", "loops": (last,)}]):
        with contextlib.suppress(ScheduleError):
            program = step.apply(program)
    return program


def scheduled(draw: Draw, made: Moves) -> Program:
    program = made.program
    if draw(st.booleans()):
        program, _ = random_schedule(draw, program, 6)
        return program
    return in_vectors(draw, program)


def check(data: st.DataObject, target: Target) -> None:
    made = data.draw(moves())
    verify(made.program)
    arrays = random_inputs(made.task, 0)
    want = run(made.program, arrays)
    program = scheduled(data.draw, made)
    verify(program)
    assert_close(run(program, arrays), want)
    assert parse_program(print_program(program)) == program
    try:
        if target.kind == "cuda":
            got = run_emulated(program, target, arrays)
        else:
            got = run_kernel(made.task, program, target, arrays)
    except BuildError:
        return  # lanes that store to one element, or registers out of step: no code, no result
    assert_close(got, want)


@pytest.mark.parametrize(
    ("name", "examples"), [("cpu", 120), ("cpu", 60), ("c", 4), ("opencl", 4), ("sm_80", 8)]
)
def test_code_moves_what_the_program_says(name: str, examples: int) -> None:
    target = host_target(1 + (examples == 60)) if name == "cpu" else load_target(name)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        check(data, target)

    holds()

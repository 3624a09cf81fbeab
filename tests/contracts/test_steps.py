"""What every schedule step keeps to: it is data, and it rewrites a program rightly or refuses."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, For, Program, walk
from autotune.schedule import STEPS, Step, schedule_from_json, schedule_to_json
from autotune.types import Array
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.schedule import (
    test_jam,
    test_loop_restructuring,
    test_reuse,
    test_rolling_window,
    test_steps,
)

PROGRAMS = tuple(
    parse_program(text)
    for text in (
        test_steps.COPY,
        test_steps.SUMS,
        test_steps.NORM,
        test_steps.STAGES,
        test_rolling_window.DOWN,
        test_reuse.chain(),
        test_jam.VARIANCE,
        test_loop_restructuring.CENTRED,
    )
)
OF_BUFFERS = ("buffer", "buffers", "of")
"""Names of fields that name buffers; others name loops."""
ROUNDED = 0.01
"""Of the largest result: some steps round what is multiplied to 8 bits."""
each_step = pytest.mark.parametrize("step", STEPS.parts(), ids=lambda step: step.step)


def plain(kind: object, names: tuple[str, ...]) -> st.SearchStrategy[object]:
    """Values of a field: numbers, names of a program, tuples of those."""
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-1, 5)
    if kind is str:
        return st.sampled_from(names)
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from((*typing.get_args(kind), *names))
    assert typing.get_origin(kind) is tuple, f"a step's field is no {kind}"
    first, *rest = typing.get_args(kind)
    if rest == [...]:
        return st.lists(plain(first, names), max_size=3).map(tuple)
    return st.tuples(*(plain(k, names) for k in (first, *rest)))


@st.composite
def applied(draw: st.DrawFn, kind: type[Step]) -> tuple[Step, Program]:
    """A step with names of a program; whether it is legal is left to chance."""
    program = draw(st.sampled_from(PROGRAMS))
    loops = [s.var for s in walk(program.body) if isinstance(s, For)]
    local = [s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)]
    buffers = (*local, *(p.name for p in program.params))
    hints = typing.get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        likely = buffers if field.name in OF_BUFFERS else loops
        names = draw(st.sampled_from([likely, likely, likely, (*loops, *buffers, "", "new")]))
        fields[field.name] = draw(plain(hints[field.name], tuple(names)))
    return kind(**fields), program


def results(program: Program, inputs: Program) -> Array:
    draw = np.random.default_rng(0)
    shapes = {p.name: p.shape for p in inputs.params if not p.written}
    return run(program, {n: draw.standard_normal(s, np.float32) for n, s in shapes.items()})


def check(step: type[Step], holds: Callable[[Step, Program], None], examples: int) -> None:
    health = list(HealthCheck)
    drawn = settings(max_examples=examples, suppress_health_check=health)

    def one(pair: tuple[Step, Program]) -> None:
        holds(*pair)

    drawn(given(pair=applied(step))(seed(0)(one)))()


@each_step
def test_a_step_is_frozen_data_that_json_keeps(step: type[Step]) -> None:
    def holds(made: Step, _: Program) -> None:
        assert dataclasses.is_dataclass(made)
        assert schedule_from_json(schedule_to_json((made,))) == (made,)
        assert {made, dataclasses.replace(made)} == {made}

    check(step, holds, 10)


@each_step
def test_a_step_changes_no_result_or_refuses(step: type[Step]) -> None:
    def holds(made: Step, program: Program) -> None:
        try:
            changed = made.apply(program)
        except ScheduleError:
            return
        verify(changed)
        want = results(program, program)
        atol = ROUNDED * float(np.max(np.abs(want)))
        np.testing.assert_allclose(results(changed, program), want, rtol=0, atol=atol)

    check(step, holds, 40)

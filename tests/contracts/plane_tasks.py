"""Depthwise convolutions of what lies channels first: random applications, and tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autotune.types import Task, freeze_attrs
from tests.contracts.case import Case, single_task, tensor
from tests.unit.codegen.kernels import node, task, value


@st.composite
def conv_planes(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
    small, pads = st.integers(1, 3), st.tuples(*[st.integers(0, 2)] * 4)
    shape = (draw(st.integers(1, 2)), draw(small), *draw(st.tuples(*[st.integers(1, 5)] * 2)))
    attrs = {
        "strides": draw(st.tuples(small, small)),
        "pads": draw(pads),
        "dilations": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
    }
    types = (tensor(*shape), tensor(shape[1], draw(small), draw(small)))
    return Case(op="conv_planes", types=types, attrs=freeze_attrs(attrs), constants=(1,))


def planes(window: int, stride: int, pad: int, width: int) -> Task:
    """A depthwise convolution of planes of nine rows, with a bias for each and a relu."""
    rows, columns = ((e + 2 * pad - window) // stride + 1 for e in (9, width))
    out = (2, 3, rows, columns)
    attrs = {"strides": (stride,) * 2, "pads": (pad,) * 4}
    return task(
        [
            node("conv_planes", "i0 c0", "t0", **attrs),
            node("add", "t0 c1", "t1"),
            node("relu", "t1", "o0"),
        ],
        *(value("i0", (2, 3, 9, width)), value("c0", (3, window, window)), value("c1", (3, 1, 1))),
        *(value(name, out) for name in ("t0", "t1", "o0")),
    )


PLANES = {
    "windows of planes": planes(3, 1, 1, 37),
    "windows of planes, strided": planes(5, 2, 2, 43),
    "windows of planes, far apart": planes(3, 3, 1, 100),
    "windows of planes without zeros": planes(3, 1, 0, 19),
    "large windows of planes": planes(9, 1, 4, 21),
    "windows of planes of one column": single_task(
        Case(
            op="conv_planes",
            types=(tensor(1, 2, 5, 1), tensor(2, 3, 1)),
            attrs=freeze_attrs({"pads": (1, 0, 1, 0), "strides": (2, 2)}),
            constants=(1,),
        )
    ),
}

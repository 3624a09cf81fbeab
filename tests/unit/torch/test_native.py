"""A piece of ours on tensors' own memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autotune
from autotune.frontend.torch.importer import TensorPort
from autotune.graph.build import GraphBuilder
from autotune.torch.native import NativePiece
from autotune.types import TensorType

SHAPE = (3, 5)


def piece(order: tuple[int, ...] = (0, 1)) -> NativePiece:
    """x - y, of tensors whose dimensions lie in that order."""
    builder = GraphBuilder("difference")
    kind = TensorType(dtype="float32", shape=tuple(SHAPE[d] for d in order))
    x, y = builder.input("x0", kind), builder.input("x1", kind)
    graph = builder.finish([("y0", builder.op("sub", x, y))])
    model = autotune.compile(graph, machine="nominal", threads=1)
    ports = [TensorPort(name=n, dtype=torch.float32, order=order) for n in ("x0", "x1", "y0")]
    return NativePiece(model, ports[:2], ports[2:])


@pytest.fixture(scope="module")
def rows() -> NativePiece:
    return piece()


def given() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(SHAPE, generator=generator) for _ in range(2))
    return x, y


def test_tensors_are_read_and_written_where_they_lie(rows: NativePiece) -> None:
    x, y = given()
    assert rows.direct is not None
    (made,) = rows.direct([x, y]) or ()
    torch.testing.assert_close(made, x - y, rtol=0, atol=0)


def test_columns_are_written_as_columns() -> None:
    x, y = (t.t().contiguous().t() for t in given())
    columns = piece((1, 0))
    assert columns.direct is not None
    (made,) = columns.direct([x, y]) or ()
    assert made.stride() == x.stride()
    torch.testing.assert_close(made, x - y, rtol=0, atol=0)


@pytest.mark.parametrize("case", ["strides", "negated"])
def test_tensors_of_another_form_are_copied(rows: NativePiece, case: str) -> None:
    x, y = given()
    other = x.t().contiguous().t() if case == "strides" else torch._neg_view(-x)
    assert rows.direct is not None
    assert rows.direct([other, y]) is None
    torch.testing.assert_close(rows([other, y])[0], x - y, rtol=0, atol=0)


def test_what_is_read_in_a_longer_sequence(rows: NativePiece) -> None:
    x, y = given()
    assert rows.direct is not None
    (made,) = rows.direct.at([3, 1])([None, y, "else", x]) or ()
    np.testing.assert_array_equal(made.numpy(), (x - y).numpy())

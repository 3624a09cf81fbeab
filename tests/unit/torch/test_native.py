"""A piece of ours on tensors' own memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import autotune
from autotune.errors import ClosedError
from autotune.frontend.torch.importer import TensorPort
from autotune.graph.build import GraphBuilder
from autotune.runtime.model import CompiledModel
from autotune.torch.native import NativePiece, QuickCall
from autotune.torch.watch import WeightWatch
from autotune.types import TensorType

SHAPE = (3, 5)
SWAP: Any = torch.utils.swap_tensors


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


def the(made: list[torch.Tensor] | None) -> list[torch.Tensor]:
    """What a call made, where it ran."""
    assert made is not None
    return made


def given() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(SHAPE, generator=generator) for _ in range(2))
    return x, y


def test_tensors_are_read_and_written_where_they_lie(rows: NativePiece) -> None:
    x, y = given()
    assert rows.direct is not None
    (made,) = the(rows.direct([x, y]))
    torch.testing.assert_close(made, x - y, rtol=0, atol=0)


def test_columns_are_written_as_columns() -> None:
    x, y = (t.t().contiguous().t() for t in given())
    columns = piece((1, 0))
    assert columns.direct is not None
    (made,) = the(columns.direct([x, y]))
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
    (made,) = the(rows.direct.at([3, 1])([None, y, "else", x]))
    np.testing.assert_array_equal(made.numpy(), (x - y).numpy())


def watched(weight: torch.Tensor) -> tuple[NativePiece, QuickCall]:
    """x - y, whose y is a weight, in the second call of the same function."""
    rows = piece()
    assert rows.direct is not None
    call = rows.direct.watching(WeightWatch({1: weight}))
    for _ in range(2):
        assert call((torch.zeros(SHAPE), weight)) is not None
    return rows, call


def test_a_native_call_reads_what_it_is_given() -> None:
    x, y = given()
    _, call = watched(y)
    for scale in (1.0, 2.0):
        (made,) = the(call((scale * x, y)))
        torch.testing.assert_close(made, scale * x - y, rtol=0, atol=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.data.add_(1),
        lambda y: setattr(y, "data", y.clone()),
        lambda y: y.numpy().__iadd__(1),
        lambda y: SWAP(y, y.clone()),
        lambda y: SWAP(y, torch.zeros(SHAPE).to_sparse()),
    ],
    ids=["written", "data", "replaced", "numpy", "swapped", "sparse"],
)
def test_a_native_call_sees_that_a_weight_has_changed(
    change: Callable[[torch.Tensor], None],
) -> None:
    x, y = given()
    _, call = watched(y)
    change(y)
    if y.layout is torch.sparse_coo:
        with pytest.raises(RuntimeError):  # PyTorch's own; whoever calls it has PyTorch run it
            call((x, y))
    else:
        assert call((x, y)) is None


def test_another_object_of_the_same_weight_is_the_same_weight() -> None:
    x, y = given()
    _, call = watched(y)
    for _ in range(3):
        (made,) = the(call((x, y.detach())))
        torch.testing.assert_close(made, x - y, rtol=0, atol=0)


@pytest.mark.parametrize("other", [torch.zeros(5, 3).T, torch.zeros(SHAPE).to_sparse(), None])
def test_a_native_call_refuses_what_the_model_does_not_take(other: torch.Tensor | None) -> None:
    _, y = given()
    _, call = watched(y)
    assert call((other, y)) is None


def test_native_calls_leave_no_objects_behind() -> None:
    x, y = given()
    _, call = watched(y)
    held = sys.getrefcount(x), sys.getrefcount(y)
    for _ in range(1000):
        call((x, y))
    assert (sys.getrefcount(x), sys.getrefcount(y)) == held


def test_native_calls_of_several_threads() -> None:
    _, y = given()
    _, call = watched(y)

    def differs(seed: int) -> int:
        x = torch.full(SHAPE, float(seed))
        return sum(not torch.equal((call((x, y)) or [y])[0], x - y) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(differs, range(8)))


def test_a_closed_model_says_so() -> None:
    x, y = given()
    rows, call = watched(y)
    assert isinstance(rows.model, CompiledModel)
    rows.model.close()
    with pytest.raises(ClosedError):
        call((x, y))


def test_results_that_are_no_buffer_of_their_own_are_copied_to_their_places() -> None:
    builder = GraphBuilder("several")
    kind = TensorType(dtype="float32", shape=SHAPE)
    x = builder.input("x0", kind)
    twice = builder.op("add", x, x)
    known = builder.constant(np.arange(15, dtype=np.float32).reshape(SHAPE))
    column = builder.op("slice", twice, starts=(0, 1), stops=(3, 3), steps=(1, 1))
    made = [twice, known, twice, column, x]
    graph = builder.finish([(f"y{i}", value) for i, value in enumerate(made)])
    model = autotune.compile(graph, machine="nominal", threads=1)
    ports = [
        TensorPort(name=name, dtype=torch.float32, order=(0, 1)) for name in ("x0", *model.outputs)
    ]
    assert isinstance(model, CompiledModel)
    run = NativePiece(model, ports[:1], ports[1:]).direct
    assert run is not None
    assert not model.by_words()
    for scale in (1.0, 3.0):
        given = scale * torch.ones(SHAPE)
        results = the(run([given]))
        table = torch.arange(15.0).reshape(SHAPE)
        expected = [2 * given, table, 2 * given, 2 * given[:, 1:3], given]
        for found, right in zip(results, expected, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=0)
        assert len({t.data_ptr() for t in (given, *results)}) == 6

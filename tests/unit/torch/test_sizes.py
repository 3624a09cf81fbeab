"""Sizes that change from call to call: one program for all of them, and PyTorch records once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from autotune.torch import backend
from autotune.torch.native import NativePiece

PLAIN = {"machine": "nominal", "threads": 1, "min_gain": 0}


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "autotune"), torch.no_grad():
        yield


def counted(function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[Any]]:
    """(the function compiled, the graphs that were recorded, in a list that grows)."""
    graphs: list[Any] = []

    def watching(module: Any, inputs: Any) -> Any:
        made = backend(module, inputs, options=PLAIN)
        graphs.append(module)
        return made

    return torch.compile(function, backend=watching, **options), graphs


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Tagger(nn.Module):
    """Words of any number, each by itself and all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8), nn.Linear(8, 4)

    def forward(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.words(words)
        weights = (found @ found.transpose(1, 2)).softmax(-1)
        return self.out(weights @ found).relu(), found.mean(1)


def words(count: int) -> torch.Tensor:
    return torch.randint(0, 20, (2, count))


def test_no_size_of_a_marked_range_is_recorded_or_compiled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Tagger().eval()
    fast, graphs = counted(model)
    first = words(7)
    torch._dynamo.mark_dynamic(first, 1, min=3, max=40)
    for given in (first, words(3), words(12), words(40)):
        same(fast(given), model(given))
    assert len(graphs) == 1
    assert caplog.text.count("compiled for all sizes") == 1
    assert "compiled for s" not in caplog.text


def test_every_dynamic_size_has_the_same_program(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4), nn.Tanh()).eval()
    fast, graphs = counted(model, dynamic=True)
    for rows, channels_last in ((5, False), (9, True), (2, False)):
        x = torch.randn(rows, 3, 6)
        given = x.transpose(0, 1).contiguous().transpose(0, 1) if channels_last else x
        same(fast(given), model(given))
    assert caplog.text.count("one program serves all of them") == len(graphs)


def test_numbers_that_sizes_decide_are_those_of_each_call() -> None:
    def function(x: torch.Tensor) -> Sequence[Any]:
        waves = torch.fft.rfft(x, n=2 * x.shape[0]).abs()  # PyTorch runs it
        return torch.cat([x, x]).tanh(), waves, x.shape[0] + 1

    fast, graphs = counted(function, dynamic=True)
    for size in (4, 8, 6):
        x = torch.randn(size, size)
        same(fast(x), function(x))
    assert len(graphs) == 1


def test_what_must_know_a_size_makes_no_condition_of_the_range(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0).cumsum(0) * x.shape[0]

    fast, graphs = counted(function)
    first = torch.randn(5, 3)
    torch._dynamo.mark_dynamic(first, 0, min=2, max=50)
    for given in (first, torch.randn(2, 3), torch.randn(9, 3)):
        same(fast(given), function(given))
    assert len(graphs) == 1
    assert "each set of sizes is compiled when it is first met" in caplog.text


def test_weights_that_change_are_seen_at_every_size() -> None:
    model = nn.Linear(6, 4)
    fast, _ = counted(model, dynamic=True)
    same(fast(torch.zeros(3, 6)), model(torch.zeros(3, 6)))
    model.weight.data.add_(1)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 6)
        same(fast(x), model(x))


def test_every_size_is_run_on_the_memory_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)).eval()
    fast, graphs = counted(model, dynamic=True)
    for rows in (5, 9):
        fast(torch.randn(rows, 6))
    copied = []

    def copy(piece: NativePiece, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        copied.append(given)
        return turned(piece, given)

    turned = NativePiece._turned
    monkeypatch.setattr(NativePiece, "_turned", copy)
    for rows in (5, 9, 4, 5, 300):
        x = torch.randn(rows, 6)
        same(fast(x), model(x))
    assert len(graphs) == 1
    assert not copied


def test_what_has_no_memory_of_its_own_is_read_another_way() -> None:
    fast, _ = counted(lambda x: (2 * x).sin(), dynamic=True)
    x = torch.randn(6, 4)
    for given in (x, x[::2], x.t(), x[:1], x[:0]):
        same(fast(given), (2 * given).sin())


def test_rows_of_several_lengths_are_one_tensor() -> None:
    """A nested tensor has a symbol of its own for what is ragged."""
    layer = nn.Linear(4, 4)

    def function(ragged: torch.Tensor) -> Any:
        return layer(ragged).relu()

    fast, _ = counted(function)
    for rows in (2, 5):
        parts = [torch.randn(rows, 4), torch.randn(3, 4)]
        ragged = torch.nested.nested_tensor(parts, layout=torch.jagged)
        same(fast(ragged).values(), function(ragged).values())


def test_all_of_a_volume_in_one_row() -> None:
    """The most elements of a row are more than native words hold."""
    function, graphs = counted(lambda x: x.softmax(1).reshape(-1), dynamic=True)
    for shape in ((7, 2, 4), (7, 2, 4), (3, 5, 6), (3, 5, 6)):
        x = torch.randn(shape)
        same(function(x), x.softmax(1).reshape(-1))
    assert len(graphs) == 1


def test_a_part_of_a_tensor_lies_in_memory_as_eagers_does() -> None:
    """It is a view with gaps there, and alone what is computed here."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(-1)[:, :, 0], x[:, : x.shape[1] // 2 - 1].exp()[:, :, :3], x * 2

    fast, graphs = counted(parts, dynamic=True)
    for rows, columns in ((6, 9), (5, 16), (7, 8)):
        x = torch.randn(rows, columns, 4)
        found, expected = fast(x), parts(x)
        same(found, expected)
        assert [f.stride() for f in found if f.numel()] == [
            e.stride() for e in expected if e.numel()
        ]
    assert len(graphs) == 1

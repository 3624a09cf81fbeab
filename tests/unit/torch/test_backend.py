"""`torch.compile(model, backend="autotune")` gives what the model gives."""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.graph.ir import Graph
from autotune.runtime.sized import SizedModel
from autotune.torch import backend, explain
from autotune.torch.backend import compiled_by
from autotune.torch.pieces import PieceRunner
from tests.unit.torch.oracle import ByNumpy

Compile = Callable[..., Callable[..., Any]]
PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}
"""For no machine in particular, which measures none; small graphs too."""


@pytest.fixture
def compiled() -> Compile:
    def of(model: Any, **options: Any) -> Any:
        return torch.compile(model, backend="autotune", options=PLAIN | options)

    return of


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def test_a_network_of_images(compiled: Compile) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 8, 8)
    fast = compiled(model)
    with torch.no_grad():
        same(fast(x), model(x))
        last = x.to(memory_format=torch.channels_last)
        same(fast(last), model(last))


def test_results_lie_in_memory_as_pytorch_s_do(compiled: Compile) -> None:
    model = nn.Conv2d(3, 8, 3)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found, expected = compiled(model)(x), model(x)
    assert found.stride() == expected.stride()
    same(found, expected)


def test_an_operator_that_gives_another_type_than_is_recorded_of_it(compiled: Compile) -> None:
    """Running statistics in bfloat16, whose mean PyTorch records as float32. Its own result is off
    by several per cent where elements are near their mean: float32's is what it should be."""
    norm = nn.InstanceNorm1d(3, track_running_stats=True).to(torch.bfloat16)
    other, exact = copy.deepcopy(norm), copy.deepcopy(norm).float()
    x = torch.randn(2, 3, 4).to(torch.bfloat16)
    with torch.no_grad():
        other(x)
        wanted = exact(x.float()).to(torch.bfloat16)
        torch.testing.assert_close(compiled(norm)(x), wanted)
    torch.testing.assert_close(norm.running_mean, other.running_mean)


def test_a_graph_of_pytorch_alone_runs_as_it_was_recorded() -> None:
    """Nothing is around it: a call of a small graph takes some 20 microseconds."""
    given = torch.randn(2, 8) > 0, torch.randn(2, 8), torch.randn(2, 8)
    seen: list[Any] = []

    def picked(*given: torch.Tensor) -> Any:
        return torch.where(*given)

    def watching(module: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append((backend(module, inputs, options={"machine": "nominal"}), module.forward))
        return module.forward

    with torch.no_grad():
        found = torch.compile(picked, backend=watching)(*given)
    same(found, torch.where(*given))
    ((left, recorded),) = seen
    assert left == recorded


def test_results_with_gaps_between_their_elements_have_them(compiled: Compile) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [*x.unsafe_chunk(2, 1), *x.unsafe_chunk(2, 0)]

    x = torch.randn(4, 6)
    with torch.no_grad():
        for found, expected in zip(compiled(function)(x), function(x), strict=True):
            assert found.stride() == expected.stride()
            same(found, expected)


def test_unpooled_images_lie_as_they_lay(compiled: Compile) -> None:
    images = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    pooled, places = nn.MaxPool2d(2, return_indices=True)(images)
    unpool = nn.MaxUnpool2d(2)
    with torch.no_grad():
        found, expected = compiled(unpool)(pooled, places), unpool(pooled, places)
    assert found.stride() == expected.stride()
    same(found, expected)


@pytest.mark.parametrize(
    "function", [lambda x: x.roll((1, 2), (2, 3)), lambda x: nn.functional.channel_shuffle(x, 2)]
)
def test_moved_images_lie_as_they_lay(
    compiled: Compile, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    images = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found, expected = compiled(function)(images), function(images)
    assert found.stride() == expected.stride()
    same(found, expected)


def test_an_operator_that_we_lack_runs_in_pytorch(
    compiled: Compile, caplog: pytest.LogCaptureFixture
) -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.linalg.qr(x.relu() + 1)[1].exp() * 2

    x = torch.randn(4, 4)
    with caplog.at_level(logging.WARNING, "autotune.torch"):
        same(compiled(function)(x), function(x))
    assert "linalg_qr" in caplog.text
    assert "run in PyTorch" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[0].weight.data.add_(1),
        lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
        lambda m: setattr(m[0].weight, "data", torch.ones(8, 6)),
        lambda m: m[0].weight.detach().numpy().fill(2),
    ],
    ids=["data", "loaded", "replaced", "by numpy"],
)
def test_weights_that_change_are_seen(compiled: Compile, change: Callable[[Any], Any]) -> None:
    model = small()
    fast, x = compiled(model), torch.randn(2, 6)
    with torch.no_grad():
        before = fast(x)
        change(model)
        for _ in range(3):
            same(fast(x), model(x))
        assert not torch.equal(fast(x), before)


def test_a_model_of_half_the_precision(compiled: Compile) -> None:
    model = small().to(torch.bfloat16)
    x = torch.randn(2, 6, dtype=torch.bfloat16)
    with torch.no_grad():
        found = compiled(model)(x)
        torch.testing.assert_close(found, model(x), rtol=3e-2, atol=3e-2)


def test_gradients_are_right(compiled: Compile) -> None:
    model = small()
    other, x = copy.deepcopy(model), torch.randn(2, 6)
    fast = compiled(model)
    for _ in range(2):
        given = x.clone().requires_grad_()
        fast(given).square().sum().backward()
        also = x.clone().requires_grad_()
        other(also).square().sum().backward()
        same(given.grad, also.grad)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            same(one.grad, two.grad)


def test_in_place_operators_and_views(compiled: Compile) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        part = x[:, 1:]
        return part, part * y[0], x.t(), x

    one, two, y = torch.ones(2, 3), torch.ones(2, 3), torch.rand(2, 2)
    for a, b in zip(compiled(function)(one, y), function(two, y), strict=True):
        same(a, b)
    same(one, two)
    found = compiled(function)(one, y)
    assert found[0]._base is one or found[0].data_ptr() == one[:, 1:].data_ptr()


def test_sizes_may_change_without_another_recording() -> None:
    model, graphs = small(), 0

    def counted(module: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return backend(module, inputs, options=PLAIN)

    fast = torch.compile(model, backend=counted, dynamic=True)
    with torch.no_grad():
        for rows in (2, 5, 3, 5):
            x = torch.randn(rows, 6)
            same(fast(x), model(x))
    assert graphs == 1


def test_strides_numbers_and_odd_tensors(compiled: Compile) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, k: int) -> tuple[Any, ...]:
        return x.t() * k, i + 1, (x > 0).any(), x.sum(), x[:0] + 1, i

    x = torch.randn(4, 6)[:, ::2]
    i = torch.arange(3)
    fast = compiled(function)
    for a, b in zip(fast(x, i, 3), function(x, i, 3), strict=True):
        same(a, b)


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(Exception, match=r"no option 'thread'.*did you mean 'threads'") as caught:
        torch.compile(small(), backend="autotune", options={"thread": 1})(torch.randn(2, 6))
    assert "Traceback" not in str(caught.value)


def test_a_defect_of_ours_costs_speed_and_no_result(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("it is broken")

    monkeypatch.setattr("autotune.torch.graph.plan", broken)
    model, x = small(), torch.randn(2, 6)
    with pytest.warns(UserWarning, match="it is broken; PyTorch runs it"), torch.no_grad():
        same(compiled(model)(x), model(x))


def test_a_defect_outside_of_the_compiler_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("it is broken")

    # By its name, the module is hidden by the function.
    module = importlib.import_module("autotune.torch.backend")
    monkeypatch.setattr(module, "traced", broken)
    model, x = small(), torch.randn(2, 6)
    fast = torch.compile(model, backend="autotune")
    with pytest.warns(UserWarning, match="it is broken; PyTorch runs it"), torch.no_grad():
        same(fast(x), model(x))


def test_a_defect_in_a_call_costs_no_result(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("it is broken")

    monkeypatch.setattr(PieceRunner, "direct", None)
    monkeypatch.setattr(PieceRunner, "__call__", broken)
    model, x = small(), torch.randn(2, 6)
    fast = compiled(model)
    with pytest.warns(UserWarning, match="it is broken; PyTorch runs it"), torch.no_grad():
        same(fast(x), model(x))
    with torch.no_grad():  # from then on without a word
        same(fast(x + 1), model(x + 1))


def test_a_defect_at_further_sizes_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("it is broken")

    torch._dynamo.reset()
    model = small()
    fast = torch.compile(model, backend="autotune", options=PLAIN, dynamic=True)
    with torch.no_grad():
        for rows in (2, 2, 5):
            same(fast(x := torch.randn(rows, 6)), model(x))
        monkeypatch.setattr(SizedModel, "ready", broken)
        monkeypatch.setattr(PieceRunner, "__call__", broken)
        with pytest.warns(UserWarning, match="it is broken; PyTorch runs it"):
            same(fast(x := torch.randn(7, 6)), model(x))
        same(fast(x := torch.randn(8, 6)), model(x))  # from then on without a word


def test_gradients_are_of_the_random_numbers_that_were_drawn(compiled: Compile) -> None:
    """Eager's second run of a graph would draw others."""
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    fast, x = compiled(model), torch.randn(4, 6)

    def results(called: Callable[..., Any]) -> Any:
        torch.manual_seed(3)
        made = called(x)
        return made, torch.autograd.grad(made.sum(), list(model.parameters()))

    expected = results(model)
    for _ in range(2):
        same(results(fast), expected)


def test_random_numbers_are_drawn_in_order(compiled: Compile) -> None:
    """Also where what the first is made of is computed later than the second could be drawn."""

    def function(x: torch.Tensor) -> Any:
        late = torch.rand_like(x.sin() + torch.rand_like(x))
        return late, torch.rand_like(x.new_zeros(4, 4))

    x = torch.randn(4, 4)
    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    with torch.no_grad():
        same(compiled(function)(x), expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_condition_of_a_graph_is_looked_at(dynamic: bool) -> None:
    """`one_hot` refuses classes that there are not."""

    def function(places: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(places, 4).float() @ x

    fast = torch.compile(function, backend="autotune", options=PLAIN, dynamic=dynamic)
    places, x = torch.tensor([0, 3, 1, 1]), torch.randn(4, 5)
    for _ in range(2):
        same(fast(places, x), function(places, x))
        with pytest.raises(RuntimeError, match="Class values must be smaller"):
            fast(places + 2, x)
    assert explain(function, places, x).whole


def test_two_programs_share_nothing_that_is_written(compiled: Compile) -> None:
    model, x = small(), torch.randn(2, 6)
    fast = compiled(model)
    with torch.no_grad():
        first = fast(x)
        kept = first.clone()
        fast(x + 1)
    assert torch.equal(first, kept)


def test_what_is_ours_is_told() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.linalg.qr(x.relu())[1].exp() * 2

    told = explain(function, torch.randn(4, 4))
    (graph,) = told.graphs
    assert (graph.ours + graph.quicker, graph.pieces, told.whole) == (3, 3, False)
    assert "aten.linalg_qr.default is not supported" in str(told)
    assert explain(small(), torch.randn(2, 6)).whole
    model = small()
    for rows in (2, 3, 5):  # PyTorch records the second size as a symbol
        assert explain(model, torch.randn(rows, 6)).whole


@pytest.mark.parametrize("freezing", [False, True])
def test_weights_are_known_where_inductor_freezes_them_too(freezing: bool) -> None:
    graphs: list[Graph] = []

    def by(graph: Any) -> Any:
        graphs.append(graph)
        return ByNumpy(graph)

    model, x = small(), torch.randn(4, 6)
    compiled = torch.compile(model, backend=lambda m, i: compiled_by(by, m, i))
    with torch.no_grad(), torch._inductor.config.patch(freezing=freezing):
        same(compiled(x), model(x))
        assert [len(graph.inputs) for graph in graphs] == [1]
        next(model.parameters()).mul_(2)
        same(compiled(x), model(x))
        same(compiled(x), model(x))

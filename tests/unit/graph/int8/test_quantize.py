"""Graphs on bytes: what is computed, what lies in memory, what stays in float32."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.driver import Preparation, compile_graph
from autotune.graph.feeds import Feeds
from autotune.graph.int8.calibrate import Range
from autotune.graph.int8.errors import decibels
from autotune.graph.int8.plan import Steps
from autotune.graph.int8.quantize import Quantized, quantize
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.target import host_target
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, op_counts, random_feeds


def residual_net() -> Graph:
    """Pixels, a pool, a residual with a convolution on each side, one without, a classifier."""
    net = Net()
    x = net.op("relu", net.batch_norm(net.conv(net.feed("x", 1, 3, 16, 16), 16, stride=2)))
    x = net.max_pool(x)
    inner = net.op("relu", net.batch_norm(net.conv(x, 16)))
    beside = net.batch_norm(net.conv(x, 32, k=1))
    x = net.op("relu", net.op("add", net.batch_norm(net.conv(inner, 32)), beside))
    x = net.op("relu", net.op("add", net.batch_norm(net.conv(x, 32)), x))
    flat = net.op("reduce_mean", x, axes=(2, 3), keepdims=False)
    return net.graph(net.linear(flat, 10))


def on_bytes(graph: Graph, feeds: Feeds | None = None) -> tuple[Graph, Quantized]:
    graph = optimize(graph)
    found = quantize(graph, [feeds or random_feeds(graph)])
    verify_graph(found.graph)
    return graph, found


def worst_db(graph: Graph, found: Quantized, feeds: Feeds) -> float:
    exact, got = (run_graph(g, feeds, "float32") for g in (graph, found.graph))
    return min(decibels(exact[name], got[name]) for name in exact)


def test_outputs_stay_close() -> None:
    graph, found = on_bytes(residual_net())
    assert len(found.plan.contractions) == 6
    assert worst_db(graph, found, random_feeds(graph)) > 25


def test_between_kernels_lie_bytes() -> None:
    _, found = on_bytes(residual_net())
    calls = partition(found.graph).calls
    found_types = [(c.task.op, c.task.by_role("output")[0].type.dtype) for c in calls]
    heavy = [pair for pair in found_types if pair[0] in ("conv2d", "max_pool2d", "matmul")]
    # The mean is taken of floats, and so are the outputs.
    assert heavy[-2:] == [("conv2d", "float32"), ("matmul", "float32")]
    assert {dtype for _, dtype in heavy[:-2]} == {"uint8"}
    assert len(heavy) == 7


def test_scales_biases_and_requantisation_are_one_multiplication_and_one_addition() -> None:
    net = Net()
    x = net.conv(net.op("relu", net.batch_norm(net.conv(net.feed("x", 1, 8, 6, 6), 8))), 8)
    _, found = on_bytes(net.graph(net.op("relu", x)))
    first = next(n for n in found.graph.nodes if n.op == "conv2d")
    readers = {i: n for n in found.graph.nodes for i in n.inputs}
    chain = [first]
    while chain[-1].op != "to_uint8":
        chain.append(readers[chain[-1].output])
    ops = [n.op for n in chain]
    assert ops == ["conv2d", "to_float32", "mul", "add", "round", "clip", "to_uint8"]


def test_the_compiled_model_computes_the_graph() -> None:
    graph, found = on_bytes(residual_net())
    feeds = random_feeds(graph)
    target = host_target().with_precision("int8")
    model = compile_graph(
        residual_net(), target, processes=1, preparation=Preparation(calibration=feeds)
    )
    wanted = run_graph(found.graph, feeds, "float32")
    for name, array in model.run(feeds).items():
        # A step that rounding in another order moves is seen in the sums behind it.
        assert decibels(wanted[name], array) > 35
    assert model.quantization is not None
    assert model.quantization.contractions + len(model.quantization.slower) == 6
    assert model.quantization.outputs[0].snr_db > 25


def test_padding_stands_for_zeros_of_signed_data() -> None:
    net = Net()
    graph, found = on_bytes(net.graph(net.conv(net.feed("x", 1, 8, 3, 3), 8)))
    assert op_counts(found.graph)["pad"] == 1
    assert worst_db(graph, found, random_feeds(graph)) > 30


def test_images_get_their_fourth_channel_where_rows_are_runs() -> None:
    net = Net()
    graph, found = on_bytes(net.graph(net.conv(net.feed("x", 1, 3, 9, 10), 8)))
    made = [(n.op, found.graph.types[n.output].shape) for n in found.graph.nodes]
    at = made.index(("pad", (1, 4, 11, 12)))
    assert made[at + 1] == ("transpose", (1, 11, 12, 4))
    assert worst_db(graph, found, random_feeds(graph)) > 30


def test_parts_of_a_concat_share_their_steps() -> None:
    net = Net()
    x = net.feed("x", 1, 8, 4, 4)
    parts = [net.op("relu", net.conv(x, 8)), net.op("relu", net.conv(x, 8, k=1))]
    graph, found = on_bytes(net.graph(net.conv(net.op("concat", *parts, axis=1), 4, k=1)))
    concat = next(n for n in found.graph.nodes if n.op == "concat")
    assert found.graph.types[concat.output].dtype == "uint8"
    assert worst_db(graph, found, random_feeds(graph)) > 25


def test_a_contraction_that_would_lose_too_much_stays() -> None:
    net = Net()
    x = net.feed("x", 8, 16)
    weights = net.array(16, 8)
    weights[0] = 0
    graph = net.graph(net.op("matmul", x, net.constant(weights), transpose_b=False))
    feeds = random_feeds(graph)
    feeds["x"][:, 0] = 1e5
    graph, found = on_bytes(graph, feeds)
    assert len(found.kept) == 1
    assert not found.plan.contractions
    assert worst_db(graph, found, feeds) > 100


def test_floats_stay_beside_bytes_that_would_spoil_a_sum() -> None:
    net = Net()
    x = net.layer_norm(net.linear(net.feed("x", 1, 64, 16), 64))
    peak = np.zeros((1, 64, 64), np.float32)
    peak[0, 3, 5] = 40
    wide = net.op("add", x, net.constant(peak))
    result = net.op("add", net.linear(net.op("gelu", net.linear(wide, 32)), 64), wide)
    graph, found = on_bytes(net.graph(net.layer_norm(result)))
    assert found.plan.exact
    assert worst_db(graph, found, random_feeds(graph)) > 20


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_no_bytes_stand_for_what_is_not_finite_on_a_sample(odd: float) -> None:
    net = Net()
    x = net.feed("x", 1, 8)
    graph = optimize(net.graph(net.linear(net.op("sqrt", x), 8), net.linear(x, 8)))
    samples = [{"x": np.full((1, 8), value, np.float32)} for value in (4.0, odd, 1.0)]
    samples[1]["x"][0, 1:] = 2.0
    assert not quantize(graph, samples).plan.contractions
    assert len(quantize(graph, samples[::2]).plan.contractions) == 2


def test_what_cannot_be_cut_in_fours_stays() -> None:
    net = Net()
    graph, found = on_bytes(net.graph(net.linear(net.feed("x", 4, 18), 8)))
    assert found.graph == graph


@pytest.mark.parametrize(("low", "high"), [(-3.0, 0.0), (-3.0, 0.5), (0.0, 0.0), (0.0, 0.5)])
def test_steps_meet_zero_exactly(low: float, high: float) -> None:

    steps = Steps.of(Range(low=low, high=high))
    assert steps.low + steps.zero * steps.step == pytest.approx(0, abs=1e-12)
    assert steps.low <= low + steps.step
    assert steps.high >= high - steps.step
    assert 0 <= steps.zero <= 255


def test_layers_that_differ_in_their_steps_alone_are_one_task() -> None:
    net = Net()
    x = net.op("relu", net.conv(net.feed("x", 1, 16, 8, 8), 16))
    for scale in (1.0, 7.0, 0.3):
        other = net.op("mul", net.conv(x, 16), net.scalar(scale))
        x = net.op("relu", net.op("add", other, x))
    _, found = on_bytes(net.graph(net.conv(x, 16)))
    tasks = partition(found.graph).weights()
    assert max(tasks.values()) == 3

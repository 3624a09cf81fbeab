"""Layouts are chosen by what the log measured, else by the prior; copies are paid for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cost_model
from autotune.compiler.driver import compile_graph
from autotune.compiler.layout_costs import arranged, choose_layouts, variant_costs
from autotune.db.types import Record
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.placement.layout_choice import explain
from autotune.placement.layout_problem import LayoutProblem, problem_of
from autotune.placement.layouts import DENSE, Layouts, ValueLayout
from autotune.placement.partition import partition
from autotune.target import Target, host_target, load_target
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.unit.graph.nets import Net, random_feeds

TARGET = load_target("x86-64-v4")
PADDED = ValueLayout(padding=32)
COPY = ValueLayout(padding=32, copied=True)


def depthwise_net(readers: int = 1) -> Graph:
    """A value of 512 channels under a depthwise convolution, which others read too."""
    net = Net()
    x = net.op("relu", net.conv(net.feed("x", 1, 4, 9, 9), 512, k=1))
    out = net.conv(x, 512, groups=512)
    for _ in range(readers):
        out = net.op("add", out, net.conv(x, 512, k=1))
    return optimize(net.graph(net.conv(out, 8, k=1)))


class Times:
    """A log in which the time of a task is what a function says of it, with default schedules."""

    def __init__(self, seconds: Callable[[Task], float | None], tasks: tuple[Task, ...]) -> None:
        self._seconds = {t.key: (t, seconds(t)) for t in tasks}

    def best(self, task_key: str, target: Target) -> Record | None:
        task, time_s = self._seconds.get(task_key, (None, None))
        if task is None or time_s is None:
            return None
        rule = rule_for(task, target)
        config = cost_model.default(task, Machine.of(target), rule)
        return Record(
            task=task,
            target=target,
            rule=rule.name,
            config=config,
            schedule=rule.schedule(task, target, config),
            result=MeasureResult(status=Status.OK, times_s=(time_s,)),
        )

    def nearest(self, *_: object, **__: object) -> tuple[Record, ...]:
        return ()


def chosen(problem: LayoutProblem, seconds: Callable[[Task], float | None]) -> Layouts:
    return choose_layouts(problem, TARGET, Times(seconds, problem.tasks())).layouts


def apart(task: Task) -> bool:
    """Whether some operand's points lie further apart than its channels need."""
    return any(
        len(v.type.shape) == 4 and v.layout.strides[2] > v.type.shape[3] for v in task.params
    )


def test_a_value_under_a_window_has_three_layouts() -> None:
    problem = problem_of(depthwise_net(), TARGET)
    (options,) = problem.options.values()
    assert options == (DENSE, PADDED, COPY)


def test_without_a_log_the_prior_moves_points_apart() -> None:
    problem = problem_of(depthwise_net(), TARGET)
    assert set(choose_layouts(problem, TARGET).layouts.values()) == {PADDED}


def test_where_gaps_were_measured_to_be_slow_values_stay_dense() -> None:
    problem = problem_of(depthwise_net(), TARGET)
    assert chosen(problem, lambda task: 2e-4 if apart(task) else 1e-4) == {}


def test_where_only_the_window_likes_gaps_it_gets_a_copy() -> None:
    """Copies cost what their tasks do: a cheap one is taken, a dear one is not."""

    def seconds(copy_s: float) -> Callable[[Task], float]:
        def of(task: Task) -> float:
            if task.op == "copy":
                return copy_s
            window = dict(task.nodes[task.anchor].attrs).get("groups", 1) != 1
            return 1e-5 if window == apart(task) else 1e-3

        return of

    problem = problem_of(depthwise_net(), TARGET)
    assert set(chosen(problem, seconds(1e-5)).values()) == {COPY}
    assert COPY not in chosen(problem, seconds(1e-1)).values()


def test_the_gain_must_be_more_than_noise() -> None:
    problem = problem_of(depthwise_net(), TARGET)
    assert chosen(problem, lambda task: 0.995e-4 if apart(task) else 1e-4) == {}


def test_a_transposed_input_of_the_caller_can_only_be_copied() -> None:
    net = Net()
    image = net.op("transpose", net.feed("x", 1, 9, 9, 512), perm=(0, 3, 1, 2))
    problem = problem_of(optimize(net.graph(net.conv(image, 512, groups=512))), TARGET)
    (options,) = problem.options.values()
    assert options == (DENSE, COPY)
    extra = [k for k in problem.kernels if any(len(t) > 0 for t in k.variants.values())]
    copies = [k for k in extra if [t.op for t in k.variants[(1,)]] == ["copy"]]
    assert copies
    assert all(k.variants[(0,)] == () for k in copies)


def test_an_unknown_variant_is_judged_by_a_known_one() -> None:
    problem = problem_of(depthwise_net(), TARGET)
    kernel = next(
        k for k in problem.kernels
        if dict(k.variants[(0,)][0].nodes[0].attrs).get("groups") == 512
    )  # fmt: skip
    dense, moved = kernel.variants[(0,)][0], kernel.variants[(1,)][0]
    prior = variant_costs(kernel.variants, TARGET, lambda _: None)
    known = variant_costs(kernel.variants, TARGET, lambda task: 7.0 if task == dense else None)
    assert known[(0,)] == 7.0
    assert known[(1,)] == pytest.approx(7.0 * prior[(1,)] / prior[(0,)])
    assert prior[(1,)] < prior[(0,)]
    assert moved.key != dense.key


def test_tasks_of_the_problem_are_those_of_the_partition() -> None:
    graph = depthwise_net(2)
    problem = problem_of(graph, TARGET)
    (value,) = problem.options
    others = []
    for option in range(3):
        tasks = set(partition(graph, layouts=problem.layouts({value: option})).weights())
        priced = {t for k in problem.kernels for t in k.variants[(option,)]}
        assert priced <= tasks
        others.append(tasks - priced)
    assert others[0] == others[1] == others[2]


def test_dense_graphs_have_no_choices() -> None:
    net = Net()
    problem = problem_of(optimize(net.graph(net.conv(net.feed("x", 1, 8, 9, 9), 8))), TARGET)
    assert problem.options == {}
    assert explain(choose_layouts(problem, TARGET)) == ()


def image_net(side: int) -> Graph:
    net = Net()
    return optimize(net.graph(net.op("relu", net.conv(net.feed("x", 1, 3, side, side), 64))))


def test_images_get_a_fourth_channel_where_that_is_faster() -> None:
    graph = image_net(64)
    problem = problem_of(graph, TARGET)
    (options,) = problem.options.values()
    fourth = ValueLayout(zeros=1)
    assert options == (DENSE, fourth)
    padded = partition(graph, layouts=problem.layouts(dict.fromkeys(problem.options, 1))).weights()
    for faster_s, chosen in ((1e-6, {fourth}), (1e-2, set())):
        log = Times(lambda task, s=faster_s: s if task in padded else 1e-4, problem.tasks())
        assert set(choose_layouts(problem, TARGET, log).layouts.values()) == chosen
    # Winograd's algorithm takes three channels as they are, and faster.
    assert choose_layouts(problem, TARGET).layouts == {}
    strict = TARGET.with_accuracy("strict")
    assert choose_layouts(problem_of(graph, strict), strict).layouts == {}


@pytest.mark.parametrize(("graph", "option"), [("window", 1), ("window", 2), ("image", 1)])
def test_compiled_results_are_the_same_in_every_layout(graph: str, option: int) -> None:
    net, target = {"window": depthwise_net, "image": lambda: image_net(20)}[graph](), host_target()
    problem = problem_of(net, target)
    layouts = problem.layouts(dict.fromkeys(problem.options, option))
    liked = partition(net, layouts=layouts).weights()
    log = Times(lambda task: 1e-6 if task in liked else 1.0, problem.tasks())
    assert arranged(net, target, log).layouts == layouts
    feeds = random_feeds(net)
    got = compile_graph(net, target, log, processes=1).run(feeds)
    for name, exact in run_graph(net, feeds, "float32").items():
        assert np.allclose(got[name], exact, rtol=1e-3, atol=1e-3)


def test_gpus_and_explanations() -> None:
    gpu = load_target("cuda")
    assert problem_of(depthwise_net(), gpu).options == {}
    lines = explain(choose_layouts(problem_of(depthwise_net(), TARGET), TARGET))
    assert "points 32 elements further apart" in lines[0]
    assert "instead of" in lines[-1]

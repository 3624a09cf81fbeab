"""Tasks: canonical names, keys, weights, descriptions."""

from __future__ import annotations

import json

import pytest

from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.placement.storage import place
from autotune.placement.views import canonical_layout
from autotune.tasks.describe import describe
from autotune.tasks.flops import anchor_flops, task_flops
from autotune.types import Layout, Task
from tests.unit.attentions import attention
from tests.unit.graph.nets import Net


def residual_block(net: Net, x: str) -> str:
    first = net.op("relu", net.batch_norm(net.conv(x, 4)))
    return net.op("relu", net.op("add", net.batch_norm(net.conv(first, 4)), x))


def test_names_follow_the_first_use() -> None:
    n = Net()
    x = n.linear(n.op("exp", n.feed("x", 4, 8)), 8)
    task = partition(optimize(n.graph(n.op("add", x, n.feed("y", 4, 8))))).calls[-1].task
    assert [node.inputs for node in task.nodes] == [("i0", "c0"), ("t0", "c1"), ("t1", "i1")]
    assert [v.name for v in task.params] == ["i0", "i1", "c0", "c1", "o0"]
    assert task.op == "matmul"


def test_arguments_name_the_values_of_the_graph() -> None:
    n = Net()
    part = partition(optimize(n.graph(n.linear(n.feed("x", 4, 8), 8))))
    args = dict(part.calls[0].args)
    assert args["i0"] == "x"
    assert args["o0"] == part.graph.outputs[0][1]
    assert part.graph.constants[args["c0"]].shape == (8, 8)


def test_equal_blocks_are_one_task() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4))
    for _ in range(3):
        x = residual_block(n, x)
    last = n.op("reduce_mean", n.conv(x, 4), axes=(2, 3), keepdims=False)
    assert sorted(partition(optimize(n.graph(last))).weights().values()) == [1, 1, 1, 1, 3, 3]


def test_the_order_of_an_addition_does_not_matter() -> None:
    tasks = set()
    for swap in (False, True):
        n = Net()
        x, y = n.op("matmul", n.feed("x", 4, 8), n.weights(8, 8)), n.feed("y", 4, 8)
        total = n.op("add", y, x) if swap else n.op("add", x, y)
        tasks.add(partition(optimize(n.graph(total))).calls[0].task)
    assert len(tasks) == 1


def test_a_halo_that_the_kernel_does_not_read_is_not_in_its_task() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4))
    joined = n.op("add", n.op("exp", x), n.conv(x, 4))
    part = partition(optimize(n.graph(n.op("reduce_mean", joined, axes=(2, 3), keepdims=False))))
    for call in part.calls:
        for value in call.task.params:
            padded = value.role == "input" and call.task.op == "conv2d" and value.name == "i0"
            assert padded or not any(map(any, value.layout.halo))


def test_tasks_survive_json() -> None:
    n = Net()
    clipped = n.op("clip", n.linear(n.feed("x", 4, 8), 8), min=0.0, max=float("inf"))
    task = partition(optimize(n.graph(n.op("mul", clipped, n.scalar(0.1))))).calls[0].task
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_strides_that_mean_nothing_are_dense() -> None:
    shape = (1, 4, 1, 3)
    layout = Layout(strides=(999, 3, 77, 1), halo=((0, 0),) * 4)
    assert canonical_layout(shape, layout) == Layout.dense(shape)


def test_the_call_is_named_after_the_nodes_of_the_model() -> None:
    n = Net()
    n.label = "fc1"
    x = n.linear(n.feed("x", 4, 8), 8)
    n.label = "act"
    assert partition(optimize(n.graph(n.op("relu", x)))).calls[0].name == "fc1+act"


@pytest.mark.parametrize(
    ("build", "text", "flops"),
    [
        (
            lambda n: n.op("relu", n.linear(n.feed("x", 4, 8), 6)),
            "matmul 4x8 * 8x6 -> 4x6 +add+relu",
            2 * 4 * 8 * 6 + 24 + 24,
        ),
        (
            lambda n: n.op("softmax", n.op("exp", n.feed("x", 4, 8)), axis=1),
            "exp+softmax 4x8 -> 4x8 axis1",
            None,
        ),
        (
            lambda n: n.op(
                "conv2d", n.feed("x", 1, 8, 8, 3), n.weights(3, 3, 3, 4),
                strides=(2, 2), pads=(1,) * 4, dilations=(1, 1), groups=1,
            ),
            "conv2d 1x8x8x3 -> 1x4x4x4 k3x3 s2",
            2 * 4 * 4 * 4 * 27,
        ),
    ],
)  # fmt: skip
def test_descriptions_and_flops(build: object, text: str, flops: int | None) -> None:
    n = Net()
    task = partition(optimize(n.graph(build(n)))).calls[-1].task  # type: ignore[operator]
    assert describe(task) == text
    assert flops is None or task_flops(task) == flops


def test_what_an_anchor_has_to_compute_counts_products_ahead_of_it_but_nothing_hidden() -> None:
    plain, causal = attention((2,), 8, 8, 4, 6), attention((2,), 8, 8, 4, 6, causal=0)
    assert anchor_flops(plain) == 2 * 2 * 8 * 8 * (4 + 6)
    assert anchor_flops(causal) == 2 * 2 * 36 * (4 + 6)


def test_a_value_does_not_move_away_from_views_of_it_that_are_settled() -> None:
    n = Net()
    whole = n.op("relu", n.feed("x", 4, 8, 16))
    rows = n.op("exp", n.op("reshape", whole, shape=(4, 8 * 16)))
    turned = n.op("transpose", n.op("reshape", whole, shape=(4, 8, 4, 4)), perm=(1, 0, 2, 3))
    other = n.op("exp", n.op("reshape", turned, shape=(32, 4, 4)))
    part = place(n.finish([("rows", rows), ("other", other)], None))
    assert part.placements.keys() == part.graph.types.keys()

"""Where values lie, and what still has to be copied."""

from __future__ import annotations

import numpy as np

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.placement.types import Partition, Placement
from tests.unit.graph.nets import TO_NCHW, TO_NHWC, Net, random_feeds
from tests.unit.graph.oracle import run_partition

MOVERS = ("copy", "transpose", "reshape", "slice", "concat")


def placed(graph: Graph) -> Partition:
    """The partition, run on real memory and compared with the graph."""
    part = partition(optimize(graph))
    feeds = random_feeds(graph)
    got, expected = run_partition(part, feeds), run_graph(graph, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4)
    return part


def movers(part: Partition) -> list[str]:
    return [call.task.op for call in part.calls if call.task.op in MOVERS]


def pooled(net: Net, value: str) -> str:
    return net.op("reduce_mean", value, axes=(2, 3), keepdims=False)


def output_of(part: Partition, op: str, number: int = 0) -> Placement:
    """Where the output of the number-th call of that op lies."""
    call = [c for c in part.calls if c.task.op == op][number]
    return part.placements[dict(call.args)["o0"]]


def test_padding_is_a_halo_of_the_value_that_is_read() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4, k=5))
    part = placed(n.graph(pooled(n, n.conv(x, 4))))
    read = part.calls[2].task.value("i0").layout
    assert read.halo == ((0, 0), (1, 1), (1, 1), (0, 0))
    assert read.strides == (320, 40, 4, 1)
    assert part.storages[output_of(part, "conv2d").storage].zeroed


def test_halo_is_the_largest_of_the_readers_and_each_task_names_its_own() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4, k=1))
    both = n.op("concat", n.conv(x, 4), n.conv(x, 4, k=5), axis=1)
    part = placed(n.graph(pooled(n, both)))
    inputs = [c.task.value("i0").layout for c in part.calls if c.task.op == "conv2d"][1:]
    assert [layout.halo[1] for layout in inputs] == [(1, 1), (2, 2)]
    assert len({layout.strides for layout in inputs}) == 1


def test_storages_of_one_haloed_layout_may_share_memory() -> None:
    n = Net()
    x = n.conv(n.conv(n.conv(n.feed("x", 1, 4, 8, 8), 4), 4), 4)
    part = placed(n.graph(pooled(n, x)))
    assert len({s.sharing for s in part.storages.values() if s.zeroed}) == 1


def test_a_graph_input_has_no_halo_but_its_transposed_copy_has() -> None:
    n = Net()
    part = placed(n.graph(pooled(n, n.conv(n.feed("x", 1, 3, 8, 8), 4))))
    assert movers(part) == ["transpose"]
    assert part.placements["x"].layout.strides == (192, 64, 8, 1)
    assert output_of(part, "transpose").layout.halo[1] == (1, 1)


def test_a_convolution_of_a_graph_input_pads_itself() -> None:
    n = Net()
    x = n.op(
        "conv2d", n.feed("x", 1, 8, 8, 3), n.weights(3, 3, 3, 4),
        strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1,
    )  # fmt: skip
    part = placed(n.graph(x))
    assert part.calls[0].task.value("i0").layout.halo == ((0, 0),) * 4
    assert part.storages["x"].kind == "input"


def test_concat_operands_are_written_in_place() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4))
    both = n.op("concat", n.conv(x, 4), n.conv(x, 6, k=1), n.conv(x, 2), axis=1)
    part = placed(n.graph(pooled(n, both)))
    places = [output_of(part, "conv2d", i) for i in (1, 2, 3)]
    assert movers(part) == ["transpose"]
    assert len({p.storage for p in places}) == 1
    assert [p.offset for p in places] == [0, 4, 10]


def test_concats_that_grow_nest_without_copies() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4))
    for _ in range(3):
        grown = n.conv(n.op("relu", n.batch_norm(x)), 2)
        x = n.op("concat", x, grown, axis=1)
    part = placed(n.graph(pooled(n, x)))
    assert movers(part) == ["transpose"]
    assert len({output_of(part, "conv2d", i).storage for i in range(4)}) == 1


def test_a_concat_read_with_padding_has_a_halo_around_its_operands() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 4))
    both = n.op("concat", n.conv(x, 4, k=1), n.conv(x, 4), axis=1)
    part = placed(n.graph(pooled(n, n.conv(both, 4))))
    assert output_of(part, "conv2d", 1).layout.strides == (640, 80, 8, 1)
    assert output_of(part, "conv2d", 1).offset == 88


def test_operands_that_cannot_move_are_copied_into_the_concat() -> None:
    n = Net()
    x, made = n.feed("x", 2, 3), n.op("relu", n.feed("y", 2, 3))
    part = placed(n.graph(n.op("concat", x, made, made, n.weights(2, 1), axis=1)))
    assert movers(part) == ["copy"] * 3


def test_a_value_in_two_concats_is_copied_once() -> None:
    n = Net()
    a, b, c = (n.op("relu", n.feed(name, 2, 3)) for name in "abc")
    part = placed(n.graph(n.op("concat", a, b, axis=1), n.op("concat", b, c, axis=1)))
    assert movers(part) == ["copy"]


def test_slices_are_read_in_place() -> None:
    n = Net()
    x = n.op("exp", n.feed("x", 4, 6))
    half = n.op("slice", x, starts=(0, 3), stops=(4, 6), steps=(1, 1))
    part = placed(n.graph(n.op("softmax", half, axis=1)))
    assert movers(part) == []
    assert part.calls[-1].task.value("i0").layout.strides == (6, 1)


def test_attention_moves_nothing() -> None:
    n = Net()
    x = n.op("tanh", n.feed("x", 1, 6, 16))
    part = placed(n.graph(n.linear(n.attention(x, heads=2), 16)))
    assert movers(part) == []
    heads = [c for c in part.calls if c.task.value("o0").type.shape == (1, 2, 6, 8)]
    assert [c.task.value("o0").layout.strides for c in heads] == [(16, 8, 16, 1)]


def test_a_channel_shuffle_is_one_kernel_that_writes_into_the_halo() -> None:
    n = Net()
    x = n.conv(n.feed("x", 1, 3, 5, 5), 6)
    mixed = n.op("transpose", n.op("reshape", x, shape=(1, 2, 3, 5, 5)), perm=(0, 2, 1, 3, 4))
    shuffled = n.op("reshape", mixed, shape=(1, 6, 5, 5))
    part = placed(n.graph(pooled(n, n.conv(shuffled, 6, groups=6))))
    assert movers(part) == ["transpose", "transpose"]
    assert part.calls[-2].task.value("i0").layout.halo[1] == (1, 1)


def test_a_contraction_never_reads_in_steps() -> None:
    n = Net()
    x = n.op("transpose", n.op("exp", n.feed("x", 5, 4)), perm=(1, 0))
    part = placed(n.graph(n.op("matmul", x, n.weights(5, 3), transpose_b=False)))
    assert movers(part) == ["transpose"]


def test_flattening_a_haloed_value_is_a_kernel() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 4, 4), 4))
    flat = n.op("reshape", x, shape=(1, 64))
    part = placed(n.graph(n.linear(flat, 3), pooled(n, n.conv(x, 4))))
    assert movers(part) == ["transpose", "reshape"]


def test_outputs_are_dense_arrays_of_the_caller() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 4, 4), 4))
    part = placed(n.graph(x, n.conv(x, 2)))
    for _, value in part.graph.outputs:
        place = part.placements[value]
        assert (part.storages[place.storage].kind, place.offset) == ("output", 0)
        assert not part.storages[place.storage].zeroed


def test_a_reshaped_output_is_written_at_once() -> None:
    n = Net()
    x = n.op("transpose", n.op("relu", n.feed("x", 2, 3, 4)), perm=(1, 0, 2))
    assert movers(placed(n.graph(n.op("reshape", x, shape=(3, 8))))) == []


def test_one_value_as_two_outputs_is_copied() -> None:
    n = Net()
    x = n.op("relu", n.feed("x", 3))
    assert movers(placed(n.graph(x, x))) == ["copy"]


def test_inputs_and_constants_can_be_outputs() -> None:
    n = Net()
    assert movers(placed(n.graph(n.feed("x", 3), n.weights(2)))) == ["copy", "copy"]


def test_an_output_that_is_also_in_a_concat_keeps_its_own_array() -> None:
    n = Net()
    x = n.op("relu", n.feed("x", 2, 3))
    part = placed(n.graph(x, n.op("concat", x, n.op("exp", x), axis=1)))
    assert movers(part) == ["copy"]


def test_a_transposed_output_of_a_convolution_is_a_kernel() -> None:
    n = Net()
    image = n.op("transpose", n.conv(n.feed("x", 1, 3, 4, 4), 4), perm=TO_NHWC)
    part = placed(n.graph(n.op("transpose", n.op("relu", image), perm=TO_NCHW)))
    assert movers(part) == ["transpose", "transpose"]


def test_views_of_a_graph_input_are_read_in_place() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 4, 6), shape=(2, 2, 6))
    heads = n.op("transpose", x, perm=(1, 0, 2))
    part = placed(n.graph(n.op("matmul", heads, n.weights(2, 6, 3), transpose_b=False)))
    assert movers(part) == []
    assert part.calls[0].task.value("i0").layout.strides == (6, 12, 1)

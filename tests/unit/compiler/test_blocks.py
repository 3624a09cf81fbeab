"""Parts of a graph that are repeated for blocks of their operands, some of them inside of others,
against numpy and against the same without blocks."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from autotune.codegen.base import REPEATED, SKIPPED
from autotune.compiler.open_sizes import OpenParts, open_image
from autotune.compiler.strip_lengths import drawn_values
from autotune.errors import ModelError
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.graph.strips.open_rows import OpenRowStrips
from autotune.graph.strips.rows import RowStrips
from autotune.ops import OPS
from autotune.placement.memory_plan import lifetimes
from autotune.placement.partition import partition
from autotune.placement.repeats import with_steps
from autotune.placement.types import Partition
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import size_ranges
from autotune.types import Attrs, TensorType
from tests.unit.compiler.open_models import FLOAT, model_of, weight
from tests.unit.compiler.test_open_row_strips import TARGET, in_strips, parts

BODY = (
    ("add", ("m0", "f0"), "a", ()),
    ("slice", ("a",), "b", (("starts", (0, 1)), ("steps", (1, 1)), ("stops", (2, 3)))),
)


def attrs(count: int) -> Attrs:
    return {
        "moving": 1, "axis": 1, "count": count, "starts": (1,), "steps": (2,), "lengths": (4,),
        "body": BODY,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 3])
def test_blocks_overlap_where_they_read_and_lie_side_by_side_where_they_write(count: int) -> None:
    x, y = np.arange(20, dtype=np.float32).reshape(2, 10), np.ones(1, np.float32)
    made = OPS.get("blocks").reference([x, y], attrs(count))
    inner = x[:, 2 : 2 + 2 * count] + 1
    np.testing.assert_array_equal(made, inner)
    types = [TensorType(dtype="float32", shape=a.shape) for a in (x, y)]
    assert OPS.get("blocks").infer(types, attrs(count)).shape == made.shape


def test_what_does_not_move_is_refused() -> None:
    kind = TensorType(dtype="float32", shape=(2, 10))
    for wrong in ({"moving": 0}, {"moving": 3}, {"steps": (1, 2)}):
        with pytest.raises(ModelError):
            OPS.get("blocks").infer([kind, kind], {**attrs(1), **wrong})


def cut() -> Partition:
    opened = parts()
    step = OpenRowStrips(estimate=RowStrips(cache_bytes=0), rows=8)
    found = step.run(opened.graph, drawn_values(opened.symbols, 4))
    assert found is not None
    return with_steps(partition(found.graphs[0]), lambda graph: graph)


@pytest.mark.slow
def test_strips_are_repeated_inside_of_images() -> None:
    """As many trips as there are images, and strips but for two, perhaps none."""
    images, strips = cut().repeats
    assert images.first <= strips.first <= strips.last <= images.last
    assert "N" in str(images.trips)
    assert "H" in str(strips.trips)
    (_, plan) = in_strips().plans
    assert [plan.table.drivers.count(name) for name in (REPEATED, SKIPPED)] == [2, 1]


def test_zeros_around_what_strips_hand_on_are_written_before_the_first_of_them() -> None:
    """And so nothing else lies there until the last one is done."""
    made = cut()
    images, strips = made.repeats
    haloed = {name for name, storage in made.storages.items() if storage.zeroed}
    lives = {name: life for name, life in lifetimes(made).items() if name in haloed}
    assert set(lives.values()) == {(images.first, images.last), (strips.first, strips.last)}


@pytest.mark.slow
def test_strips_that_begin_with_a_filter_read_zeros_that_lie_in_memory() -> None:
    """As kernels in strips of columns do; others go through loops of any length."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, group=16),
        node("Conv", ["c", "w3"], ["y"]),
    ]
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 16, 1, 3, 3), weight("w3", 4, 16, 1, 1)]
    proto = model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, [None] * 4, weights)
    opened = open_model(proto, None)
    assert not isinstance(opened, Graph)
    ranges = size_ranges({"N": (1, 2, 1), "H": (16, 64, 1), "W": (16, 64, 1)}, opened.symbols)
    step = OpenRowStrips(estimate=RowStrips(cache_bytes=0), rows=4)
    made = OpenParts.of(opened, ranges, TARGET, None)
    image, _ = open_image(made, versions=(), strips=step)
    (_, plan) = image.plans
    filters = [
        number for number, name in enumerate(plan.table.drivers) if name.startswith("k_conv2d")
    ]
    assert (plan.table.lengths[filters].max(axis=1) > 0).all()
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, h, w in ((1, 16, 16), (2, 35, 64)):
        x = np.random.default_rng(h).standard_normal((n, 3, h, w)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(
            SizedModel.of(image).run({"x": x})["y"], want, rtol=1e-3, atol=1e-4
        )

"""Samples of open sizes are timed as the model calls them: what the caches hold is worked out for
the sizes that count."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import onnx
import pytest
from onnx import helper

from autotune.compiler.open_sizes import OpenParts
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.placement.at_sizes import partition_at
from autotune.placement.memory_plan import plan_memory
from autotune.placement.reuse_distance import CODE
from autotune.size_ranges import size_ranges
from autotune.sizes import is_size
from autotune.target import host_target
from autotune.tuner.open_sizes import samples_of
from autotune.tuner.open_timing import between_calls
from tests.unit.compiler.open_models import FLOAT, attention, convolutions, model_of, weight
from tests.unit.compiler.test_open_recurrent import layer as recurrent
from tests.unit.machine.samples import PROFILE

IMAGES = {"N": (1, 2), "H": (8, 64, 4), "W": (8, 64, 4)}


def layer() -> onnx.ModelProto:
    """A product with weights of 1 MB."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs: dict[str, tuple[int, list[object]]] = {"x": (FLOAT, ["N", "H", 512])}
    return model_of(nodes, inputs, ["N", "H", 512], [weight("w", 512, 512)])


def parts_of(made: object, ranges: dict[str, tuple[int, ...]]) -> OpenParts:
    model = open_model(made)  # type: ignore[arg-type]
    assert not isinstance(model, Graph)
    allowed = size_ranges(ranges, model.symbols)  # type: ignore[arg-type]
    return OpenParts.of(model, allowed, host_target(), None)


@pytest.mark.parametrize(
    ("made", "ranges", "values"),
    [
        (convolutions, IMAGES, {"N": 2, "H": 5, "W": 3}),
        (attention, {"B": (1, 4), "S": (1, 40)}, {"B": 2, "S": 17}),
        (partial(recurrent, "GRU"), {"T": (1, 7), "B": (1, 2)}, {"T": 5, "B": 2}),
    ],
)
def test_a_partition_at_sizes_has_room_for_all_that_calls_use(
    made: object, ranges: dict[str, tuple[int, ...]], values: dict[str, int]
) -> None:
    opened = parts_of(made(), ranges)  # type: ignore[operator]
    assert set(values) == {unit.name for unit in opened.units}
    fixed = partition_at(opened.parts, values)
    assert plan_memory(fixed).arena_bytes > 0
    slots = [slot for repeat in fixed.repeats for slot in repeat.slots]
    assert not any(is_size(slot.start) or is_size(slot.step) for slot in slots)
    assert not any(is_size(e) for kind in fixed.graph.types.values() for e in kind.shape)
    for call in fixed.calls:
        for name, value in call.args:
            kind, place = fixed.graph.types[value], fixed.placements[value]
            assert call.task.value(name).type == kind
            before, after = place.layout.span(kind.shape)
            assert place.offset >= before
            assert place.offset + after <= fixed.storages[place.storage].elements


def test_weights_are_as_old_as_a_run_for_the_first_piece_of_a_call() -> None:
    opened = parts_of(layer(), {"N": (1, 2), "H": (2, 400)})
    found = samples_of(opened, [{"N": 1, "H": 400}], None)
    ((_, called),) = found.sets
    ((sample, pieces),) = called.values()
    assert pieces > 1
    between = between_calls(opened.parts, found.sets, PROFILE)
    weights = sum(a.nbytes for a in opened.parts.graph.constants.values())
    assert between.foreign_bytes > weights
    assert between.apart_s > 0
    shares: dict[str, float] = defaultdict(float)
    old = 0.0
    for name, _, age_s, share in between.reuse_distances[sample.key]:
        shares[name] += share
        old += share * (name == "c0" and age_s > 1e-5)
    assert shares == pytest.approx(dict.fromkeys((CODE, "i0", "c0", "o0"), 1.0))
    assert old == pytest.approx(1 / pieces, rel=0.01)

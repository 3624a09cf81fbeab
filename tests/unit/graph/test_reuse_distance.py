"""How long ago the memory of a kernel was used last."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from autotune.compiler.prepare import prepare
from autotune.frontend import load_model
from autotune.graph.build import GraphBuilder
from autotune.placement.memory_plan import plan_memory
from autotune.placement.partition import partition
from autotune.placement.reuse_distance import CODE, ReuseDistance, reuse_distances
from autotune.placement.types import Partition
from autotune.types import TensorType

CALL_S = 0.25


def tiny() -> tuple[Partition, dict[str, tuple[ReuseDistance, ...]]]:
    parts = partition(prepare(load_model("zoo:tiny"), "float32").graph)
    return parts, reuse_distances(parts, [CALL_S] * len(parts.calls))


def test_every_value_and_the_code_have_ages_that_make_a_whole() -> None:
    parts, found = tiny()
    assert found.keys() == {task.key for task in parts.weights()}
    for task in parts.weights():
        shares: dict[str, float] = defaultdict(float)
        for name, age_bytes, age_s, share in found[task.key]:
            assert age_bytes >= 0
            assert age_s > 0
            shares[name] += share
        assert set(shares) == {v.name for v in task.params} | {CODE}
        assert all(abs(total - 1) < 1e-6 for total in shares.values())


def test_an_output_over_an_input_finds_what_was_just_read() -> None:
    b = GraphBuilder("residual")
    weights = b.constant(np.ones((1, 1, 64, 64), np.float32))
    x = b.input("x", TensorType(dtype="float32", shape=(1, 64, 64, 64)))
    first = b.op("conv2d", x, weights)
    second = b.op("conv2d", first, weights)
    third = b.op("add", b.op("conv2d", second, weights), first)
    graph = b.finish([("y", b.op("conv2d", third, weights))])
    parts = partition(prepare(graph, "float32").graph)
    assert len(plan_memory(parts).in_place) == 1
    found = reuse_distances(parts, [CALL_S] * len(parts.calls))
    plain, over = (
        [age[1] for age in found[call.task.key] if age[0] == call.task.by_role("output")[0].name]
        for call in (parts.calls[0], parts.calls[2])
    )
    assert max(plain) > 0
    assert over == [0]


def test_weights_are_as_old_as_what_a_run_makes_of_them() -> None:
    parts, plain = tiny()
    task, *_ = (t for t in parts.weights() if t.by_role("constant"))
    (name, *_) = (v.name for v in task.by_role("constant"))
    nbytes = 64 << 20
    packed = {task.key: {name: nbytes}}
    found = reuse_distances(parts, [CALL_S] * len(parts.calls), packed=packed)

    def oldest(ages: tuple[ReuseDistance, ...]) -> int:
        return max(age_bytes for of, age_bytes, _, _ in ages if of == name)

    assert oldest(plain[task.key]) < nbytes // 2 <= oldest(found[task.key])
    other = next(t for t in parts.weights() if t.by_role("constant") and t != task)
    (behind, *_) = (v.name for v in other.by_role("constant"))
    assert any(of == behind and age >= nbytes // 2 for of, age, _, _ in found[other.key])


def test_weights_were_used_a_run_ago_and_inputs_by_the_call_before() -> None:
    parts, found = tiny()
    second = parts.calls[1].task
    seconds = {name: age_s for name, _, age_s, _ in found[second.key]}
    assert seconds[second.by_role("constant")[0].name] >= CALL_S * (len(parts.calls) - 1) / 2
    assert seconds[second.by_role("input")[0].name] <= 2 * CALL_S

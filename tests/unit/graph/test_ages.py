"""How long ago the memory of a kernel was used last."""

from __future__ import annotations

from collections import defaultdict

from autotune.frontend import load_model
from autotune.graph.ages import ages_of
from autotune.graph.partition import partition
from autotune.graph.plan import Partition
from autotune.graph.prepare import prepare
from autotune.measure.types import CODE, Age

CALL_S = 0.25


def tiny() -> tuple[Partition, dict[str, tuple[Age, ...]]]:
    parts = partition(prepare(load_model("zoo:tiny"), "float32").graph)
    return parts, ages_of(parts, [CALL_S] * len(parts.calls))


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


def test_weights_were_used_a_run_ago_and_inputs_by_the_call_before() -> None:
    parts, found = tiny()
    second = parts.calls[1].task
    seconds = {name: age_s for name, _, age_s, _ in found[second.key]}
    assert seconds[second.by_role("constant")[0].name] >= CALL_S * (len(parts.calls) - 1) / 2
    assert seconds[second.by_role("input")[0].name] <= 2 * CALL_S

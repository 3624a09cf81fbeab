"""Defaults for a whole model: they depend on the cache that is really there, and on nothing where
it makes no difference."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.compiler.together import (
    chosen_together,
    packed_weights,
    problem_together,
    weighty_defaults,
)
from autotune.compiler.work import scheduled_weights
from autotune.graph.build import GraphBuilder
from autotune.machine import Machine
from autotune.machine.curves import Curve
from autotune.machine.profile import DeviceProfile
from autotune.placement.memory_plan import plan_memory
from autotune.placement.types import Partition
from autotune.types import TensorType
from cost_model.alternatives import alternatives
from search_spaces.rules import rule_for
from tests.unit.compiler.records import record_of
from tests.unit.tuner.fakes import MemoryStore

MACHINES = Path(__file__).parents[3] / "benchmarks" / "data" / "machines"
KNOWN = DeviceProfile.from_json(json.loads((MACHINES / "granite_rapids.json").read_text()))
MB = 1 << 20


def convolutions(layers: int = 3, channels: int = 128) -> Partition:
    """3x3 convolutions of few points: their weights are most of what they touch."""
    b = GraphBuilder("convolutions")
    rng = np.random.default_rng(0)
    value = b.input("x", TensorType(dtype="float32", shape=(1, 8, 8, channels)))
    for _ in range(layers):
        weights = rng.standard_normal((3, 3, channels, channels)).astype(np.float32)
        value = b.op("conv2d", value, b.constant(weights), pads=(1, 1, 1, 1))
    return arranged(prepare(b.finish([("y", value)]), "float32").graph, KNOWN.target)


def machine_with(curve: Curve) -> DeviceProfile:
    """The known machine with another load curve."""
    assert KNOWN.facts is not None
    return dataclasses.replace(KNOWN, facts=dataclasses.replace(KNOWN.facts, load_curve=curve))


def cache_of(nbytes: int) -> DeviceProfile:
    """30 GB/s out of a cache of this size, 2 GB/s beyond it."""
    near = ((32 << 10, 250e9), (2 * MB, 180e9))
    return machine_with((*near, (3 * MB, 30e9), (nbytes, 30e9), (nbytes * 5 // 4, 2e9)))


def test_the_curve_says_how_fast_operands_of_a_footprint_come() -> None:
    machine = Machine.of(KNOWN.target, KNOWN)
    sizes = [1 * MB, 10 * MB, 100 * MB, 200 * MB, 400 * MB, 1000 * MB]
    speeds = [machine.among(size).cpu.memory_stream_bytes_per_cycle for size in sizes]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] == machine.cpu.l3_stream_bytes_per_cycle
    assert speeds[-1] == pytest.approx(machine.cpu.memory_stream_bytes_per_cycle)
    # In a model of a few bytes, what is more than these comes as its own size does.
    first = machine.among(1 * MB).first_stream_bytes_per_cycle
    assert [first(size) for size in sizes] == pytest.approx(speeds)
    assert machine.among(1000 * MB).first_stream_bytes_per_cycle(1 * MB) == speeds[-1]
    plain = Machine.of(KNOWN.target, dataclasses.replace(KNOWN, facts=None))
    assert plain.among(1 * MB) is plain
    assert plain.first_stream_bytes_per_cycle(1) == plain.cpu.memory_stream_bytes_per_cycle


def test_a_model_of_any_size_has_no_say_where_memory_is_as_fast_as_the_cache() -> None:
    parts = convolutions()
    plan = plan_memory(parts)
    level = machine_with(((32 << 10, 250e9), (2 * MB, 30e9), (64 * MB, 30e9)))
    assert chosen_together(parts, plan, KNOWN.target, None, level) == {}
    assert chosen_together(parts, plan, KNOWN.target, None, None) == {}


def test_a_cache_decides_by_what_fits_into_it() -> None:
    parts = convolutions()
    plan = plan_memory(parts, lend=KNOWN.target.lends_halos)
    touched = []
    for size in (4 * MB, 8 * MB):
        found = problem_together(parts, plan, KNOWN.target, None, cache_of(size))
        assert found is not None
        best, alone = found.choices.cheapest(), found.choices.alone()
        assert found.choices.total_s(best) < found.choices.total_s(alone)
        touched.append(found.choices.footprint(best))
    small, large = touched
    assert small < large
    # Where not even the weights as they are stay, all of them come from memory.
    assert problem_together(parts, plan, KNOWN.target, None, cache_of(2 * MB)) is None


def test_records_are_as_they_are_and_count() -> None:
    parts = convolutions()
    (task, *_) = parts.weights()
    plan = plan_memory(parts, lend=KNOWN.target.lends_halos)
    log = MemoryStore([record_of(task, KNOWN.target)])
    free = problem_together(parts, plan, KNOWN.target, None, cache_of(16 * MB))
    left = problem_together(parts, plan, KNOWN.target, log, cache_of(16 * MB))
    assert free is not None
    assert task in free.tasks
    others = set(free.tasks) - {task}
    assert (left is None and not others) or (left is not None and set(left.tasks) == others)


@pytest.mark.parametrize("known", [True, False])
def test_every_weight_has_a_default_and_its_packed_bytes(known: bool) -> None:
    parts = convolutions()
    profile = cache_of(16 * MB) if known else None
    defaults = weighty_defaults(parts, KNOWN.target, profile)
    assert defaults.keys() == {t for t in parts.weights() if t.by_role("constant")}
    packed = packed_weights(parts, KNOWN.target, None, defaults)
    for task, config in defaults.items():
        schedule = rule_for(task, KNOWN.target).schedule(task, KNOWN.target, config)
        assert packed[task.key] == scheduled_weights(task, schedule)
        assert all(packed[task.key].values())


def test_one_of_the_alternatives_is_the_default() -> None:
    machine = Machine.of(KNOWN.target, KNOWN)
    algorithms = set()
    for task in convolutions().weights():
        rule = rule_for(task, KNOWN.target)
        found = alternatives(task, (machine, machine), rule)
        best = min(found, key=lambda a: a.seconds[0])
        default = cost_model.default(task, machine, rule)
        assert best.config["algorithm"] == default["algorithm"]
        least = cost_model.predict(task, machine, [default], rule).seconds[0]
        assert best.seconds[0] <= least * (1 + 1e-9)
        algorithms |= {a.config["algorithm"] for a in found}
    assert len(algorithms) > 1

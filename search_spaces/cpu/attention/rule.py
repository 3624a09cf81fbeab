"""Attention: a softmax between two products, in one kernel over blocks of rows.

Params, schedule and prior are those of its one algorithm, `search_spaces.algorithms.attention`.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.schedule import Scheduled
from autotune.sizes import greatest, is_size
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.attention import ONLINE_SOFTMAX, ideal_cycles, unrolled
from search_spaces.base import RULES, OpenBlocks, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.attention.shape import AttentionTask, accesses_of, attention_of, split_rows
from search_spaces.params import Config
from search_spaces.space import Configs, Space

_VECTORS = (1, 2, 3, 4, 6, 8, 16, 32)
"""Vectors of keys in a block, where only a run knows how many there are."""


class AttentionRule(Rule):
    """A softmax between two products, scheduled by the one algorithm for it."""

    name = "attention"
    priority = 20
    sampled_rows = 50_000

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and attention_of(task) is not None

    def space(self, task: Task, target: Target) -> Space:
        a = _described(task)
        params = ONLINE_SOFTMAX.params(a, target)
        return Space(params, ONLINE_SOFTMAX.constraints(a, target))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        ONLINE_SOFTMAX.write(builder, _described(task), config, target)
        return builder.scheduled

    def open_blocks(self, task: Task, target: Target) -> OpenBlocks | None:
        a = _described(task)
        if not is_size(a.keys):
            return None
        lanes, most = target.lanes(), greatest(a.keys)
        keys = [lanes * n for n in _VECTORS if n == 1 or lanes * n < 2 * most]
        return OpenBlocks(
            extents={"keys": a.keys, "rows": a.rows},
            times=a.count,
            tried=tuple({"keys": k} for k in keys),
        )

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        a = _described(task)
        number = {p: configs[p].astype(np.float64) for p in configs}
        ones, lanes = np.ones(len(number["rows"])), target.lanes()
        held = [number[f"{w}_tile"] * number[f"{w}_vectors"] for w in ("score", "mix")]
        rows = np.minimum(number["rows"], a.rows)
        blocks = np.ceil(a.rows / number["rows"])
        return TileStructure(
            extents={"batch": a.count, "row": a.rows, "key": a.keys, "depth": a.depth},
            reduce_axes=frozenset(("key", "depth")),
            accesses=accesses_of(a),
            tiles=(
                {"batch": ones},
                {"row": rows, "key": np.minimum(number["keys"], a.keys)},
                {
                    "row": np.minimum(number["score_tile"], rows),
                    "key": np.minimum(number["score_vectors"] * lanes, a.keys),
                },
            ),
            flops=task_flops(task),
            accumulators=np.maximum(*held),
            vector_axis_waste=ones,
            modelled=np.ones(len(ones), bool),  # below 1 where a mask leaves blocks out
            parallel_chunks=a.count * (blocks if split_rows(a, target) else ones),
            unrolled=unrolled(a, configs, lanes),
            extra=number,
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        a = _described(task)
        peak = ideal_cycles(a, machine.target)
        return Prior(cycles=ONLINE_SOFTMAX.cycles(a, machine, configs), peak_cycles=peak)


def _described(task: Task) -> AttentionTask:
    found = attention_of(task)
    assert found is not None
    return found


RULES.add(AttentionRule.name, AttentionRule())

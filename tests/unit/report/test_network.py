"""The network as a drawing: who reads from whom, and where edges run."""

from __future__ import annotations

import re

from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.report.network import Call, calls_of, drawing, lanes
from tests.unit.graph.nets import Net
from tests.unit.report.samples import tiny


def call(*inputs: int) -> Call:
    return Call(key="k", what="op", name="node", inputs=inputs)


def test_a_chain_runs_in_one_lane() -> None:
    assert lanes([call(), call(0), call(1)]) == (0, 0, 0)


def test_a_branch_runs_beside_what_is_read_later() -> None:
    assert lanes([call(), call(0), call(0), call(1, 2), call(3)]) == (0, 1, 0, 0, 0)


def test_no_two_results_that_are_read_later_share_a_lane() -> None:
    calls = [call(), call(0), call(0), call(0), call(1, 2), call(3, 4)]
    found = lanes(calls)
    last = {i: n for n, c in enumerate(calls) for i in c.inputs}
    for number in range(len(calls)):
        held = [found[i] for i in range(number) if last.get(i, i) > number]
        assert len(set(held)) == len(held)
        assert found[number] not in held


def test_every_call_reads_from_those_that_wrote_its_inputs() -> None:
    n = Net()
    x = n.feed("x", 1, 8, 9, 9)
    a = n.op("relu", n.conv(x, 8, k=3))
    b = n.op("relu", n.conv(a, 8, k=3))
    parts = partition(optimize(n.graph(n.op("add", n.conv(b, 8, k=1), a))))
    calls = calls_of(parts)
    made = {name: i for i, c in enumerate(calls) for name in [c.name]}
    assert len(made) == len(parts.calls)
    assert all(i < number for number, c in enumerate(calls) for i in c.inputs)
    first = next(number for number, c in enumerate(calls) if c.what.startswith("conv2d"))
    readers = [number for number, c in enumerate(calls) if first in c.inputs]
    assert len(readers) == 2


def test_text_of_the_model_is_escaped_and_every_call_drawn() -> None:
    evil = Call(key="k", what="<b>op", name="</svg><script>", inputs=())
    text = drawing([evil, call(0)], {"k": 1e-3}, {"k": "1 ms"})
    assert "<script" not in text
    assert "<b>" not in text
    assert text.count("<circle") == 2
    assert len(re.findall('class="edge"', text)) == 1
    assert len(calls_of(tiny())) == len(tiny().calls)

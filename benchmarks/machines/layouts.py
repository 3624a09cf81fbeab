"""What other layouts of activations could win, op by op, over channels last.

    python benchmarks/machines/layouts.py [--min-gain 0.02] [--only "1024 gap"]

In: nothing. Out: a line per op and shape: its time in NHWC, in another layout, and what changing
an operand's layout costs (its bytes at copy bandwidth). `blocked`: 64 channels of all points side
by side, as NHWC with the blocks for a batch, for ops that treat channels apart; `padded`: points
a cache line further apart than their channels need; `gap`: as much further as graphs move those
under a window; `fourth`: a channel of zeros more, where there are three. Each with its default
schedule; the fastest runs count.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cost_model
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.ops import OPS
from autotune.placement.stride_padding import padding_of
from autotune.schedule import Schedule
from autotune.target import Target, load_target
from autotune.types import Attr, Layout, Task, TaskNode, TaskValue, TensorType, freeze_attrs
from search_spaces.rules import rule_for

TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.3)
BLOCK, LINE, GAP = 64, 16, padding_of("float32", load_target("x86-64-v3"))
"""Channels of a block; floats of a cache line, and of what graphs leave free after a point."""
Shape = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An op in channels last and in another layout."""

    name: str
    layout: str
    plain: Task
    other: Task


def task(op: str, x: Shape, weights: Sequence[int], gap: int = 0, **attrs: Attr) -> Task:
    """A task of one op; points of its input lie `gap` floats further apart than necessary."""
    pads = attrs.get("pads", (0, 0, 0, 0))
    assert isinstance(pads, tuple)
    halo = ((0, 0), (int(pads[0]), int(pads[2])), (int(pads[1]), int(pads[3])), (0, gap))
    layout = Layout.haloed(x, halo)
    values = [TaskValue(name="i0", type=_floats(x), role="input", layout=layout)]
    names = ["i0"]
    if weights:
        shape = tuple(weights)
        values.append(_dense("c0", shape, "constant"))
        names.append("c0")
    node = TaskNode(op=op, inputs=tuple(names), outputs=("o0",), attrs=freeze_attrs(attrs))
    result = OPS.get(op).infer([v.type for v in values], attrs)
    values.append(_dense("o0", result.shape, "output"))
    return Task(nodes=(node,), values=tuple(values), anchor=0)


def _floats(shape: tuple[int, ...]) -> TensorType:
    return TensorType(dtype="float32", shape=shape)


def _dense(name: str, shape: tuple[int, ...], role: str) -> TaskValue:
    return TaskValue(name=name, type=_floats(shape), role=role, layout=Layout.dense(shape))


def blocked(x: Shape) -> Shape:
    return (x[0] * x[3] // BLOCK, x[1], x[2], BLOCK)


def choices() -> Iterator[Choice]:
    """Ops and shapes of image networks, and larger batches of them."""
    for n in (1, 4, 16):
        for side, channels in ((56, 64), (56, 256), (28, 512), (14, 1024), (7, 1024), (7, 2048)):
            x = (n, side, side, channels)
            where = "x".join(map(str, x))
            pool: dict[str, Attr] = {
                "kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1),
            }  # fmt: skip
            for op in ("max_pool2d", "avg_pool2d"):
                plain, other = task(op, x, (), **pool), task(op, blocked(x), (), **pool)
                yield Choice(name=f"{op} {where}", layout="blocked", plain=plain, other=other)
                other = task(op, x, (), GAP, **pool)
                yield Choice(name=f"{op} {where}", layout="gap", plain=plain, other=other)
            attrs: dict[str, Attr] = {"pads": (1, 1, 1, 1), "strides": (1, 1), "groups": channels}
            each = attrs | {"groups": BLOCK}
            plain = task("conv2d", x, (3, 3, 1, channels), **attrs)
            other = task("conv2d", blocked(x), (3, 3, 1, BLOCK), **each)
            yield Choice(name=f"depthwise {where}", layout="blocked", plain=plain, other=other)
            other = task("conv2d", x, (3, 3, 1, channels), GAP, **attrs)
            yield Choice(name=f"depthwise {where}", layout="gap", plain=plain, other=other)
            weights = (1, 1, channels, 256)
            plain, other = (task("conv2d", x, weights, gap=gap) for gap in (0, LINE))
            yield Choice(name=f"1x1 {where}", layout="padded", plain=plain, other=other)
        for k, side, stride in ((7, 230, 2), (3, 226, 1)):
            images = [(n, side, side, c) for c in (3, 4)]
            attrs = {"strides": (stride, stride)}
            plain, other = (task("conv2d", x, (k, k, x[3], 64), **attrs) for x in images)
            name = f"{k}x{k} {n}x{side}x{side}x3"
            yield Choice(name=name, layout="fourth", plain=plain, other=other)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="what a line's name and layout must contain")
    parser.add_argument("--min-gain", type=float, default=0.02, help="share that is marked")
    options = parser.parse_args()
    target = load_target("cpu")
    found = [c for c in choices() if options.only in f"{c.name} {c.layout}"]
    with LocalRunner(target) as runner:
        profile = runner.profile()
        for choice in found:
            requests = tuple(
                MeasureRequest(task=t, schedule=_schedule(t, target), target=target, timing=TIMING)
                for t in (choice.plain, choice.other)
            )
            plain, other = (_seconds(r) for r in runner.measure(requests))
            moved = choice.plain.by_role("input")[0].type.nbytes
            level = next(
                v for v in profile.levels if not v.size_bytes or 2 * moved <= v.size_bytes
            )
            copy_s = moved / level.copy_bytes_per_s
            mark = " <" if plain - other > options.min_gain * plain else ""
            print(
                f"{choice.name:32} {choice.layout:8} NHWC {plain * 1e6:9.1f} us   other "
                f"{other * 1e6:9.1f} us ({plain / other:.2f}x)   change {copy_s * 1e6:7.1f} us"
                f"{mark}",
                flush=True,
            )


def _schedule(task: Task, target: Target) -> Schedule:
    rule = rule_for(task, target)
    return rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))


def _seconds(result: MeasureResult) -> float:
    if result.status != Status.OK:
        raise SystemExit(f"error: {result.status}: {result.error}")
    return min(result.times_s)


if __name__ == "__main__":
    main()

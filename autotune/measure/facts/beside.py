"""Overlap: additions beside multiply-adds, and the line that comes in beside one asked for.

In: a target. Out: two shares for MachineFacts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from autotune.measure.facts import texts
from autotune.measure.facts.timing import Clock, Loop, Loops, least_s, rounded
from autotune.measure.storage import aligned_bytes
from autotune.target import Target

CHAINS = 8
"""Chains of multiply-adds, and of additions: as many hide the latency of two a clock."""
LINES = 16
"""Touched in an iteration."""


def additions_text(name: str, lanes: int, *, beside: bool) -> str:
    """Chains of multiply-adds; `beside`: each with an addition that nothing waits for."""
    kind, fma = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    chains = [f"m{n}" for n in range(CHAINS)] + [f"s{n}" for n in range(CHAINS * beside)]
    start = [*texts.slot("a", kind, 0), *texts.slot("x", kind, 2)]
    start += [f"  %{c}.first = bitcast {kind} %x to {kind}" for c in chains]
    body = []
    for step in range(texts.UNROLL):
        for chain in chains:
            old = f"%{chain}" if step == 0 else f"%{chain}.{step}"
            new = f"%{chain}.next" if step == texts.UNROLL - 1 else f"%{chain}.{step + 1}"
            args = f"{kind} %a, {kind} %a, {kind} {old}"
            added = f"fadd {kind} {old}, %a"
            body.append(
                f"  {new} = " + (f"call {kind} {fma}({args})" if chain[0] == "m" else added)
            )
    kept = texts.kept([(kind, f"{c}.next") for c in chains], 3)
    declared = f"declare {kind} {fma}({kind}, {kind}, {kind})"
    loop = texts.function(name, [(kind, c) for c in chains], start, body, kept)
    return "\n".join([declared, loop])


def lines_text(name: str, step_bytes: int) -> str:
    """A word of LINES lines a round that begin so far apart, `blocks` rounds, over and over."""
    body = []
    for n in range(LINES):
        body += [
            f"  %p{n} = getelementptr i8, ptr %from, i64 {n * step_bytes}",
            f"  %v{n} = load volatile i64, ptr %p{n}, align 8",
        ]
    return texts.over_and_over(name, LINES * step_bytes, (), body)


class Beside:
    """Both, measured in turns."""

    def __init__(self, target: Target, clock: Clock) -> None:
        lanes, line = target.lanes(), texts.LINE_BYTES
        loops = Loops(_all_texts(lanes), target)
        slots = aligned_bytes((3 + 2 * CHAINS) * texts.SLOT_BYTES, 0)
        # Every other line of as much as the next cache holds with ease, and all of as many lines.
        held = max(target.l1_bytes * 4, target.l2_bytes // 2)
        data = aligned_bytes(held, 1)
        two, blocks = (ctypes.c_int64, ctypes.c_int64), held // (2 * line * LINES)
        timed = {n: Loop(loops.call(n), slots.ctypes.data) for n in ("alone", "both")}
        for name in ("every", "other"):
            call = loops.call(name, *two)
            timed[name] = Loop(
                lambda at, passes, call=call: call(at, blocks, passes),
                data.ctypes.data,
            )
        self._round_s = least_s(timed, clock)

    def additions(self) -> float:
        """Additions that go beside each multiply-add and take no time, 0 to 1."""
        longer = self._round_s["both"] / self._round_s["alone"]
        return rounded(min(1.0, max(0.0, 2.0 - longer)))

    def lone_line(self) -> float:
        """Share of a line that comes in vain beside each that is touched without its neighbour."""
        longer = self._round_s["other"] / self._round_s["every"]
        return rounded(min(1.0, max(0.0, longer - 1.0)))


def _all_texts(lanes: int) -> Iterator[str]:
    yield additions_text("alone", lanes, beside=False)
    yield additions_text("both", lanes, beside=True)
    yield lines_text("every", texts.LINE_BYTES)
    yield lines_text("other", 2 * texts.LINE_BYTES)

"""Least times of many short loops, taken in turns: who else has the core does not have it in all
of them. In: LLVM IR texts and a clock. Out: functions, and seconds of a round of each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence

from autotune.codegen.llvm.backend import load_text
from autotune.target import Target

SAMPLE_S = 1e-4
"""A sample is shorter than the turn that a system gives to somebody else."""
TURNS = 24
"""Timings of each loop, in turns with the others."""
_FIRST_ROUNDS = 64
"""Rounds with which looking for a sample's length begins."""
_LONGEST = 1 << 20
"""Rounds of a sample, at most."""

Clock = Callable[[], float]
Call = Callable[..., None]


class Loops:
    """Functions of LLVM IR texts, compiled as one module."""

    def __init__(self, texts: Iterable[str], target: Target) -> None:
        declared: dict[str, None] = {}
        defined: list[str] = []
        for line in "\n".join(texts).splitlines():
            if line.startswith("declare "):
                declared[line] = None
            else:
                defined.append(line)
        self._library = load_text("\n".join([*declared, *defined]), target)

    def address(self, name: str) -> int:
        """Valid while this object is referenced."""
        return self._library.address(name)

    def call(self, name: str, *numbers: type[ctypes.c_int64]) -> Call:
        """The function of a pointer and one number, or of more."""
        kinds = numbers or (ctypes.c_int64,)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *kinds)(self.address(name))

        def called(*given: int) -> None:
            function(*given)
            _ = self._library  # addresses are valid while it is referenced

        return called


class Loop:
    """One loop with its data, called with a number of rounds."""

    def __init__(self, call: Call, address: int) -> None:
        self.call, self.address = call, address
        self.rounds = _FIRST_ROUNDS
        self.best_s = float("inf")

    def sample(self, clock: Clock) -> float:
        """Seconds of the rounds that are called now."""
        start = clock()
        self.call(self.address, self.rounds)
        return clock() - start

    def settle(self, clock: Clock) -> None:
        """As many rounds as take SAMPLE_S."""
        taken_s = min(self.sample(clock) for _ in range(3))
        while taken_s < SAMPLE_S / 4 and self.rounds < _LONGEST:
            self.rounds *= 4
            taken_s = min(self.sample(clock) for _ in range(3))
        self.rounds = max(1, min(_LONGEST, int(self.rounds * SAMPLE_S / max(taken_s, 1e-9))))


def least_s(loops: Mapping[str, Loop], clock: Clock, turns: int = TURNS) -> dict[str, float]:
    """Seconds of a round of every loop."""
    over_s = overhead_s(clock)
    for loop in loops.values():
        loop.settle(clock)
    for _ in range(turns):
        for loop in loops.values():
            loop.best_s = min(loop.best_s, loop.sample(clock))
    return {n: max(loop.best_s - over_s, 1e-12) / loop.rounds for n, loop in loops.items()}


def overhead_s(clock: Clock) -> float:
    """Seconds between two looks at the clock around a call of nothing."""
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
        ("labs", ctypes.CDLL(None))  # takes a number and has no effect
    )

    def once() -> float:
        start = clock()
        nothing(0, 1)
        return clock() - start

    return min(once() for _ in range(200))


def low(values: Sequence[float], share: float = 0.25) -> float:
    """The value that this share of them does not exceed: neither luck nor disturbance."""
    return sorted(values)[int(share * (len(values) - 1))]


def rounded(value: float) -> float:
    """Four digits: more would be noise, and logs keep every one of them."""
    return float(f"{value:.4g}")

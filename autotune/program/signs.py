"""Lower bounds of values. In: a program. Out: which buffers hold no negative number, and what a
value is at least, numbers that are none aside: so functions need no code for zeros and below.
"""

from __future__ import annotations

import math
from collections.abc import Set

from autotune.program.ir import Alloc, Apply, Const, Load, Program, Select, Store, Value, walk
from autotune.program.rewrite import stores_of

_NEVER_NEGATIVE = frozenset(("abs", "sqrt", "rsqrt", "exp", "sigmoid"))


def never_negative(program: Program) -> frozenset[str]:
    """The program's own buffers to which no negative number is stored or added."""
    stores: dict[str, list[Store]] = {}
    for store in stores_of(program.body):
        stores.setdefault(store.buffer, []).append(store)
    own = {s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)}
    found = frozenset(own & stores.keys())
    while True:
        good = {b for b in found if all(lowest(s.value, found) >= 0 for s in stores[b])}
        if good == found:
            return found
        found = frozenset(good)


def lowest(value: Value, never_negative: Set[str]) -> float:
    """What a value is at least; minus infinity where nothing is known."""
    if isinstance(value, Const):
        return float(value.value)
    if isinstance(value, Load):
        return 0.0 if value.buffer in never_negative else -math.inf
    if isinstance(value, Select):
        return min(lowest(v, never_negative) for v in (value.then, value.other))
    if not isinstance(value, Apply):
        return -math.inf
    if value.fn in _NEVER_NEGATIVE:
        return 0.0
    if value.fn not in ("add", "mul", "max", "min"):
        return -math.inf
    first, second = (lowest(a, never_negative) for a in value.args)
    if value.fn == "mul":
        square = value.args[0] == value.args[1]
        return 0.0 if square or min(first, second) >= 0 else -math.inf
    if value.fn == "add":
        return first + second
    return max(first, second) if value.fn == "max" else min(first, second)

"""Models that are compiled for sizes of their own. In: sizes. Out: what compiles for them, what it
gives, and a line on how a model's sizes are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.runtime.model import CompiledModel
from autotune.size_ranges import SizeRange

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialized:
    """A model for one set of sizes, and the memory that goes when it is dropped."""

    model: CompiledModel
    nbytes: int
    parts: Any = field(default=None, repr=False)
    """What compiling for other sizes may use again; whoever specializes knows it."""


Specialize = Callable[[Sizes, Iterable[Specialized]], Specialized]
"""Compiles for one set of sizes; the others that are kept have parts to share."""


def sizes_note(
    name: str, ranges: Mapping[str, SizeRange], within: Mapping[str, SizeRange], why: str
) -> str:
    """`within`: the sizes that one program serves; `why`: the reason where there is none."""
    sizes = f"the size{'s' * (len(ranges) > 1)} {', '.join(ranges)} of {name}"
    change = f"{sizes} may change from run to run"
    if all(within.get(symbol) == allowed for symbol, allowed in ranges.items()):
        return f"{change}: one program serves all of them"
    if within:
        said = ", ".join(f"{symbol}: {allowed}" for symbol, allowed in within.items())
        return f"{change}: one program serves {said}; others are compiled when they are first met"
    reason = f" ({why})" if why else ""
    return f"{change}: each new set of sizes is compiled when it is first met{reason}"

"""Kernels that differ by sizes only, as one function that is told them. In: kernels of a model as
C, its calls. Out: fewer kernels, calls that name them and pass what each differs by.

Two kernels are such where their text is the same but for whole numbers. Numbers that come together
are one parameter; one that is a multiple of another, and some more, is worked out from it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.codegen.base import EntryCall
from autotune.codegen.c.source import CSource

MOST_PARAMETERS = 12
"""What a call passes, chosen: about four bytes each, where a kernel has hundreds."""
_TOKEN = re.compile(
    r'"[^"]*"|[A-Za-z_]\w*|0[xX][\w.]+(?:[pP][-+]?\d+\w*)?|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?\w*'
)
_FIXED = re.compile(r"\s*#|.*\b\w+ \w+\[\d+\](?:;| =)|\s*for \(left = ")
"""Lines whose numbers compilers have to know: their own, arrays, and how many vectors a sum is of,
which may be one."""
_SPREAD = re.compile(r"\)+ - \(\w+x\d+\)\{")
"""What is behind a number that is one of all lanes of a vector: where these are bytes, a size of
32 bits would be cut, which compilers refuse."""
_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCall:
    """A call, and the sizes that it passes behind its pointers."""

    call: EntryCall
    sizes: tuple[int, ...] = ()

    @property
    def behind(self) -> str:
        """C of these arguments."""
        return "".join(f", {size}" for size in self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKernel:
    """A kernel for the calls of several, with so many sizes behind its pointers."""

    source: CSource
    sizes: int = 0

    @property
    def behind(self) -> str:
        """C of these parameters."""
        return "".join(f", int32_t n{number}" for number in range(self.sizes))


def shared_kernels(
    kernels: Sequence[CSource], calls: Iterable[EntryCall]
) -> tuple[tuple[SharedKernel, ...], tuple[SharedCall, ...]]:
    """Each kernel where the first of its kind was."""
    kinds: dict[tuple[int, tuple[str, ...]], list[tuple[CSource, tuple[int, ...]]]] = {}
    for kernel in kernels:
        form, numbers = _parted(kernel.body)
        kinds.setdefault((kernel.params, form), []).append((kernel, numbers))
    written: list[SharedKernel] = []
    told: dict[str, tuple[str, tuple[int, ...]]] = {}
    for (_, form), members in kinds.items():
        for shared, passed in _merged(form, members):
            written.append(shared)
            told |= {symbol: (shared.source.symbol, sizes) for symbol, sizes in passed}
    out = []
    for call in calls:
        symbol, sizes = told.get(call.symbol, (call.symbol, ()))
        out.append(SharedCall(call=dataclasses.replace(call, symbol=symbol), sizes=sizes))
    return tuple(written), tuple(out)


_Passed = list[tuple[str, tuple[int, ...]]]


def _merged(
    form: tuple[str, ...], members: Sequence[tuple[CSource, tuple[int, ...]]]
) -> list[tuple[SharedKernel, _Passed]]:
    """Kernels of one form as one, or as they are where they differ by too much."""
    columns = list(zip(*(numbers for _, numbers in members), strict=True))
    sizes = _Numbers(columns)
    if len(members) == 1 or len(sizes.bases) > MOST_PARAMETERS:
        return [(SharedKernel(source=kernel), [(kernel.symbol, ())]) for kernel, _ in members]
    heads = tuple(dict.fromkeys(line for kernel, _ in members for line in kernel.head))
    lines = _joined(form, sizes.texts())
    # What one side of a condition of the preprocessor has alone is unused on the other.
    asked = any(line.startswith("#") for line in lines)
    unused = [f"    (void)n{number};" for number in range(len(sizes.bases) * asked)]
    body = (*unused, *lines)
    source = dataclasses.replace(members[0][0], head=heads, body=body)
    passed = [
        (kernel.symbol, tuple(base[number] for base in sizes.bases))
        for number, (kernel, _) in enumerate(members)
    ]
    return [(SharedKernel(source=source, sizes=len(sizes.bases)), passed)]


class _Numbers:
    """What numbers become that members of a kind differ by, by place."""

    def __init__(self, columns: Sequence[tuple[int, ...]]) -> None:
        self._columns = columns
        self.bases: list[tuple[int, ...]] = []
        self._names: dict[tuple[int, ...], str] = {}
        differing = dict.fromkeys(c for c in columns if len(set(c)) > 1)
        for column in sorted(differing, key=lambda c: (sum(c), c)):
            self._add(column)

    def _add(self, column: tuple[int, ...]) -> None:
        for number, base in enumerate(self.bases):
            factor, more = _line(base, column)
            if factor:
                text = f"n{number}" + f" * {factor}" * (factor != 1)
                text += f" {'-' if more < 0 else '+'} {abs(more)}" if more else ""
                self._names[column] = f"({text})"
                return
        self._names[column] = f"n{len(self.bases)}"
        self.bases.append(column)

    def texts(self) -> list[str]:
        """C of each number."""
        return [self._names.get(column, str(column[0])) for column in self._columns]


def _line(base: tuple[int, ...], column: tuple[int, ...]) -> tuple[int, int]:
    """(a, b) of column = a * base + b with a whole a; (0, 0) where there is none."""
    first, other = next((n, m) for n, m in itertools.pairwise(base) if n != m)
    at = base.index(first)
    change = column[base.index(other)] - column[at]
    factor, rest = divmod(change, other - first)
    more = column[at] - factor * first
    fits = rest == 0 and abs(more) <= _MOST
    if fits and all(factor * n + more == c for n, c in zip(base, column, strict=True)):
        return factor, more
    return 0, 0


def _parted(body: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Text between numbers, and these."""
    texts, numbers, now = [], [], ""
    for line in body:
        at = 0
        for found in _TOKEN.finditer(line) if not _FIXED.match(line) else ():
            spread = _SPREAD.match(line, found.end())
            if found[0].isdigit() and int(found[0]) <= _MOST and not spread:
                texts.append(now + line[at : found.start()])
                numbers.append(int(found[0]))
                now, at = "", found.end()
        now += line[at:] + "\n"
    return (*texts, now), tuple(numbers)


def _joined(form: tuple[str, ...], numbers: Sequence[str]) -> list[str]:
    """Lines again."""
    pairs = zip(form, (*numbers, ""), strict=True)
    return "".join(text + number for text, number in pairs).split("\n")[:-1]

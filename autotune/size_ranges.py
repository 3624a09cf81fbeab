"""Sizes that only a run knows: dimensions that are symbols, and the ranges that these may be in.

In: types whose shapes hold symbols, and the shapes of a run. Out: a size per symbol, checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune import arguments
from autotune.errors import ConfigError, FeedError
from autotune.parse_int import LARGEST
from autotune.types import TensorType

Dim = int | str
"""An extent, or the symbol of one."""
Range = tuple[int, int] | tuple[int, int, int]
"""Least and most, both allowed, and the step from one allowed size to the next (default 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedType:
    """Element type and shape of a tensor of which some dimensions are symbols."""

    dtype: str
    shape: tuple[Dim, ...]

    def at(self, sizes: Mapping[str, int]) -> TensorType:
        """The type where symbols have these sizes."""
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)
        return TensorType(dtype=self.dtype, shape=shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """The sizes least, least + step, ... up to most."""

    least: int = 1
    most: int = LARGEST
    step: int = 1

    @property
    def middle(self) -> int:
        """A representative size: the geometric mean of the range, at most 16 times its least."""
        most = min(self.most, 16 * max(self.least, 16))
        wanted = int((max(self.least, 1) * most) ** 0.5)
        return self.least + (wanted - self.least) // self.step * self.step

    def __contains__(self, size: int) -> bool:
        return self.least <= size <= self.most and (size - self.least) % self.step == 0

    def __str__(self) -> str:
        if self.most == LARGEST:
            return f"{self.least} or more"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.least} to {self.most}{steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTypes:
    """What a model of open sizes takes and gives, by name, and the sizes of every symbol."""

    inputs: tuple[tuple[str, SizedType], ...]
    outputs: tuple[tuple[str, SizedType], ...]
    ranges: tuple[tuple[str, SizeRange], ...]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OpenTypes:
        inputs, outputs = (
            tuple(
                (name, SizedType(dtype=kind["dtype"], shape=tuple(kind["shape"])))
                for name, kind in data[side]
            )
            for side in ("inputs", "outputs")
        )
        ranges = tuple((symbol, SizeRange(**allowed)) for symbol, allowed in data["ranges"])
        return OpenTypes(inputs=inputs, outputs=outputs, ranges=ranges)


def symbols_of(types: Iterable[SizedType]) -> tuple[str, ...]:
    """Each symbol once, in order of first use."""
    return tuple(dict.fromkeys(d for kind in types for d in kind.shape if isinstance(d, str)))


def size_ranges(given: Mapping[str, Range] | None, symbols: Iterable[str]) -> dict[str, SizeRange]:
    """A range for every symbol: any size where none is given. Raises ConfigError."""
    known = tuple(symbols)
    for name in given or {}:
        if name not in known:
            raise ConfigError(
                f"a range is given for {name!r}, but the symbolic dimensions of the model's "
                f"inputs are {arguments.listed(known)}{arguments.suggestion(name, known)}"
            )
    checked = arguments.ranges(given)
    return {
        name: SizeRange(least=checked[name][0], most=checked[name][1], step=checked[name][2])
        if name in checked
        else SizeRange()
        for name in known
    }


def size_sets(
    given: Mapping[str, Sequence[int]], ranges: Mapping[str, SizeRange]
) -> list[dict[str, int]]:
    """All combinations of the sizes that are given, of every symbol. Raises ConfigError for a
    symbol without sizes, or without a range, and FeedError for a size outside of it."""
    if given.keys() != ranges.keys():
        known = arguments.listed(ranges)
        raise ConfigError(
            f"sizes must be given for each of {known}, got {arguments.listed(given)}"
        )
    for name, sizes in given.items():
        for size in sizes:
            checked_size(f"the size of {name}", size, ranges[name])
    return [
        dict(zip(ranges, each, strict=True))
        for each in itertools.product(*(given[name] for name in ranges))
    ]


def read_sizes(
    inputs: Mapping[str, SizedType],
    shapes: Mapping[str, tuple[int, ...]],
    ranges: Mapping[str, SizeRange],
) -> dict[str, int]:
    """The size of every symbol where inputs have these shapes. Raises FeedError where a shape does
    not fit, two inputs disagree, or a size is outside its range."""
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, kind in inputs.items():
        shape = shapes[name]
        if len(shape) != len(kind.shape):
            raise FeedError(
                f"input {name!r} has {len(shape)} dimensions, expected {len(kind.shape)}: {kind}"
            )
        for axis, (dim, size) in enumerate(zip(kind.shape, shape, strict=True)):
            if (sizes.get(dim) if isinstance(dim, str) else dim) == size:
                continue
            where = f"input {name!r} dimension {axis}"
            if not isinstance(dim, str):
                raise FeedError(f"{where} is {size}, expected {dim}: {kind}")
            if dim in sizes:
                raise FeedError(
                    f"{where} ({dim}) is {size}, input {origin[dim]!r} says {sizes[dim]}"
                )
            sizes[dim], origin[dim] = checked_size(f"{where} ({dim})", size, ranges[dim]), name
    return sizes


def checked_size(what: str, size: int, allowed: SizeRange) -> int:
    """The size. Raises FeedError where it is outside its range."""
    if size not in allowed:
        raise FeedError(f"{what} is {size}, the range is {allowed}")
    return size

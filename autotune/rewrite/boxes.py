"""The box in which a rewrite that is right there alone is right, by few places of large images.

In: a rewrite with a box. Out: the largest box, or that the one it says is right there. Both sides
are multilinear in their values: two such sums of products that agree for random values agree for
all (but with probability 2^-55), and along what no border cuts one place stands for its neighbours
(Wang et al., PET, OSDI 2021). So a few places of a box are enough: its corners and those beside
them, and some between. Each is computed alone, from the part of the values that it reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError
from autotune.rewrite import expressions
from autotune.rewrite.apply import build
from autotune.rewrite.arithmetic import PRIME, Residue
from autotune.rewrite.corrected import box_of, regions_of
from autotune.rewrite.evaluate import Evaluation, drawn
from autotune.rewrite.prove import Instance, UnprovenError, instances_of
from autotune.rewrite.regions import Region
from autotune.rewrite.rule import Rewrite

Place = tuple[int, ...]
INSTANCES = 2
"""Large images at which a box is checked."""
_LEAST_SIDE, _MOST_SIDE = 9, 17
"""Extents of what a box is cut out of, in a large image."""
_LARGEST = 3
"""Extents of all else, at most: channels."""
_BESIDE = 3
"""Places from a corner inward, along each dimension, that are looked at."""
_PLACES = 48
"""Places of a box, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxProof:
    """`places`: of so many large images together."""

    rewrite: str
    places: int
    images: int

    def __str__(self) -> str:
        return f"{self.rewrite}: its box is right at {self.places} places of {self.images} images"


def prove_box(rewrite: Rewrite, seed: int = 0) -> BoxProof:
    """Whether the box is right, and no larger one is. Raises UnprovenError."""
    rng = np.random.default_rng(seed)
    count, images = 0, list(large_instances(rewrite, rng, INSTANCES))
    if not images:
        raise UnprovenError(f"{rewrite.name}: no sizes are legal")
    for instance in images:
        said, found = box_of(rewrite, instance.symbols), largest_box(rewrite, instance, rng)
        if any(b < a or d > c for (a, c), (b, d) in zip(found, said, strict=True)):
            raise UnprovenError(
                f"{rewrite.name}: the sides differ in the box {said}; they are alike in {found}, "
                f"for {', '.join(f'{n}={v}' for n, v in instance.symbols.items())}"
            )
        places = _sampled(said, rng)
        if not all(alike(rewrite, instance, places, rng)):
            raise UnprovenError(f"{rewrite.name}: the sides differ inside of the box {said}")
        count += len(places)
    return BoxProof(rewrite=rewrite.name, places=count, images=len(images))


def largest_box(rewrite: Rewrite, instance: Instance, rng: np.random.Generator) -> Region:
    """The box around the middle of the result in which both sides are alike, by the lines through
    the middle: one for each dimension."""
    shape = regions_of(rewrite, instance.symbols).shape(rewrite.left[0])
    middle = tuple(e // 2 for e in shape)
    lines = [
        [(*middle[:d], i, *middle[d + 1 :]) for i in range(extent)]
        for d, extent in enumerate(shape)
    ]
    same = iter(alike(rewrite, instance, [p for line in lines for p in line], rng))
    box = []
    for line, centre in zip(lines, middle, strict=True):
        good = list(itertools.islice(same, len(line)))
        if not good[centre]:
            return tuple((m, m) for m in middle)
        wrong = [i for i, ok in enumerate(good) if not ok]
        start = max((i + 1 for i in wrong if i < centre), default=0)
        box.append((start, min((i for i in wrong if i > centre), default=len(line))))
    return tuple(box)


def alike(
    rewrite: Rewrite, instance: Instance, places: Sequence[Place], rng: np.random.Generator
) -> list[bool]:
    """At which of some places of the result both sides are the same, for random values."""
    regions = regions_of(rewrite, instance.symbols)
    points = [tuple((i, i + 1) for i in place) for place in places]
    terms = [regions.part(s, p) for s in (rewrite.left[0], rewrite.right[0]) for p in points]
    run = Evaluation({n: drawn(s, Residue, rng, PRIME) for n, s in instance.shapes.items()})
    found = build(rewrite, terms, instance.symbols, {n: n for n in instance.shapes}, run.emit)
    numbers = [run.arrays[name].item() for name in found]
    ends = zip(numbers[: len(places)], numbers[len(places) :], strict=True)
    return [bool(one == other) for one, other in ends]


def large_instances(rewrite: Rewrite, rng: np.random.Generator, wanted: int) -> list[Instance]:
    """Instances whose extents are large where a box is cut out of them."""
    assert rewrite.box is not None
    stops = expressions.parts(rewrite.box[1]) or []
    fixed = {d for v in rewrite.values if v.constant for d in v.shape} | set(stops)
    sides = {d for v in rewrite.values for d in v.shape if d.isidentifier()} - fixed
    follows = {name for name, _ in rewrite.defines}
    found = []
    for small in instances_of(rewrite, rng, wanted, largest=_LARGEST):
        free = {n: v for n, v in small.symbols.items() if n not in follows}
        free |= {d: int(rng.integers(_LEAST_SIDE, _MOST_SIDE)) for d in sorted(sides)}
        symbols = expressions.defined(rewrite.defines, free)
        try:
            if symbols and all(expressions.value(text, symbols) for text in rewrite.where):
                shapes = {v.name: expressions.shape(v.shape, symbols) for v in rewrite.values}
                regions_of(rewrite, symbols).shape(rewrite.left[0])
                found.append(Instance(symbols, shapes))
        except (*expressions.NOTHING, ModelError):
            continue
    return found


def _sampled(box: Region, rng: np.random.Generator) -> list[Place]:
    """Places of a box: those at its corners, and some between."""
    near = [
        sorted({*range(a, min(a + _BESIDE, b)), *range(max(b - _BESIDE, a), b)}) for a, b in box
    ]
    corners = list(itertools.product(*near))
    picked = [corners[i] for i in rng.permutation(len(corners))[: _PLACES // 2]]
    between = [tuple(int(rng.integers(a, b)) for a, b in box) for _ in range(_PLACES // 2)]
    return list(dict.fromkeys([*itertools.product(*((a, b - 1) for a, b in box)), *picked,
                               *between]))[:_PLACES]  # fmt: skip

"""A part that is given arrays of ever other lengths, compiled for all of them at once. In: the
part, and sets of shapes that it was given. Out: models of it at sizes, made in microseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from autotune.compiler.open_ranges import covered
from autotune.compiler.sized import OpenProgram
from autotune.frontend.onnx.importer import import_part
from autotune.graph.ir import Graph
from autotune.runtime.model import CompiledModel
from autotune.size_ranges import SizedType, SizeRange, symbols_of

MOST = 1 << 24
"""Elements along a dimension that is open, at most."""
Extents = tuple[int, ...]
"""A dimension's, in each set of shapes."""
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Related:
    """An extent that others make: their product, so many times."""

    times: int
    others: tuple[str, ...]

    def at(self, sizes: Mapping[str, int]) -> int:
        return self.times * math.prod(sizes[name] for name in self.others)


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part some of whose inputs' dimensions are symbols."""

    part: onnx.ModelProto
    inputs: Mapping[str, SizedType]
    related: Mapping[str, Related]

    name = "part"
    weight_bytes = 0

    @property
    def outputs(self) -> Mapping[str, SizedType]:
        """Nobody has declared them."""
        return {}

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(s for s in symbols_of(self.inputs.values()) if s not in self.related)

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """Raises what importing does, and ValueError where it gives sequences."""
        every = {**sizes, **{name: found.at(sizes) for name, found in self.related.items()}}
        shapes = {name: kind.at(every).shape for name, kind in self.inputs.items()}
        graph, lengths = import_part(self.part, shapes)
        if lengths:
            raise ValueError("sequences have as many elements as they have")
        return graph

    def open_graph(self, sizes: Mapping[str, int]) -> Graph:
        """Raises what importing does."""
        return self.graph(sizes)

    def limits(self) -> Mapping[str, tuple[int, int]]:
        """None but those of all."""
        return {}


class OpenedPart:
    """Models of a part at sizes."""

    def __init__(
        self, part: onnx.ModelProto, dtypes: Mapping[str, str], shapes: Sequence[Shapes],
        compiled: OpenProgram,
    ) -> None:  # fmt: skip
        """Dimensions that differ between the sets of shapes are open; those that had the same
        extents each time are the same symbol, and those that were multiples or products of others
        each time are that. Raises anything where there is no such program."""
        met = {name: [*zip(*(each[name] for each in shapes), strict=True)] for name in shapes[0]}
        names = {e: _symbol(e) for several in met.values() for e in several if len(set(e)) > 1}
        self._related = _relations(names)
        self._inputs = {
            name: SizedType(
                dtype=dtypes[name], shape=tuple(names.get(each, each[0]) for each in several)
            )
            for name, several in met.items()
        }
        model = OpenPart(part, self._inputs, self._related)
        every = {s: SizeRange(most=MOST) for s in model.symbols}
        self._program = covered(model, every, lambda some: compiled(model, some))

    def fits(self, shapes: Shapes) -> bool:
        """Whether what was taken to be fixed, or alike, is so in these shapes."""
        return self._sizes(shapes) is not None

    def _sizes(self, shapes: Shapes) -> dict[str, int] | None:
        sizes: dict[str, int] = {}
        for name, kind in self._inputs.items():
            for dim, extent in zip(kind.shape, shapes[name], strict=True):
                if extent != (sizes.setdefault(dim, extent) if isinstance(dim, str) else dim):
                    return None
        fit = all(sizes[name] == found.at(sizes) for name, found in self._related.items())
        return sizes if fit else None

    def at(self, shapes: Shapes) -> CompiledModel | None:
        """None where the shapes do not fit, or lie outside of what the program decides."""
        sizes = self._sizes(shapes)
        if sizes is None:
            return None
        fits = all(sizes[name] in some for name, some in self._program.image.types.ranges)
        return self._program.at(sizes) if fits else None


def _symbol(extents: Extents) -> str:
    return " to ".join(map(str, extents))


def _relations(names: Mapping[Extents, str]) -> dict[str, Related]:
    """Symbols whose extents were multiples of another's each time, or of two others' product."""
    free, out = list[Extents](), dict[str, Related]()
    for extents in sorted(names):
        pairs = itertools.combinations_with_replacement(free, 2)
        for others in (*((other,) for other in free), *pairs):
            products = [math.prod(each) for each in zip(*others, strict=True)]
            times = extents[0] // products[0]
            if times and [times * product for product in products] == list(extents):
                out[names[extents]] = Related(times, tuple(names[other] for other in others))
                break
        else:
            free.append(extents)
    return out

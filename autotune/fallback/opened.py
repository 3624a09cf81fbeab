"""A part that is given arrays of ever other lengths, compiled for all of them at once. In: the
part, and sets of shapes that it was given. Out: models of it at sizes, made in microseconds.
"""

from __future__ import annotations

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
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part some of whose inputs' dimensions are symbols."""

    part: onnx.ModelProto
    inputs: Mapping[str, SizedType]

    name = "part"
    weight_bytes = 0

    @property
    def outputs(self) -> Mapping[str, SizedType]:
        """Nobody has declared them."""
        return {}

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of(self.inputs.values())

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """Raises what importing does, and ValueError where it gives sequences."""
        shapes = {name: kind.at(sizes).shape for name, kind in self.inputs.items()}
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
        extents each time are the same symbol. Raises anything where there is no such program."""
        self._inputs = {
            name: SizedType(
                dtype=dtypes[name],
                shape=tuple(
                    extents[0] if len(set(extents)) == 1 else " to ".join(map(str, extents))
                    for extents in zip(*(each[name] for each in shapes), strict=True)
                ),
            )
            for name in shapes[0]
        }
        model = OpenPart(part, self._inputs)
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
        return sizes

    def at(self, shapes: Shapes) -> CompiledModel | None:
        """None where the shapes do not fit, or lie outside of what the program decides."""
        sizes = self._sizes(shapes)
        if sizes is None:
            return None
        fits = all(sizes[name] in some for name, some in self._program.image.types.ranges)
        return self._program.at(sizes) if fits else None

"""Programs for sizes that a model's first program is not for: on the other side of a size that
decides a branch, or what is left of an image. In: the model, the ranges of its first program. Out:
models at such sizes, each range's program compiled when the second of its sizes is met.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping

from autotune.compiler.open_ranges import covered
from autotune.defects import NO_DEFECT, described
from autotune.errors import ModelError
from autotune.frontend.open_sizes import OpenModel
from autotune.runtime.model import CompiledModel
from autotune.runtime.open_model import AnySizeProgram
from autotune.size_ranges import SizeRange

_LOGGER = logging.getLogger("autotune.compile")
Ranges = Mapping[str, SizeRange]
_Region = tuple[SizeRange, ...]
"""A range of every symbol, in order."""


class FurtherPrograms:
    """Safe to call from several threads."""

    def __init__(
        self,
        model: OpenModel,
        ranges: Ranges,
        within: Ranges,
        make: Callable[[Ranges], AnySizeProgram],
    ) -> None:
        """`within`: what the first program is for; `make`: compiles one for all of some ranges.
        What it raises leaves sizes to be compiled for themselves."""
        self._model, self._ranges, self._within, self._make = model, ranges, within, make
        self._met: dict[_Region, dict[str, int]] = {}
        """The first sizes of each region."""
        self._made: dict[_Region, AnySizeProgram | None] = {}
        self._lock = threading.RLock()

    def __call__(self, sizes: Mapping[str, int]) -> CompiledModel | None:
        """None where no program is for these sizes, or none yet."""
        sides = [self._around(symbol, size) for symbol, size in sizes.items()]
        region = tuple(side for side in sides if side is not None)
        if len(region) < len(sides):
            return None
        with self._lock:
            if self._met.setdefault(region, dict(sizes)) == sizes and region not in self._made:
                return None
            if region not in self._made:
                self._made[region] = self._program(dict(zip(sizes, region, strict=True)))
            program = self._made[region]
        if program is None:
            return None
        ranges = dict(program.image.types.ranges)
        fits = all(size in ranges[symbol] for symbol, size in sizes.items())
        return program.at(sizes) if fits else None

    def _around(self, symbol: str, size: int) -> SizeRange | None:
        """The sizes on the same side of the first program's, or these; None of one between its
        steps, which no range of another program has."""
        inside, every = self._within[symbol], self._ranges[symbol]
        if size < inside.least:
            return dataclasses.replace(every, most=min(every.most, inside.least - 1))
        if size > inside.most:
            steps = (inside.most - every.least) // every.step + 1
            return dataclasses.replace(every, least=every.least + steps * every.step)
        return inside if size in inside else None

    def _program(self, ranges: Ranges) -> AnySizeProgram | None:
        try:
            return covered(self._model, ranges, self._make)
        except ModelError as error:
            _LOGGER.info("%s: no further program (%s)", self._model.name, error)
            return None
        except NO_DEFECT:
            raise
        except Exception as error:  # each set of sizes can be compiled for itself
            _LOGGER.info("%s: no further program (%s)", self._model.name, described(error))
            return None

"""A model for any sizes. In: how to compile it for one set of sizes. Out: a model that is run on
arrays of any shapes that fit, and compiled when it first meets their sizes.

What makes a model for a set of sizes is a function, so that kernels which take their extents when
they run can stand behind the same class.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autotune import arguments
from autotune.errors import ArtifactError, ClosedError, ConfigError
from autotune.graph.feeds import as_array
from autotune.graph.int8.accuracy import Quantization
from autotune.runtime.closing import Closing
from autotune.runtime.image_file import image_bytes, read_any_image, save
from autotune.runtime.model import CompiledModel, ModelTimes
from autotune.runtime.open_image import OpenImage
from autotune.runtime.open_model import AnySizeProgram
from autotune.runtime.open_run import OpenRun, model_of
from autotune.runtime.results import Writable, check_names
from autotune.runtime.specialized import Sizes, Specialize, Specialized, sizes_note
from autotune.runtime.state import StateSession, checked_state
from autotune.size_ranges import SizedType, SizeRange, checked_size, read_sizes, symbols_of
from autotune.stored import stored_as
from autotune.types import Array

if TYPE_CHECKING:
    from autotune.runtime.growing import GrowingSession, Grows

KEPT_BYTES = 1 << 30
"""Code and arenas of the sizes that are kept; the weights, which all of them share, are apart."""
READY_SIZES = 4096
"""Sets of sizes that the one program keeps ready, some twenty kilobytes each."""
_Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the inputs, in order."""


class SizedModel(Closing):
    """A model whose inputs have symbolic dimensions. Safe to call from several threads.

    One program serves all sizes where there is one, or most (`notes` say so). Other sets of sizes
    are compiled when they are first met, which takes seconds, and kept: the sizes used least
    recently are dropped where code and arenas of all, one arena each, take more than
    `limit_bytes`. While one thread waits for new sizes, others run those that are there. As a
    context manager it is closed at the end. `copy.copy` gives a model with arenas and sizes of its
    own; files, pickles and `copy.deepcopy` have the one program alone."""

    def __init__(
        self,
        name: str,
        *,
        inputs: Mapping[str, SizedType],
        outputs: Mapping[str, SizedType],
        ranges: Mapping[str, SizeRange],
        specialize: Specialize | None = None,
        limit_bytes: int = KEPT_BYTES,
        program: AnySizeProgram | None = None,
        why: str = "",
    ) -> None:
        """`specialize`: None where only the program is there, as in a file. `program`: one for all
        sizes; `why`: the reason where there is none."""
        self.grows: Callable[[Mapping[str, str]], Grows] | None = None
        """What makes models for states that grow; the compiler sets it."""
        self.further: Callable[[Sizes], CompiledModel | None] | None = None
        """Programs for sizes that the one is not for; so, too."""
        self.inputs = MappingProxyType(dict(inputs))
        """Element type and shape of every input, by name; symbols stand for sizes."""
        self.outputs = MappingProxyType(dict(outputs))
        """The same of outputs, as far as the model's file says."""
        self.symbols = symbols_of(inputs.values())
        """The symbolic dimensions, in order of first use."""
        self.ranges = MappingProxyType(dict(ranges))
        """The sizes that every symbol may have."""
        self.limit_bytes = limit_bytes
        self._within = dict(program.image.types.ranges) if program else {}
        """The sizes that the one program serves."""
        self.notes: tuple[str, ...] = (sizes_note(name, self.ranges, self._within, why),)
        if program is not None:
            self.notes += program.notes
        """How sizes are served, and what else the compiler has to say."""
        self._name, self._specialize, self._why = name, specialize, why
        self._kinds, self._program = tuple(inputs.items()), program
        self._kept: OrderedDict[_Shapes, Specialized] = OrderedDict()
        self._ready: dict[_Shapes, OpenRun | CompiledModel] = {}
        """Sizes that the one program has met."""
        self._closed = False
        # A signal's handler may close the model in the middle of its thread's run.
        self._lock, self._compiling = threading.RLock(), threading.RLock()

    def run(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        outputs: Iterable[str] | None = None,
        out: Mapping[str, Writable] | None = None,
    ) -> dict[str, Array]:
        """One inference, as `CompiledModel.run` for the sizes that these arrays have. Raises what
        that and compiling do, and FeedError where inputs disagree on a symbol, or a size is
        outside of its range."""
        made = self._found_for(feeds)
        if type(made) is OpenRun:
            results = made.run(feeds) if outputs is None and out is None else None
            if results is not None:
                return results
        made = model_of(made)
        if len(made.inputs) < len(feeds):  # without those that have no elements
            feeds = {name: feeds[name] for name in made.inputs}
        return made.run(feeds, outputs, out)

    def updates(self, feeds: Mapping[str, npt.ArrayLike]) -> Collection[tuple[str, str]]:
        """As `CompiledModel.updates`, for the sizes that these arrays have; compiles for them as
        `run` does."""
        return self._for(feeds).updates(feeds)

    def session(
        self,
        state: Mapping[str, str],
        initial: Mapping[str, npt.ArrayLike] | None = None,
        *,
        capacity: int | None = None,
    ) -> StateSession | GrowingSession:
        """Calls in which the inputs of `state` are kept: each is, by the name of an output, what
        the call before made of it. At the beginning they are `initial`, or zeros. A state with a
        dimension that no other input has grows along it, from nothing or from `initial`, in blocks
        of at least `capacity` rows. Where the model does more with such a state than is
        understood, the one program makes a longer state in each call, if it may begin with no
        rows; else the first call raises UnsupportedOpError. Raises FeedError."""
        if self._closed:
            raise self._refusal()
        pairs = checked_state(self, state)
        fed = {d for n, kind in self.inputs.items() if n not in pairs for d in kind.shape}
        open_dims = (d for n in pairs for d in self.inputs[n].shape if isinstance(d, str))
        if self.grows is None or all(dim in fed for dim in open_dims):
            return StateSession(self, pairs, initial)
        grows = self.grows(pairs)
        begin = self._without_rows(grows)
        if begin is not None and not grows.understood():
            return StateSession(self, pairs, {**begin, **(initial or {})}, places=False)
        from autotune.runtime.growing import GrowingSession  # where the compiler is, too

        return GrowingSession(grows, pairs, initial, capacity)

    def _without_rows(self, grows: Grows) -> dict[str, Array] | None:
        """States that grow, with no rows; None where the one program takes none such."""
        out = {}
        for name, axis in grows.axes.items():
            kind = self.inputs[name]
            rest = (*kind.shape[:axis], 0, *kind.shape[axis + 1 :])
            within = self._within.get(str(kind.shape[axis]))
            if within is None or within.least or any(isinstance(dim, str) for dim in rest):
                return None
            out[name] = np.zeros([int(dim) for dim in rest], stored_as(kind.dtype))
        return out

    def specialize(self, sizes: Sizes) -> CompiledModel:
        """The model for these sizes, compiled if it is not kept: to have it ready before its first
        run, to time it, to save it. Raises ConfigError, FeedError and what compiling does."""
        if self._specialize is None:
            raise ConfigError(
                f"{self._name!r} comes from a file, which holds the program for all sizes and not "
                "the model; compile the model again for sizes of its own"
            )
        return self._at(self._shapes_at(sizes))

    def _for(self, feeds: Mapping[str, npt.ArrayLike]) -> CompiledModel:
        """The model that runs these."""
        return model_of(self._found_for(feeds))

    def _found_for(self, feeds: Mapping[str, npt.ArrayLike]) -> OpenRun | CompiledModel:
        """What runs these."""
        if type(feeds) is not dict or feeds.keys() != self.inputs.keys():
            check_names(feeds, self.inputs)
        shapes = tuple([_shape(name, kind, feeds[name]) for name, kind in self._kinds])
        return self._at(shapes) if self._program is None else self._run_of(shapes)

    def ready(self, shapes: tuple[tuple[int, ...], ...]) -> CompiledModel | None:
        """The one program for inputs of these shapes, in order; None where there is none that
        serves them. Raises FeedError, ClosedError."""
        if self._program is None:
            return None
        made = self._run_of(shapes)
        return model_of(made) if self._ready.get(shapes) is made else None

    def _shapes_at(self, sizes: Sizes) -> _Shapes:
        """Raises ConfigError, FeedError."""
        given = {
            symbol: arguments.whole(f"sizes[{symbol!r}]", size, 0)
            for symbol, size in arguments.by_name("sizes", sizes, "a dict by symbol").items()
        }
        if given.keys() != set(self.symbols):
            raise ConfigError(
                f"sizes must be given for {arguments.listed(self.symbols)}, got "
                f"{arguments.listed(given)}"
            )
        for symbol, size in given.items():
            checked_size(f"sizes[{symbol!r}]", size, self.ranges[symbol])
        return tuple(kind.at(given).shape for kind in self.inputs.values())

    @staticmethod
    def of(image: OpenImage) -> SizedModel:
        """The model of a program's image, which runs at any sizes and cannot be specialized."""
        types = image.types
        return SizedModel(
            image.name,
            inputs=dict(types.inputs),
            outputs=dict(types.outputs),
            ranges=dict(types.ranges),
            program=AnySizeProgram(image),
        )

    @property
    def quantization(self) -> Quantization | None:
        """How far the one program's outputs are from float32, where it was compiled for int8."""
        return self._program.quantization if self._program is not None else None

    @property
    def serves_all(self) -> bool:
        """Whether there is one program for all sizes."""
        return self._program is not None

    @property
    def image(self) -> OpenImage:
        """The one program as plain data. Raises ArtifactError where there is none, ClosedError."""
        if self._closed:
            raise self._refusal()
        if self._program is None:
            raise ArtifactError(
                f"{self._name!r} is compiled for each set of sizes that it meets, not once for "
                f"all ({self._why}); save model.specialize(...) of the sizes you want, or fix "
                "them with --shape"
            )
        return self._program.image

    def bench(
        self,
        sizes: Sizes,
        repeats: int = 20,
        *,
        feeds: Mapping[str, npt.ArrayLike] | None = None,
        seed: int = 0,
    ) -> ModelTimes:
        """Time `repeats` runs at these sizes; kernel by kernel where they were compiled for
        themselves. The rest is as for `CompiledModel.bench`."""
        shapes = self._shapes_at(sizes)
        at = self._at if self._program is None else self._anywhere
        return at(shapes).bench(repeats, feeds=feeds, seed=seed)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the one program as a file, as `CompiledModel.save`: what `autotune.load` reads
        back runs at all sizes, but cannot be specialized. Raises ArtifactError, ClosedError."""
        save(self.image, path)

    def close(self) -> None:
        """Give the memory back, once runs under way in other threads have ended. Whoever uses the
        model later gets a ClosedError; closing it again does nothing."""
        with self._lock:
            self._closed = True
            kept: list[CompiledModel | OpenRun | AnySizeProgram] = [
                *(each.model for each in self._kept.values()), *self._ready.values()
            ]  # fmt: skip
            kept += [self._program] if self._program is not None else []
            self._kept.clear()
            self._ready.clear()
        for model in kept:
            model.close()

    def __repr__(self) -> str:
        sides = (
            arguments.listed((f"{name}: {kind}" for name, kind in types.items()), 4)
            for types in (self.inputs, self.outputs)
        )
        state = f"compiled for {len(self._kept) if self._program is None else 'all'} sizes"
        state = "closed" if self._closed else state
        return f"<SizedModel {self._name!r}: {' -> '.join(sides)}; {state}>"

    def __copy__(self) -> SizedModel:
        program = self._program and AnySizeProgram(self.image)
        if self._closed:
            raise self._refusal()
        if program is not None:
            program.quantization = self.quantization
        other = SizedModel(
            self._name,
            inputs=self.inputs,
            outputs=self.outputs,
            ranges=self.ranges,
            specialize=self._specialize,
            limit_bytes=self.limit_bytes,
            program=program,
            why=self._why,
        )
        other.grows, other.further, other.notes = self.grows, self.further, self.notes
        return other

    def __reduce__(self) -> tuple[Callable[..., SizedModel], tuple[Any, ...]]:
        return restored_sized, (image_bytes(self.image), self.notes)

    def _anywhere(self, shapes: _Shapes) -> CompiledModel:
        """The model of the one program for inputs of these shapes."""
        return model_of(self._run_of(shapes))

    def _run_of(self, shapes: _Shapes) -> OpenRun | CompiledModel:
        """What runs inputs of these shapes: the one program, or what there is where it is not
        for them."""
        found = self._ready.get(shapes)
        if found is not None:
            return found
        sizes = read_sizes(self.inputs, dict(zip(self.inputs, shapes, strict=True)), self.ranges)
        within = all(size in self._within[symbol] for symbol, size in sizes.items())
        made: OpenRun | CompiledModel | None
        made = self.further(sizes) if self.further is not None and not within else None
        if not (within or made):
            return self._at(shapes)
        with self._lock:
            if self._closed or self._program is None:
                raise self._refusal()
            self._ready[shapes] = made = made or self._program.run_at(sizes)
            while len(self._ready) > READY_SIZES:
                del self._ready[next(iter(self._ready))]
        return made

    def _at(self, shapes: _Shapes) -> CompiledModel:
        """The model for inputs of these shapes."""
        with self._lock:
            if shapes in self._kept:
                self._kept.move_to_end(shapes)
                return self._kept[shapes].model
        sizes = read_sizes(self.inputs, dict(zip(self.inputs, shapes, strict=True)), self.ranges)
        with self._compiling:
            with self._lock:
                found, kept = self._found(shapes), tuple(self._kept.values())
            if found is not None:  # another thread met the same sizes
                return found
            assert self._specialize is not None  # where there is no program, there is this
            made = self._specialize(sizes, kept)
            with self._lock:
                if self._closed:
                    raise self._refusal()
                self._kept[shapes] = made
                self._drop_old()
        return made.model

    def _found(self, shapes: _Shapes) -> CompiledModel | None:
        """With the lock. Raises ClosedError."""
        if self._closed:
            raise self._refusal()
        if shapes not in self._kept:
            return None
        return self._kept[shapes].model

    def _drop_old(self) -> None:
        """The sizes used last stay, whatever they take. Dropped ones are not closed: another
        thread's run may be in one, whose memory goes with that run. With the lock."""
        total = sum(each.nbytes for each in self._kept.values())
        while len(self._kept) > 1 and total > self.limit_bytes:
            _, dropped = self._kept.popitem(last=False)
            total -= dropped.nbytes

    def _refusal(self) -> ClosedError:
        return ClosedError(f"the model {self._name!r} is closed; compile it again")


def restored_sized(data: bytes, notes: tuple[str, ...]) -> SizedModel:
    """What a pickle of a model calls. Raises ArtifactError."""
    image = read_any_image(data)
    if not isinstance(image, OpenImage):
        raise ArtifactError(f"the model {image.name!r} has fixed sizes, expected open ones")
    model = SizedModel.of(image)
    model.notes = notes
    return model


restored_sized.__module__ = "autotune.runtime.artifact"  # by this name pickles know it


def _shape(name: str, kind: SizedType, given: npt.ArrayLike) -> tuple[int, ...]:
    """Shape of an array, of what stands for one, or of nested lists. Raises FeedError."""
    shape = given.shape if type(given) is np.ndarray else getattr(given, "shape", None)
    if isinstance(shape, tuple):
        return shape
    return as_array(given, kind.dtype, f"input {name}").shape

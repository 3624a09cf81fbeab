"""Import what `torch.export` makes. In: an ExportedProgram, or a .pt2 file of one. Out: a `Graph`,
or, where sizes of inputs are open, what gives one for each set of sizes.

Parameters and buffers are constants. Inputs and outputs have the names of the program's signature.
A buffer that the program writes is an input and an output of its own: who runs the model keeps it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._python_dispatch import _disable_current_modes

from autotune.errors import ModelError
from autotune.frontend.torch.decompositions import decompositions
from autotune.frontend.torch.dtypes import HALVES, graph_dtype
from autotune.frontend.torch.importer import AtenImport, Values
from autotune.frontend.torch.sizes import OpenSizes, is_open, sized_values
from autotune.graph.ir import Graph
from autotune.size_ranges import SizedType, symbols_of
from autotune.sizes import UNBOUNDED

_WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def read_exported(path: str | os.PathLike[str]) -> ExportedProgram:
    """The program of a .pt2 file. Raises ModelError."""
    if not Path(path).is_file():
        raise ModelError(f"model {os.fspath(path)!r}: there is no such file; check the path")
    try:
        if not zipfile.is_zipfile(path):  # which PyTorch would tell at length
            raise ValueError("not an archive")
        with _no_news():
            return torch.export.load(path)
    except Exception as error:  # PyTorch's reader raises what it likes
        first = str(error).partition("\n")[0][:200]
        raise ModelError(
            f"model {os.fspath(path)!r} is no program of torch.export, or it is damaged "
            f"({first}); write it again with torch.export.save"
        ) from error


@contextlib.contextmanager
def _no_news() -> Iterator[None]:
    """Without PyTorch's warnings to itself of what it will drop, and without the stack that its
    reader logs of a damaged file before it raises."""
    logger = logging.getLogger(torch.export.__name__)
    silent, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.disabled = silent


class ExportedModel:
    """A program in core ATen, and its sizes that are open."""

    def __init__(self, program: ExportedProgram) -> None:
        """Raises ModelError where an input's size is an expression of symbols."""
        with _no_news():
            lowered = program.run_decompositions(decompositions())
        self._module = lowered.graph_module
        self._module.graph.eliminate_dead_code()
        self._signature = lowered.graph_signature
        self._values = {n: n.meta.get("val") for n in self._module.graph.nodes}
        self._weights = self._constants(lowered)
        self.name = "exported"
        self.inputs = {n.name: _sized(n.name, self._values[n]) for n in self._given()}
        self.outputs = {name: _told(self._values[n]) for name, n in self._results()}
        self.symbols = symbols_of(self.inputs.values())
        self._limits = _limits(lowered, self.symbols)
        self.weight_bytes = sum(t.nbytes for t in self._weights.values())

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """The program where its symbols have these sizes. Raises ModelError, also where an
        operator is not supported."""
        values: Values = self._values
        if is_open(values):
            values = sized_values(self._module, self._examples(sizes))
        return self._imported(
            AtenImport(self.name, values, self._weights, as_stored=False), values
        )

    def open_graph(self, sizes: Mapping[str, int]) -> Graph:
        """The program with sizes of `autotune.sizes` for its symbols. Raises what importing does,
        and whatever an importer does that must know a size."""
        open_sizes = OpenSizes(sizes)
        importing = AtenImport(
            self.name, self._values, self._weights, as_stored=False, sizes=open_sizes
        )
        return self._imported(importing, self._values)

    def limits(self) -> Mapping[str, tuple[int, int]]:
        """Least and most of symbols as `torch.export.Dim` says them."""
        return self._limits

    def _imported(self, importing: AtenImport, values: Values) -> Graph:
        declared = dict[str, str]()
        for node in self._given():
            declared |= _declared(importing.take(node, node.name).dtype, node.name)
        with _disable_current_modes():
            for node in self._module.graph.nodes:
                tensors = isinstance(values[node], torch.Tensor | tuple | list)
                if node.op == "call_function" and tensors:
                    importing.add(node)
        for name, node in self._results():
            declared |= _declared(importing.give(node, name).dtype, name)
        return importing.finished(declared)

    def _placeholders(self) -> dict[str, fx.Node]:
        return {n.name: n for n in self._module.graph.nodes if n.op == "placeholder"}

    def _given(self) -> list[fx.Node]:
        """What a run is given: the user's inputs, and buffers that are written."""
        nodes = self._placeholders()
        names = [s.arg.name for s in self._signature.input_specs]
        found = [nodes[name] for name in names if nodes[name] not in self._weights]
        return [n for n in found if isinstance(self._values[n], torch.Tensor)]

    def _results(self) -> list[tuple[str, fx.Node]]:
        """(name, node) of outputs; of a written buffer, its own name after `new_`."""
        nodes = {n.name: n for n in self._module.graph.nodes}
        found = []
        for spec in self._signature.output_specs:
            name = str(getattr(spec.arg, "name", ""))
            if name in nodes and isinstance(self._values[nodes[name]], torch.Tensor):
                if spec.kind in _WRITTEN:
                    found.append((f"new_{str(spec.target).replace('.', '_')}", nodes[name]))
                else:
                    found.append((name, nodes[name]))
        if not found:
            raise ModelError("the program has no tensor among its outputs")
        return found

    def _constants(self, program: ExportedProgram) -> dict[fx.Node, torch.Tensor]:
        """Parameters, buffers that nobody writes, and constants, by their placeholder."""
        nodes, held = self._placeholders(), {**program.state_dict, **program.constants}
        written = {s.target for s in self._signature.output_specs if s.kind in _WRITTEN}
        kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        return {
            nodes[s.arg.name]: held[str(s.target)]
            for s in self._signature.input_specs
            if s.kind in kinds and s.target not in written
        }

    def _examples(self, sizes: Mapping[str, int]) -> list[Any]:
        """A tensor for every placeholder, whose data nobody reads."""
        found: list[Any] = []
        for name, node in self._placeholders().items():
            value = self._values[node]
            if node in self._weights:
                found.append(self._weights[node])
            elif isinstance(value, torch.Tensor):
                shape = self.inputs[name].at(sizes).shape
                found.append(torch.empty(shape, dtype=value.dtype))
            else:
                raise ModelError(f"input {name!r} is no tensor; export the program without it")
        return found


def open_exported(program: ExportedProgram, fixed: Mapping[str, Any]) -> Graph | ExportedModel:
    """The program's graph, or the model where sizes stay open. Raises ModelError, also for shapes
    that are fixed outside of the export."""
    if fixed:
        raise ModelError("shapes of an exported program are its own; fix them in torch.export")
    model = ExportedModel(program)
    return model if model.symbols else model.graph({})


def _limits(program: ExportedProgram, symbols: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Ranges of symbols that end, by what `torch.export.Dim` says."""
    found = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    return {
        name: (max(int(found[name].lower), 1), int(found[name].upper))
        for name in symbols
        if name in found and found[name].upper.is_Integer and found[name].upper < UNBOUNDED
    }


def _sized(name: str, value: Any) -> SizedType:
    shape = [int(e) if isinstance(e, int) else str(e) for e in value.shape]
    for extent in shape:
        if isinstance(extent, str) and not extent.isidentifier():
            raise ModelError(
                f"input {name!r} has a size {extent}, an expression of others; export it with "
                "sizes that are fixed, or open by themselves"
            )
    return SizedType(dtype=graph_dtype(value.dtype), shape=tuple(shape))


def _told(value: torch.Tensor) -> SizedType:
    shape = tuple(int(e) if isinstance(e, int) else str(e) for e in value.shape)
    return SizedType(dtype=graph_dtype(value.dtype), shape=shape)


def _declared(dtype: torch.dtype, name: str) -> dict[str, str]:
    """What callers have in another type than the graph."""
    return {name: str(dtype).removeprefix("torch.")} if dtype in HALVES else {}

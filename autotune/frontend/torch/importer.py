"""Import a graph of ATen operators. In: functional nodes with the shapes of what they give, what
is given to them, and weights. Out: a `Graph`, and which nodes have no operator here.

The importers of single operators are in the files beside this one, a family each.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from autotune.errors import AutotuneError, ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.fourier import ComplexValue, joined, parts_of
from autotune.frontend.torch.context import AtenCall, Number, importer_of
from autotune.frontend.torch.dtypes import HALVES, PARTS, graph_dtype
from autotune.frontend.torch.order import memory_order, strides_with_gaps
from autotune.frontend.torch.sizes import KNOWN, SYMBOLIC, OpenSizes
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.registry import load_folder
from autotune.types import Array, TensorType

load_folder("autotune.frontend.torch", [str(Path(__file__).parent)])

MISFITS = (ValueError, TypeError, IndexError, KeyError, AttributeError, ZeroDivisionError)
"""What an importer runs into where operands are of another form than it knows."""
Values = Mapping[fx.Node, Any]
"""What each node gives: a tensor without data, a number, or a tuple of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPort:
    """An input or output of a graph, and the tensor that it stands for."""

    name: str
    dtype: torch.dtype
    order: tuple[int, ...]
    """The tensor's dimensions as they lie in memory, the slowest first: the graph has them so.
    Complex tensors have their parts as the last one."""
    strides: tuple[int, ...] | None = None
    """Where PyTorch leaves gaps between the elements of an output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPiece:
    """A graph, with its ports in order."""

    graph: Graph
    inputs: tuple[TensorPort, ...]
    outputs: tuple[TensorPort, ...]


def import_nodes(
    nodes: Sequence[fx.Node],
    values: Values,
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    *,
    weights: Mapping[fx.Node, torch.Tensor],
    sizes: OpenSizes = KNOWN,
    examples: Values | None = None,
) -> ImportedPiece:
    """The graph of some nodes, in order. `inputs`: what they take from others; `outputs`: what
    others take from them; the rest as for an `AtenImport`. Raises ModelError where an operator is
    not supported."""
    importing = AtenImport("model", values, weights, sizes=sizes, examples=examples)
    ports = tuple(importing.take(node, f"x{i}") for i, node in enumerate(inputs))
    for node in nodes:
        importing.add(node)
    made = tuple(importing.give(node, f"y{i}") for i, node in enumerate(outputs))
    return ImportedPiece(graph=importing.finished(), inputs=ports, outputs=made)


def refusals(
    nodes: Sequence[fx.Node],
    values: Values,
    weights: Mapping[fx.Node, torch.Tensor],
    *,
    sizes: OpenSizes = KNOWN,
    examples: Values | None = None,
) -> dict[fx.Node, str]:
    """The nodes that cannot be imported, and why. What they give counts as given from outside.
    The rest as for an `AtenImport`."""
    importing = AtenImport("trial", values, weights, sizes=sizes, examples=examples)
    found: dict[fx.Node, str] = {}
    for node in nodes:
        try:
            for given in node.all_input_nodes:
                if given not in importing.made and not importing.knows(given):
                    importing.take(given, given.name)
            importing.add(node)
        except AutotuneError as error:
            found[node] = str(error)
    return _with_their_sources(nodes, found)


def _with_their_sources(
    nodes: Sequence[fx.Node], refused: Mapping[fx.Node, str]
) -> dict[fx.Node, str]:
    """The refused nodes, with all parts and the source of what is refused in part: a node that
    gives several values gives all of them, or none."""
    parts = {n: n.args[0] for n in nodes if n.target is operator.getitem}
    split = {source: refused[n] for n, source in parts.items() if n in refused}
    return {
        n: refused.get(n) or split.get(n) or split[parts[n]]
        for n in nodes
        if n in refused or n in split or parts.get(n) in split
    }


class AtenImport:
    """A graph while nodes are added to it."""

    def __init__(
        self,
        name: str,
        values: Values,
        weights: Mapping[fx.Node, torch.Tensor],
        *,
        as_stored: bool = True,
        sizes: OpenSizes = KNOWN,
        examples: Values | None = None,
    ) -> None:
        """`as_stored`: inputs and outputs have their dimensions in the order in which these lie in
        memory, as they do in `examples` (`values` where not given). `sizes`: what sizes of
        PyTorch's are."""
        self._as_stored, self._sizes = as_stored, sizes
        self._examples = values if examples is None else examples
        self.builder = GraphBuilder(name)
        self.made: dict[fx.Node, Any] = {}
        """By node, the name of a value of the graph, a number, or a tuple of them."""
        self._values, self._weights = values, weights
        self._outputs: list[tuple[str, str]] = []

    def _know(self, node: fx.Node) -> None:
        """Enter a value that is the same in every run: a weight or a number."""
        given = self._values[node]
        if node in self._weights:
            self.made[node] = self._constant(self._weights[node])
        elif isinstance(given, Number):
            self.made[node] = given
        elif isinstance(given, torch.SymInt) and self._sizes is not KNOWN:
            self.made[node] = self._sizes.of(given)
        else:
            raise UnsupportedOpError(f"{node.name} is known to a run only")

    def _constant(self, weight: torch.Tensor) -> str | ComplexValue:
        if weight.is_complex():
            parts = torch.view_as_real(weight.detach().resolve_conj()).unbind(-1)
            return ComplexValue(*(self.builder.constant(host_array(p)) for p in parts))
        graph_dtype(weight.dtype)
        return self.builder.constant(host_array(weight))

    def take(self, node: fx.Node, name: str) -> TensorPort:
        """Make an input of what a node gives."""
        given = self._values[node]
        kind = sized_type(node, given, self._sizes)
        order = self._order(node)
        extents = (*kind.shape, 2) if given.is_complex() else kind.shape
        shape = tuple(extents[d] for d in order)
        value = self.builder.input(name, TensorType(dtype=kind.dtype, shape=shape))
        if order != tuple(range(len(order))):
            back = tuple(order.index(d) for d in range(len(order)))
            value = self.builder.op("transpose", value, perm=back)
        whole = Assembler(self.builder)
        self.made[node] = parts_of(whole, value) if given.is_complex() else value
        return TensorPort(name=name, dtype=given.dtype, order=order)

    def knows(self, node: fx.Node) -> bool:
        """Whether what a node gives is the same in every run."""
        kinds = Number if self._sizes is KNOWN else (bool, int, float, *SYMBOLIC)
        return node in self._weights or isinstance(self._values[node], kinds)

    def add(self, node: fx.Node) -> None:
        """Import a node whose operands are there. Raises ModelError."""
        if node.target is operator.getitem:
            whole, place = node.args
            assert isinstance(whole, fx.Node)
            if whole not in self.made:
                raise UnsupportedOpError(f"{whole.target} is not supported")
            part = self.made[whole][place]
            if part is None:
                raise UnsupportedOpError(f"output {place} of {whole.target} is not supported")
            self.made[node] = part
            return
        result = self._values[node]
        tensors = [result, *(self._values[n] for n in node.all_input_nodes)]
        of_complex = any(map(_is_complex, pytree.tree_leaves(tensors)))
        importer = importer_of(node.target, of_complex=of_complex)
        if importer is None:
            of = " of complex numbers" if of_complex else ""
            raise UnsupportedOpError(f"{node.target}{of} is not supported")
        self.builder.label = node.name
        try:
            for given in node.all_input_nodes:
                if given not in self.made:
                    self._know(given)
            call = AtenCall(self.builder, node, self.made, self._values, self._sizes)
            several = isinstance(result, tuple | list)
            results = result if several else (result,)
            kinds = [sized_type(node, t, self._sizes) for t in results]
            made = importer(call)
            listed = made if isinstance(made, tuple) else (made,)
            self._check(listed, kinds)
            parted = [v is None or isinstance(v, ComplexValue) == _is_complex(t)
                      for v, t in zip(listed, results, strict=True)]  # fmt: skip
            if not all(parted):
                raise ModelError("one of real and complex numbers was made of the other")
        except ModelError as error:
            raise type(error)(f"{node.target}: {error}") from error
        except MISFITS as error:
            raise ModelError(f"{node.target}: {type(error).__name__}: {error}") from error
        self.made[node] = made

    def give(self, node: fx.Node, name: str) -> TensorPort:
        """Make an output of what a node gives, which lies in memory as PyTorch has it."""
        given, value = self._values[node], self.made[node]
        sized_type(node, given, self._sizes)
        order = self._order(node)
        if isinstance(value, ComplexValue):
            value = joined(Assembler(self.builder), value)
        if order != tuple(range(len(order))):
            value = self.builder.op("transpose", value, perm=order)
        if value in self.builder.constants or self.builder.is_input(value):
            value = self.builder.op("copy", value)
        self._outputs.append((name, value))
        strides = strides_with_gaps(given) if self._sizes is KNOWN else None
        return TensorPort(name=name, dtype=given.dtype, order=order, strides=strides)

    def finished(self, declared: Mapping[str, str] | None = None) -> Graph:
        """`declared`: see `GraphBuilder.finish`."""
        return self.builder.finish(self._outputs, declared)

    def _order(self, node: fx.Node) -> tuple[int, ...]:
        tensor = self._examples[node]
        order = memory_order(tensor) if self._as_stored else tuple(range(tensor.dim()))
        return (*order, len(order)) if tensor.is_complex() else order

    def _check(
        self, made: Sequence[str | ComplexValue | None], kinds: Sequence[TensorType]
    ) -> None:
        """Raise ModelError where what was made is of another type than PyTorch gives."""
        for value, kind in zip(made, kinds, strict=True):
            parts = (value.real, value.imaginary) if isinstance(value, ComplexValue) else (value,)
            for part in parts:
                if part is not None and self.builder.types[part] != kind:
                    raise ModelError(f"it gives {kind}, and {self.builder.types[part]} was made")


def _is_complex(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.is_complex()


def sized_type(node: fx.Node, given: Any, sizes: OpenSizes) -> TensorType:
    """The graph's type of what a node gives, of its parts where it is complex. Raises
    UnsupportedOpError for what is no tensor, or has sizes that are not known."""
    if not isinstance(given, torch.Tensor):
        raise UnsupportedOpError(f"{node.name} is no tensor but {type(given).__name__}")
    if given.layout is not torch.strided:
        raise UnsupportedOpError(f"tensors of layout {given.layout} are not supported")
    if sizes is KNOWN and any(isinstance(e, torch.SymInt) for e in given.shape):
        raise UnsupportedOpError(f"how much {node.target} gives is known to a run only")
    dtype = graph_dtype(PARTS.get(given.dtype, given.dtype))
    return TensorType(dtype=dtype, shape=tuple(map(sizes.of, given.shape)))


def host_array(tensor: torch.Tensor) -> Array:
    """A weight as an array, in its own memory where it can be; floats of 16 bits are widened."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype in HALVES:
        plain = plain.to(torch.float32)
    return np.asarray(plain.numpy())

"""Tensors in files beside a model. In: a model in memory. Out: a ModelError, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx.external_data_helper import uses_external_data

from autotune.errors import ModelError


def check_whole(model: onnx.ModelProto, what: str) -> None:
    """Raise ModelError where tensors of the model lie in other files: which those are is known
    beside the model's own file only."""
    outside = [t for graph in _bodies(model) for t in _tensors(*graph) if uses_external_data(t)]
    if not outside:
        return
    places = {e.value for t in outside for e in t.external_data if e.key == "location"}
    more = f", as those of {len(outside) - 1} more" if len(outside) > 1 else ""
    where = f" ({', '.join(map(repr, sorted(places)[:3]))})" if places else ""
    raise ModelError(
        f"{what}: tensor {outside[0].name!r}: the data lie in another file{where}{more}; give the "
        "path of the .onnx file instead, or load it with onnx.load, which brings them in"
    )


def _bodies(
    model: onnx.ModelProto,
) -> Iterator[tuple[Iterable[onnx.TensorProto], Iterable[onnx.NodeProto]]]:
    yield model.graph.initializer, model.graph.node
    for function in model.functions:
        yield (), function.node


def _tensors(
    initializers: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]
) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph and of those within it."""
    yield from initializers
    for attribute in (a for node in nodes for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for graph in (attribute.g, *attribute.graphs):
            yield from _tensors(graph.initializer, graph.node)

"""Frontends. In: what the user calls a model, or holds as one in memory. Out: a `Graph`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from autotune import arguments
from autotune.errors import ModelError
from autotune.graph.ir import Graph

if TYPE_CHECKING:
    import onnx

    from autotune.frontend.symbolic import SymbolicModel

ZOO_PREFIX = "zoo:"
KINDS = "a path of an .onnx file, 'zoo:NAME', the bytes of one, an onnx.ModelProto or a Graph"

Shapes = Mapping[str, tuple[int | str, ...]]
"""Shapes of inputs, by name: extents, or names of symbolic ones."""
Model: TypeAlias = Union[str, os.PathLike[str], bytes, "onnx.ModelProto", Graph]
"""An .onnx file by its path, `zoo:NAME`, the bytes of such a file, a model of the onnx package, or
a graph that is imported already."""


def load_model(model: Model, shapes: Shapes | None = None) -> Graph:
    """The model's graph. `shapes` fixes the symbolic dimensions of inputs, by input name. Nothing
    that is given is changed.

    Raises ModelError where the model is missing, damaged, not static or of an unknown kind."""
    check_model(model)
    fixed = arguments.shapes(shapes)
    if isinstance(model, Graph):
        return _as_given(model, fixed)
    from autotune.frontend.onnx.importer import import_model

    return import_model(read_model(model), fixed)


def open_model(model: Model, shapes: Shapes | None = None) -> Graph | SymbolicModel:
    """The model's graph, or, where dimensions of its inputs stay symbolic, what gives one for each
    set of sizes. The graph's weights may lie in the model's files, as long as it is there.
    Otherwise as `load_model`."""
    check_model(model)
    fixed = arguments.shapes(shapes)
    if isinstance(model, Graph):
        return _as_given(model, fixed)
    from autotune.frontend.onnx.importer import import_model
    from autotune.frontend.symbolic import symbolic_model

    read = read_model(model, mapped=True)
    if symbolic_model(read, fixed) is None:
        return import_model(read, fixed)
    whole = read_model(model)  # it may be kept for long, its files may not
    return symbolic_model(whole, fixed) or import_model(whole, fixed)


def read_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, mapped: bool = False
) -> onnx.ModelProto:
    """The model as the onnx package has it; its weights may stay in files where it is `mapped`.
    Raises ModelError. The package is imported where a model is read, not where an artifact is
    run."""
    from autotune.frontend.onnx.importer import read_onnx

    if not isinstance(model, str | os.PathLike):
        return read_onnx(model)
    spec = os.fspath(model)
    if spec.startswith(ZOO_PREFIX):
        from autotune.frontend.zoo import build_model

        return build_model(spec.removeprefix(ZOO_PREFIX))
    check_name(spec)
    return read_onnx(spec, mapped=mapped)


def check_model(model: object) -> None:
    """Raise ModelError for what is no model by its type. Reads nothing."""
    if isinstance(model, bytes | bytearray | memoryview | Graph) or _is_proto(model):
        return
    arguments.place("model", model, KINDS, ModelError)


def check_name(spec: str, expected: str = f"an .onnx file or {ZOO_PREFIX}NAME") -> None:
    """Raise ModelError for what no frontend reads, by its name."""
    if spec.startswith(ZOO_PREFIX) or Path(spec).suffix == ".onnx":
        return
    found = "has another ending" if os.path.exists(spec) else "does not exist"
    raise ModelError(f"model {arguments.shortened(repr(spec), 200)} {found}; expected {expected}")


def _is_proto(model: object) -> bool:
    """Whether it is the onnx package's, which is imported where there is one."""
    kind = getattr(sys.modules.get("onnx"), "ModelProto", None)
    return kind is not None and isinstance(model, kind)


def _as_given(graph: Graph, shapes: Shapes) -> Graph:
    """Raises ModelError where a shape is not the one that the graph's input has."""
    inputs = dict(graph.inputs)
    for name, shape in shapes.items():
        if name not in inputs or inputs[name].shape != shape:
            kinds = ", ".join(f"{n} ({kind})" for n, kind in graph.inputs)
            raise ModelError(
                f"shape {list(shape)} is given for {name!r}, but a Graph's inputs have theirs "
                f"({kinds}); fix them where the model is imported"
            )
    return graph

"""Frontends. In: what the user calls a model, or holds as one in memory. Out: a `Graph`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from autotune import arguments
from autotune.errors import ModelError
from autotune.graph.ir import Graph

if TYPE_CHECKING:
    import onnx
    import torch

    from autotune.frontend.open_sizes import OpenModel

ZOO_PREFIX = "zoo:"
KINDS = (
    "a path of an .onnx, .tflite or .pt2 file, 'zoo:NAME', the bytes of an .onnx or .tflite file, "
    "an onnx.ModelProto, a torch.export.ExportedProgram or a Graph"
)
EXPORTED_SUFFIX, TFLITE_SUFFIX = ".pt2", ".tflite"
SUFFIXES = (".onnx", EXPORTED_SUFFIX, TFLITE_SUFFIX)
_TFLITE_IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of TensorFlow Lite's files."""

Shapes = Mapping[str, tuple[int | str, ...]]
"""Shapes of inputs, by name: extents, or names of symbolic ones."""
Model: TypeAlias = Union[
    str, os.PathLike[str], bytes, "onnx.ModelProto", "torch.export.ExportedProgram", Graph
]
"""An .onnx or .tflite file by its path, `zoo:NAME`, the bytes of such a file, a model of the onnx
package, a program of torch.export or its .pt2 file by its path, or a graph that is imported
already."""


def load_model(model: Model, shapes: Shapes | None = None) -> Graph:
    """The model's graph. `shapes` fixes the symbolic dimensions of inputs, by input name. Nothing
    that is given is changed.

    Raises ModelError where the model is missing, damaged, not static or of an unknown kind."""
    check_model(model)
    fixed = arguments.shapes(shapes)
    if isinstance(model, Graph):
        return _as_given(model, fixed)
    if _is_exported(model):
        opened = _open_exported(model, fixed)
        if isinstance(opened, Graph):
            return opened
        raise ModelError(
            f"the program's sizes {arguments.listed(opened.symbols)} are open; export it with "
            "fixed ones for this"
        )
    if _is_tflite(model):
        return _import_tflite(model, fixed)
    from autotune.frontend.onnx.importer import import_model

    return import_model(read_model(model), fixed)


def open_model(
    model: Model, shapes: Shapes | None = None, *, whole: bool = True
) -> Graph | OpenModel:
    """The model's graph, or, where dimensions of its inputs stay symbolic, what gives one for each
    set of sizes. The graph's weights may lie in the model's files, as long as it is there. What is
    not `whole` raises ControlFlowError for control flow that a run had better do by itself.
    Otherwise as `load_model`."""
    check_model(model)
    fixed = arguments.shapes(shapes)
    if isinstance(model, Graph):
        return _as_given(model, fixed)
    if _is_exported(model):
        return _open_exported(model, fixed)
    if _is_tflite(model):
        return _import_tflite(model, fixed)
    from autotune.frontend.onnx.importer import import_model
    from autotune.frontend.symbolic import symbolic_model

    read = read_model(model, mapped=True)
    if symbolic_model(read, fixed) is None:
        return import_model(read, fixed, whole=whole)
    kept = read_model(model)  # it may be there for long, its files may not
    return symbolic_model(kept, fixed, whole=whole) or import_model(kept, fixed, whole=whole)


def _open_exported(model: Any, fixed: Shapes) -> Graph | OpenModel:
    """A program of torch.export, or the file of one. PyTorch is imported for it alone."""
    try:
        from autotune.frontend.exported import open_exported, read_exported
    except ImportError as error:
        if error.name != "torch":
            raise
        raise ModelError(
            f"a {EXPORTED_SUFFIX} file is read by PyTorch, which is not installed; install "
            "autotune-compiler[torch]"
        ) from None
    program = read_exported(model) if isinstance(model, str | os.PathLike) else model
    return open_exported(program, fixed)


def _import_tflite(model: Any, fixed: Shapes) -> Graph:
    """A TensorFlow Lite file or its bytes. The packages that read it are imported for it alone."""
    try:
        from autotune.frontend.tflite.importer import import_tflite
    except ImportError as error:
        if error.name not in ("tflite", "flatbuffers"):
            raise
        raise ModelError(
            f"a {TFLITE_SUFFIX} file is read by the package tflite, which is not installed; "
            "install autotune-compiler[tflite]"
        ) from None
    return import_tflite(model if isinstance(model, str | os.PathLike) else bytes(model), fixed)


def is_onnx(model: Model) -> bool:
    """Whether `read_model` reads it."""
    return not (isinstance(model, Graph) or _is_exported(model) or _is_tflite(model))


def read_model(model: Any, *, mapped: bool = False) -> onnx.ModelProto:
    """A path, `zoo:NAME`, bytes or a ModelProto as the onnx package has it; its weights may stay
    in files where it is `mapped`. Raises ModelError. The package is imported where a model is
    read, not where an artifact is run."""
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
    if _is_exported(model):
        return
    arguments.place("model", model, KINDS, ModelError)


def check_name(
    spec: str, expected: str = f"an .onnx, .tflite or .pt2 file, or {ZOO_PREFIX}NAME"
) -> None:
    """Raise ModelError for what no frontend reads, by its name."""
    if spec.startswith(ZOO_PREFIX) or Path(spec).suffix in SUFFIXES:
        return
    found = "has another ending" if os.path.exists(spec) else "does not exist"
    raise ModelError(f"model {arguments.shortened(repr(spec), 200)} {found}; expected {expected}")


def _is_proto(model: object) -> bool:
    """Whether it is the onnx package's, which is imported where there is one."""
    kind = getattr(sys.modules.get("onnx"), "ModelProto", None)
    return kind is not None and isinstance(model, kind)


def _is_tflite(model: object) -> bool:
    """Whether it is named as a TensorFlow Lite file is, or begins as one does."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[4:8]) == _TFLITE_IDENTIFIER
    return isinstance(model, str | os.PathLike) and Path(model).suffix == TFLITE_SUFFIX


def _is_exported(model: object) -> bool:
    """Whether it is a program of torch.export, or named as a file of one is."""
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        return isinstance(name, str) and Path(name).suffix == EXPORTED_SUFFIX
    exported = getattr(sys.modules.get("torch.export"), "ExportedProgram", None)
    return exported is not None and isinstance(model, exported)


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

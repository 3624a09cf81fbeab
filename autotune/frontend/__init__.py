"""Frontends. In: what the user calls a model, `zoo:NAME` or an .onnx file. Out: a `Graph`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autotune.errors import ModelError
from autotune.graph.ir import Graph

ZOO_PREFIX = "zoo:"


def load_model(spec: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The model's graph. `shapes` fixes the symbolic dimensions of inputs, by input name.

    Raises ModelError where the model is missing, damaged, not static or of an unknown kind."""
    # The onnx package is imported where a model is read, not where a saved artifact is run.
    from autotune.frontend.onnx import import_model, import_onnx

    if spec.startswith(ZOO_PREFIX):
        from autotune.frontend.zoo import build_model

        return import_model(build_model(spec.removeprefix(ZOO_PREFIX)), shapes or {})
    check_name(spec)
    return import_onnx(spec, shapes)


def check_name(spec: str, expected: str = f"an .onnx file or {ZOO_PREFIX}NAME") -> None:
    """Raise ModelError for what no frontend reads, by its name."""
    if spec.startswith(ZOO_PREFIX) or Path(spec).suffix == ".onnx":
        return
    found = "has another ending" if os.path.exists(spec) else "does not exist"
    raise ModelError(f"model {spec!r} {found}; expected {expected}")

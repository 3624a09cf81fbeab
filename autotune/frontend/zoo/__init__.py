"""The model zoo: networks built in Python with seeded weights, no download.

In: a name of `ZOO`. Out: an ONNX model, to import or to save. A model is one function in one of
this folder's files, registered by `zoo_model`.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from autotune.atomic_file import atomic_file
from autotune.errors import ModelError
from autotune.frontend.zoo.base import ZOO
from autotune.registry import load_folder

load_folder(__name__, list(__path__))

__all__ = ["ZOO", "build_model", "export_onnx"]


def build_model(name: str) -> onnx.ModelProto:
    """The ONNX model of a zoo entry. Raises ModelError where there is none of that name."""
    if name not in ZOO:
        raise ModelError(f"there is no zoo model {name!r}; the zoo has {', '.join(ZOO)}")
    return ZOO.get(name)()


def export_onnx(name: str, path: str | Path) -> None:
    """Write a zoo model as an ONNX file. Raises ModelError."""
    content = build_model(name).SerializeToString()
    with atomic_file(path, ModelError) as out:
        out.write(content)

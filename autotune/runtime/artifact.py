"""Compiled models out of files. In: a file's path or bytes. Out: the model, ready to run."""

from __future__ import annotations

import os
from typing import IO

from autotune.runtime.image_file import read_any_image
from autotune.runtime.model import CompiledModel, restored
from autotune.runtime.open_image import OpenImage
from autotune.runtime.sized import SizedModel, restored_sized

__all__ = ["load", "restored", "restored_sized"]


def load(source: str | os.PathLike[str] | bytes | IO[bytes]) -> CompiledModel | SizedModel:
    """The model of an artifact (its path, its bytes, or a file open for reading bytes), ready to
    run on this machine. It is machine code: load what you compiled, or whom you trust did.

    Raises ArtifactError: not an artifact, damaged, of a newer format, or built for another CPU."""
    image = read_any_image(source)
    return SizedModel.of(image) if isinstance(image, OpenImage) else CompiledModel(image)

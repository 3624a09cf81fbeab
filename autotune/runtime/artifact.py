"""Compiled models as files. In: a ModelImage or a path. Out: one file, or the model it holds.

The file is an uncompressed zip: manifest.json, objects/NNNN.o (the entry last), constants.bin. It
is written beside its final name and renamed, so a reader never sees half a file. Reading needs
numpy and llvmlite only.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from autotune.errors import ArtifactError
from autotune.memory import Bytes, zeroed_block
from autotune.runtime.executor import CompiledModel
from autotune.runtime.host import check_host
from autotune.runtime.image import ModelImage
from autotune.target import Target
from autotune.whole_file import whole_file

FORMAT = "autotune-compiled-model"
FORMAT_VERSION = 1
_MANIFEST, _CONSTANTS = "manifest.json", "constants.bin"
_CHUNK_BYTES = 8 << 20
_ZIP_HEADER_BYTES = 30
"""Of a zip's first entry, up to its name."""


def save(image: ModelImage, path: str | Path) -> None:
    """Write the artifact in one step. Raises ArtifactError where the file cannot be written."""
    with whole_file(path, ArtifactError) as file:
        write_image(image, file)


def write_image(image: ModelImage, file: IO[bytes]) -> None:
    """The artifact, into a file that can be sought in."""
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, **image.manifest()}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
        for number, code in enumerate(image.objects):
            archive.writestr(_object_name(number), code)
        with archive.open(_CONSTANTS, "w", force_zip64=True) as block:
            block.write(image.constants.data)


def load(path: str | Path) -> CompiledModel:
    """The model of an artifact, ready to run on this machine. Raises ArtifactError: not an
    artifact, damaged, of a newer format, or built for another CPU."""
    return CompiledModel(read_image(path))


def is_artifact(path: str | Path) -> bool:
    """Whether the file begins like one of ours, whatever its version and however it ends."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_ZIP_HEADER_BYTES + len(_MANIFEST))
    except OSError:
        return False
    return head.startswith(b"PK") and head[_ZIP_HEADER_BYTES:] == _MANIFEST.encode()


def read_image(path: str | Path) -> ModelImage:
    """The data of an artifact, checked against this machine."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive, path)
            check_host(Target.from_json(manifest["target"]), str(path))
            objects = tuple(archive.read(_object_name(n)) for n in range(manifest["objects"]))
            constants = _read_constants(archive, manifest["constant_bytes"])
            return ModelImage.from_manifest(manifest, objects, constants)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError) as error:  # its flags may be damaged
        raise ArtifactError(
            f"{path} is not a compiled model, or is damaged ({error}); compile the model again"
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ArtifactError(
            f"{path} is damaged: {type(error).__name__} {error}; compile the model again"
        ) from None


def _object_name(number: int) -> str:
    return f"objects/{number:04}.o"


def _read_manifest(archive: zipfile.ZipFile, path: str | Path) -> dict[str, Any]:
    if _MANIFEST not in archive.namelist():
        raise ArtifactError(f"{path} is not a compiled model; make one with `autotune compile`")
    manifest: dict[str, Any] = json.loads(archive.read(_MANIFEST))
    if manifest.get("format") != FORMAT:
        raise ArtifactError(f"{path} is not a compiled model; make one with `autotune compile`")
    if manifest["format_version"] > FORMAT_VERSION:
        raise ArtifactError(
            f"{path} has format version {manifest['format_version']}, this version reads up to "
            f"{FORMAT_VERSION}; update autotune or compile the model again"
        )
    return manifest


def _read_constants(archive: zipfile.ZipFile, nbytes: int) -> Bytes:
    block = zeroed_block(nbytes)
    at = 0
    with archive.open(_CONSTANTS) as file:
        while chunk := file.read(_CHUNK_BYTES):
            block[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
            at += len(chunk)
    if at != nbytes:
        raise EOFError(f"{_CONSTANTS} has {at} bytes, expected {nbytes}")
    return block

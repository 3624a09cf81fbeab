"""Images of compiled models as files. In: an image, of fixed or open sizes, or a file's path or
bytes. Out: one file, or the image it holds.

The file is an uncompressed zip: manifest.json, objects/NNNN.o (the entry last), constants.bin,
which begins at a page: it is mapped, so that processes share one copy of the weights; and check, a
digest of the rest, so that parts of different files are told from a whole. It is written beside
its final name and renamed: a reader never sees half a file, and who has mapped the one before
keeps that. Reading needs numpy only.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from autotune import arguments
from autotune.atomic_file import atomic_file
from autotune.errors import ArtifactError
from autotune.memory import ALIGNMENT, Bytes, zeroed_block
from autotune.printable import one_line
from autotune.runtime.bounds import check_bounds, check_room
from autotune.runtime.host import check_host
from autotune.runtime.image import ModelImage
from autotune.runtime.open_image import OpenImage
from autotune.target import Target

FORMAT = "autotune-compiled-model"
FORMAT_VERSION = 3
"""Version of the file's format. 1: sizes are fixed. 3: they are open. 2: they were, in programs
that could not place their values themselves."""
_MANIFEST, _CONSTANTS, _CHECK = "manifest.json", "constants.bin", "check"
"""Entries. Files of versions before the check have none."""
_SHOWN_CHARACTERS = 200
_CHUNK_BYTES = 8 << 20
"""Bytes that are read, or written, at a time."""
_ZIP_HEADER_BYTES = 30
"""Bytes of a zip's entry up to its name."""
_LENGTHS_AT, _LENGTHS = 26, struct.Struct("<HH")
"""Where in those bytes the lengths of the name, and of what comes between it and the data, are."""
_EXTRA, _FILLED = struct.Struct("<HH"), 0xD935
"""What comes between, in records: kind and length; zipalign's kind is for zeros that align."""


Image = ModelImage | OpenImage


def save(image: Image, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write the artifact: to a path in one step, to an open file as it comes. Raises ArtifactError
    where that cannot be written."""
    if isinstance(path, str | os.PathLike) or not hasattr(path, "write"):
        where = arguments.place("path", path, "a path or a file open for bytes", ArtifactError)
        with atomic_file(where, ArtifactError) as file:
            write_image(image, file)
        return
    try:
        write_image(image, path)
    except (OSError, ValueError, TypeError) as error:  # closed, for reading, for text, a full disk
        raise ArtifactError(
            f"cannot write to the file given: {error}; give one that is open for writing bytes"
        ) from None


def image_bytes(image: Image) -> bytes:
    """The artifact in memory."""
    file = io.BytesIO()
    write_image(image, file)
    return file.getvalue()


def write_image(image: Image, file: IO[bytes]) -> None:
    """The artifact, into a file that can be sought in. It has no date: equal models are equal
    bytes."""
    version = FORMAT_VERSION if isinstance(image, OpenImage) else 1
    head = {"format": FORMAT, "format_version": version, "digest": image.digest()}
    manifest = {**head, **image.manifest()}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_MANIFEST), json.dumps(manifest, indent=1))
        for number, code in enumerate(image.objects):
            archive.writestr(zipfile.ZipInfo(_object_name(number)), code)
        entry = _at_a_page(_CONSTANTS, archive.start_dir)
        with archive.open(entry, "w", force_zip64=True) as block:
            block.write(image.constants.data)
        check = _check_of(archive, manifest["objects"])
        archive.writestr(zipfile.ZipInfo(_CHECK), check)


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like one of ours, whatever its version and however it ends."""
    if not isinstance(path, str | os.PathLike):
        arguments.place("path", path, failure=ArtifactError)
    try:
        with Path(path).open("rb") as file:
            head = file.read(_ZIP_HEADER_BYTES + len(_MANIFEST))
    except (OSError, ValueError):
        return False
    return head.startswith(b"PK") and head[_ZIP_HEADER_BYTES:] == _MANIFEST.encode()


def read_any_image(source: str | os.PathLike[str] | bytes | IO[bytes]) -> Image:
    """The data of an artifact, checked against this machine."""
    return _read_image(*_opened(source))[1]


def read_image(
    source: str | os.PathLike[str] | bytes | IO[bytes], *, here: bool = True
) -> ModelImage:
    """The same of a model of fixed sizes. `here`: refuse code that this machine cannot run. Raises
    ArtifactError for one of open sizes."""
    file, path = _opened(source)
    image = _read_image(file, path, here=here)[1]
    if isinstance(image, OpenImage):
        raise ArtifactError(
            f"{path} is a model of open sizes, a board takes fixed ones: compile it with --shape"
        )
    return image


def describe(path: str) -> dict[str, str | int]:
    """What an artifact is, for whatever machine: compiler, target, digest. Raises ArtifactError
    where it does not have the digest that it names."""
    manifest, image = _read_image(path, path, here=False)
    digest = image.digest()
    if manifest.get("digest", digest) != digest:
        raise ArtifactError(
            f"{path} was changed or damaged: it does not have the digest that it names; compile "
            "the model again"
        )
    target = image.target
    if isinstance(image, OpenImage):
        said = ", ".join(f"{symbol}: {allowed}" for symbol, allowed in image.types.ranges)
        counted: dict[str, str | int] = {"sizes": said, "kernels": len(image.table.kernels)}
    else:
        counted = {"kernels": len(image.kernels)}
    return {
        "format": FORMAT,
        "model": image.name,
        "target": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "features": target.features,
        "threads": target.threads,
        "precision": target.precision,
        **dict(image.versions),
        **counted,
        "weights": image.constants.nbytes,
        "digest": digest,
    }


def _read_image(
    file: str | IO[bytes], path: str, *, here: bool = True
) -> tuple[dict[str, Any], Image]:
    """The manifest and what it describes; `here`: refuse code for another machine."""
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _read_manifest(archive, path)
            if here:
                check_host(Target.from_json(manifest["target"]), path)
            objects = tuple(archive.read(_object_name(n)) for n in range(manifest["objects"]))
            constants = _constants(archive, manifest["constant_bytes"])
            if _CHECK in archive.namelist() and archive.read(_CHECK) != _check_of(
                archive, len(objects)
            ):
                raise zipfile.BadZipFile("its parts are not of one file")
            kind = OpenImage if "units" in manifest else ModelImage
            if kind is OpenImage and manifest["format_version"] < FORMAT_VERSION:
                raise ArtifactError(
                    f"{path} is a program for any sizes of format version "
                    f"{manifest['format_version']}, this version reads {FORMAT_VERSION}; compile "
                    "the model again"
                )
            image = kind.from_manifest(manifest, objects, constants)
            check_bounds(image)
            if here:
                check_room(image)
            return manifest, image
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, struct.error) as error:  # flags, lengths
        raise ArtifactError(
            f"{path} is not a compiled model, or is damaged ({_shown(error)}); compile the model "
            "again"
        ) from None
    except MemoryError as error:
        raise ArtifactError(f"cannot load {path}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is damaged: {type(error).__name__} {_shown(error)}; compile the model again"
        ) from None


def _opened(source: object) -> tuple[str | IO[bytes], str]:
    """What zipfile opens, and what messages call it."""
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source), "the model given as bytes"
    if hasattr(source, "read") and hasattr(source, "seek"):
        text, closed = isinstance(source, io.TextIOBase), getattr(source, "closed", False)
        if text or closed or not getattr(source, "readable", lambda: True)():
            raise ArtifactError("cannot read the file given: expected one open with 'rb'")
        return cast(IO[bytes], source), "the file given"
    what = "a path of a compiled model, its bytes, or a file open for reading them"
    path = arguments.place("what is loaded", source, what, ArtifactError)
    return path, path


def _shown(error: Exception) -> str:
    """What an error says, which may be with the file's bytes."""
    return one_line(str(error), _SHOWN_CHARACTERS)


def _object_name(number: int) -> str:
    return f"objects/{number:04}.o"


def _check_of(archive: zipfile.ZipFile, objects: int) -> bytes:
    """Digest of names and checksums of all parts: each part's bytes are compared with its own
    checksum when it is read."""
    names = (_MANIFEST, *map(_object_name, range(objects)), _CONSTANTS)
    parts = (archive.getinfo(name) for name in names)
    said = [(part.filename, part.file_size, part.CRC) for part in parts]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest().encode()


def _read_manifest(archive: zipfile.ZipFile, path: str) -> dict[str, Any]:
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


def _at_a_page(name: str, start: int) -> zipfile.ZipInfo:
    """An entry whose header, from byte `start` on, is filled up so that its data begin at a
    page."""
    info = zipfile.ZipInfo(name)
    info.CRC = info.compress_size = info.file_size = 0  # filled in when they are known
    header = start + len(info.FileHeader(zip64=True)) + _EXTRA.size
    fill = -header % mmap.PAGESIZE
    info.extra = _EXTRA.pack(_FILLED, fill) + bytes(fill)
    return info


def _constants(archive: zipfile.ZipFile, nbytes: int) -> Bytes:
    """Mapped where the archive is a file of its own, else read. Raises what zipfile does."""
    info, path = archive.getinfo(_CONSTANTS), archive.filename
    plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits
    fits = info.file_size == nbytes > 0
    if not (plain and fits) or path is None or not os.path.isfile(path):
        return _read_constants(archive, nbytes)
    with open(path, "rb") as file:
        file.seek(info.header_offset + _LENGTHS_AT)
        start = file.tell() + _LENGTHS.size + sum(_LENGTHS.unpack(file.read(_LENGTHS.size)))
        if start % ALIGNMENT or start + nbytes > os.fstat(file.fileno()).st_size:
            return _read_constants(archive, nbytes)  # of a version that did not care, or damaged
        block = np.asarray(np.memmap(file, np.uint8, "r", start, (nbytes,)))
    if zlib.crc32(block.data) != info.CRC:
        raise zipfile.BadZipFile(f"bad checksum of {_CONSTANTS}")
    return block


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

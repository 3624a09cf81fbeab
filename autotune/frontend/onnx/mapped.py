"""A model whose large tensors stay in their files. In: the path of an .onnx file. Out: the model,
its large initializers as references, and the arrays behind those, mapped into memory.

Reading a model the plain way takes its weights twice before the first of them is used. Here a
weight takes memory while it is read, and `memory.drop_pages` gives that back at once: what is
compiled holds its packed weights only. A file that is cut short while it is mapped ends the
process, as with every mapped file; who keeps a model for long reads it into memory.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from autotune.errors import ModelError
from autotune.types import Array

LEAST_BYTES = 4096
"""Smaller tensors are read with the model."""
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Numbers of fields in ModelProto, GraphProto and TensorProto."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Protocol buffers' kinds of fields."""
_MAPPED_KEY = "file"
"""Key beside the standard's of `external_data`: the URI of the file that was found for it."""

_Field = tuple[int, int, int, int]
"""Number, where the field begins, where its content does, where it ends."""


def read_mapped(path: str) -> onnx.ModelProto:
    """The model of a file; arrays of its large initializers come by `mapped_array`. Raises
    OSError, DecodeError, and ModelError where files beside it are missing or elsewhere."""
    with Path(path).open("rb") as file:
        empty = not os.fstat(file.fileno()).st_size  # which mmap refuses
        data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = onnx.load_model_from_string(_without_weights(memoryview(data)))
    whole = Path(path).resolve()
    for tensor in _external(model.graph):
        found = _beside(whole.parent, tensor) if _entry(tensor, "location") else whole
        _refer(tensor, _MAPPED_KEY, found.as_uri())
    return model


def is_mapped(tensor: onnx.TensorProto) -> bool:
    """Whether it is a reference that `read_mapped` has made."""
    return bool(_entry(tensor, _MAPPED_KEY))


def mapped_array(tensor: onnx.TensorProto, kind: np.dtype[np.generic], what: str) -> Array:
    """The elements of a reference, of its own shape. Raises ModelError."""
    shape = tuple(tensor.dims)
    return _mapped(tensor, kind, shape, int(np.prod(shape, dtype=np.int64)), what)


def brought_in(tensor: onnx.TensorProto, what: str) -> onnx.TensorProto:
    """The tensor of a reference, with its bytes. Raises ModelError."""
    length = int(_entry(tensor, "length") or -1)
    whole = onnx.TensorProto()
    whole.CopyFrom(tensor)
    whole.ClearField("external_data")
    whole.data_location = onnx.TensorProto.DEFAULT
    raw = _mapped(tensor, np.dtype(np.uint8), (length,), length, what)
    whole.raw_data = raw.tobytes()
    return whole


# ------------------------------------------------------------------------------------------- parts


def _without_weights(data: memoryview) -> bytes:
    """The model's bytes with references in place of large initializers."""
    out: list[bytes | memoryview] = []
    for number, start, content, end in _fields(data, 0, len(data)):
        if number != _GRAPH:
            out.append(data[start:end])
            continue
        graph: list[bytes | memoryview] = []
        for field in _fields(data, content, end):
            large = field[0] == _INITIALIZER and field[3] - field[2] >= LEAST_BYTES
            graph.append(_referring(data, field) if large else data[field[1] : field[3]])
        out.append(_field(_GRAPH, b"".join(graph)))
    return b"".join(out)


def _referring(data: memoryview, field: _Field) -> bytes | memoryview:
    """An initializer's field without its bytes: where they are in this file stands in it."""
    _, start, content, end = field
    kept, raw = [], None
    for part in _fields(data, content, end):
        if part[0] == _RAW_DATA:
            raw = part
        else:
            kept.append(data[part[1] : part[3]])
    if raw is None:  # numbers in fields of their own, or a reference already
        return data[start:end]
    tensor = onnx.TensorProto.FromString(b"".join(kept))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    _refer(tensor, "offset", str(raw[2]))
    _refer(tensor, "length", str(raw[3] - raw[2]))
    return _field(_INITIALIZER, tensor.SerializeToString())


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message. Raises DecodeError."""
    at = start
    while at < end:
        key, content = _varint(data, at, end)
        kind = key & 7
        if kind == _VARINT:
            _, after = _varint(data, content, end)
        elif kind in (_FIXED64, _FIXED32):
            after = content + (8 if kind == _FIXED64 else 4)
        elif kind == _BYTES:
            length, content = _varint(data, content, end)
            after = content + length
        else:
            raise DecodeError(f"a field of unknown kind {kind} at byte {at}")
        if after > end:
            raise DecodeError(f"a field at byte {at} goes beyond its end")
        yield key >> 3, at, content, after
        at = after


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError(f"a number at byte {at} does not end")


def _field(number: int, content: bytes) -> bytes:
    return _coded(number << 3 | _BYTES) + _coded(len(content)) + content


def _coded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _external(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Tensors of a graph and of those within it that lie elsewhere."""
    yield from (t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
    for attribute in (a for node in graph.node for a in node.attribute):
        for tensor in (attribute.t, *attribute.tensors):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                yield tensor
        for inner in (attribute.g, *attribute.graphs):
            yield from _external(inner)


def _beside(folder: Path, tensor: onnx.TensorProto) -> Path:
    """The file of a reference: in the model's folder or below, whatever links say."""
    location = _entry(tensor, "location")
    what = f"tensor {tensor.name!r}: its external data"
    found = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not found.is_relative_to(folder):
        raise ModelError(
            f"{what} lie in {location!r}, outside of the model's folder; put the file beside the "
            "model, and write the model again"
        )
    if not found.is_file():
        raise ModelError(f"{what} cannot be read: there is no file {str(found)!r}; check the path")
    return found


def _mapped(
    tensor: onnx.TensorProto, kind: np.dtype[np.generic], shape: tuple[int, ...], count: int,
    what: str,
) -> Array:  # fmt: skip
    offset = int(_entry(tensor, "offset") or 0)
    # A name need not be text that a model can hold.
    file = os.fsdecode(unquote_to_bytes(urlsplit(_entry(tensor, _MAPPED_KEY)).path))
    length, wanted = _entry(tensor, "length"), count * kind.itemsize
    there = os.path.getsize(file) - offset
    if offset < 0 or wanted > there or (length and int(length) != wanted):
        raise ModelError(
            f"{what}: its external data take {wanted} bytes at {offset} of {file!r}, where "
            f"{min(there, int(length or there))} are; the file is damaged, write it again"
        )
    if wanted < LEAST_BYTES:
        return np.fromfile(file, kind, count, offset=offset).reshape(shape)
    return np.asarray(np.memmap(file, kind, "r", offset, shape))


def _entry(tensor: onnx.TensorProto, key: str) -> str:
    return next((e.value for e in tensor.external_data if e.key == key), "")


def _refer(tensor: onnx.TensorProto, key: str, value: str) -> None:
    """Set an entry, whatever the file says there."""
    kept = [e for e in tensor.external_data if e.key != key]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)
    tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))

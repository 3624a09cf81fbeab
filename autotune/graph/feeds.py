"""Inputs of a graph: seeded random ones, and samples out of files.

In: the inputs' types, and a seed, a .npz file, a folder of them, or arrays. Out: arrays by name.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autotune.errors import FeedError
from autotune.types import Array, TensorType, held_as, is_real

Feeds = Mapping[str, Array]
Samples = str | Path | Feeds | Sequence[Feeds]
Types = Mapping[str, TensorType]


def random_feeds(inputs: Types, seed: int) -> dict[str, Array]:
    """Seeded inputs: normal floats, and integers 0 or 1 (valid as ids and as masks)."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for name, kind in inputs.items():
        if is_real(kind.dtype):
            out[name] = rng.standard_normal(kind.shape).astype(held_as(kind.dtype))
        else:
            out[name] = rng.integers(0, 2, kind.shape).astype(kind.dtype)
    return out


def sample_feeds(inputs: Types, source: Samples | None, count: int, seed: int = 0) -> list[Feeds]:
    """At most `count` samples: of a .npz file, a folder of them or arrays given, else random ones.

    A file (or mapping) has an array per input: one sample, or several along a new first dimension
    or along the batch. Raises FeedError where names, shapes or types do not fit."""
    if source is None:
        return [random_feeds(inputs, seed + number) for number in range(count)]
    found: list[Feeds] = []
    for what, arrays in _sources(source):
        found += _split(inputs, arrays, what)
        if len(found) >= count:
            break
    if not found:
        raise FeedError(f"{source} holds no samples; expected .npz files with {_names(inputs)}")
    return found[:count]


def _sources(source: Samples) -> list[tuple[str, Feeds]]:
    if isinstance(source, Mapping):
        return [("the samples", source)]
    if not isinstance(source, str | Path):
        return [(f"sample {number}", feeds) for number, feeds in enumerate(source)]
    path = Path(source)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    return [(str(file), _read(file)) for file in files]


def _read(file: Path) -> Feeds:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise FeedError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        # numpy's words advise to unpickle it
        raise FeedError(f"{file} is no .npz file of numbers; write it with numpy.savez") from None


def _split(inputs: Types, arrays: Feeds, what: str) -> list[Feeds]:
    """The samples of one file."""
    if set(arrays) != set(inputs):
        raise FeedError(f"{what}: expected arrays {_names(inputs)}, got {sorted(arrays)}")
    parts = {name: _parts(name, kind, arrays[name], what) for name, kind in inputs.items()}
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) != 1:
        raise FeedError(f"{what}: its arrays hold different numbers of samples: {counts}")
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def _parts(name: str, kind: TensorType, array: Array, what: str) -> list[Array]:
    array = np.asarray(array)
    floats = is_real(kind.dtype) and array.dtype.kind == "f"
    if not floats and array.dtype.name != kind.dtype:
        raise FeedError(f"{what}: {name} must be {kind}, got elements of {array.dtype.name}")
    array = array.astype(held_as(kind.dtype), copy=False)
    shape = tuple(array.shape)
    if shape == kind.shape:
        return [array]
    batch = kind.shape[0] if kind.shape else 0
    if shape[1:] == kind.shape:
        return list(array)
    if batch and shape[1:] == kind.shape[1:] and shape[0] % batch == 0:
        return list(array.reshape(-1, *kind.shape))
    raise FeedError(f"{what}: {name} must be {kind}, or several of them, got shape {list(shape)}")


def _names(inputs: Types) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in inputs.items())

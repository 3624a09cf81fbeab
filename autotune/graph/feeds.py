"""Inputs of a graph: seeded random ones, and samples out of files.

In: the inputs' types, and a seed, a .npz file, a folder of them, or arrays. Out: arrays by name.
What is no array, but lists of numbers, becomes one by numpy's rules here.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autotune import arguments
from autotune.errors import FeedError
from autotune.graph.memory_limit import check_tensors
from autotune.memory import physical_bytes
from autotune.size_ranges import SizedType
from autotune.types import Array, TensorType, held_as, is_real

Feeds = Mapping[str, Array]
Samples = str | os.PathLike[str] | Feeds | Sequence[Feeds]
Types = Mapping[str, TensorType]
OpenKind = TensorType | SizedType
NUMBERS = (list, tuple, int, float, complex, np.generic)
"""What has numbers but no type of elements that somebody chose."""


def as_array(given: npt.ArrayLike, dtype: str, what: str) -> Array:
    """An array of what is given, in this machine's byte order. Arrays (and what stands for one)
    keep their type of elements; numbers, and nested lists of them, get `dtype` where numpy casts
    them to it as the same kind, or both are integers, and they fit. Raises FeedError, which begins
    with `what`."""
    if isinstance(given, np.ma.MaskedArray):
        raise FeedError(
            f"{what}: expected an array, got a masked one; fill it with .filled(VALUE)"
        )
    try:
        tensor = hasattr(given, "__dlpack__") and not hasattr(given, "__array__")
        array = np.from_dlpack(given) if tensor else np.asarray(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError, BufferError) as error:
        reason = arguments.shortened(str(error).partition("\n")[0], 120)
        raise FeedError(
            f"{what}: expected an array of {dtype}, got {arguments.described(given)} that numpy "
            f"makes none of ({reason})"
        ) from None
    if array.dtype.kind in "OSUMm" or array.dtype.fields is not None:
        found = arguments.described(given)
        raise FeedError(f"{what}: expected numbers of {dtype}, got {found} ({array.dtype})")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return _converted(array, dtype, what) if isinstance(given, NUMBERS) else array


def _converted(array: Array, dtype: str, what: str) -> Array:
    """Numbers that had no type, in the one that is asked for."""
    kind = np.dtype(held_as(dtype))
    integers = array.dtype.kind in "iu" and kind.kind in "iu"
    if array.size and not integers and not np.can_cast(array.dtype, kind, "same_kind"):
        raise FeedError(
            f"{what}: expected {dtype}, and {array.dtype} numbers would not stay what they are; "
            f"convert them with numpy.array(..., '{kind}')"
        )
    with np.errstate(over="ignore"):
        out = array.astype(kind)
    if kind.kind in "iu" and array.size:
        limits = np.iinfo(kind)
        fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
    else:
        fits = kind.kind != "f" or bool((np.isfinite(out) | ~np.isfinite(array)).all())
    if not fits:
        raise FeedError(f"{what}: a number given is beyond {dtype}; give values that fit")
    return out


def random_feeds(inputs: Types, seed: int) -> dict[str, Array]:
    """Seeded inputs: normal floats, and integers 0 or 1 (valid as ids and as masks). Raises
    ConfigError where the seed is no whole number from 0 on, and ModelError where they are more
    than this machine's memory."""
    arguments.whole("seed", seed)
    check_tensors(inputs, physical_bytes())
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
    return given_feeds(inputs, source, count)


def given_feeds(inputs: Mapping[str, OpenKind], source: Samples, count: int) -> list[Feeds]:
    """See `sample_feeds`; open sizes may differ from sample to sample, and are not looked at."""
    found: list[Feeds] = []
    for what, arrays in _sources(source):
        found += _split(inputs, arrays, what)
        if len(found) >= count:
            break
    if not found:
        raise FeedError(f"{source} holds no samples; expected .npz files with {_names(inputs)}")
    return found[:count]


def check_samples(source: object) -> None:
    """Raise FeedError for what can be no samples by its type. Reads nothing."""
    if source is None or (isinstance(source, Iterable) and not isinstance(source, str | bytes)):
        listed = source if isinstance(source, Sequence) else ()
        for number, feeds in enumerate((source,) if isinstance(source, Mapping) else listed):
            what = "a dict of arrays by input name"
            arguments.by_name(f"sample {number} for calibration", feeds, what, FeedError)
        return
    what = "a .npz file, a folder of them, or arrays by input name"
    arguments.place("calibration", source, what, FeedError)


def _sources(source: Samples) -> list[tuple[str, Feeds]]:
    if isinstance(source, Mapping):
        return [("the samples", source)]
    if not isinstance(source, str | os.PathLike):
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


def _split(inputs: Mapping[str, OpenKind], arrays: Feeds, what: str) -> list[Feeds]:
    """The samples of one file."""
    arguments.by_name(what, arrays, "a dict of arrays by input name", FeedError)
    if set(arrays) != set(inputs):
        raise FeedError(f"{what}: expected arrays {_names(inputs)}, got {sorted(arrays)}")
    parts = {name: _parts(name, kind, arrays[name], what) for name, kind in inputs.items()}
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) != 1:
        raise FeedError(f"{what}: its arrays hold different numbers of samples: {counts}")
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def _parts(name: str, kind: OpenKind, array: Array, what: str) -> list[Array]:
    array = as_array(array, kind.dtype, f"{what}: {name}")
    floats = is_real(kind.dtype) and array.dtype.kind == "f"
    if not floats and array.dtype.name != kind.dtype:
        raise FeedError(f"{what}: {name} must be {kind}, got elements of {array.dtype.name}")
    array = array.astype(held_as(kind.dtype), copy=False)
    shape = tuple(array.shape)
    if _fits(shape, kind):
        return [array]
    batch = kind.shape[0] if kind.shape else 0
    if shape and _fits(shape[1:], kind):
        return list(array)
    if isinstance(batch, int) and batch and shape[1:] == kind.shape[1:] and shape[0] % batch == 0:
        return list(array.reshape(-1, *kind.shape))
    raise FeedError(f"{what}: {name} must be {kind}, or several of them, got shape {list(shape)}")


def _fits(shape: tuple[int, ...], kind: OpenKind) -> bool:
    """Whether a shape is a type's, whose open sizes may be any."""
    return len(shape) == len(kind.shape) and all(
        isinstance(dim, str) or dim == extent
        for dim, extent in zip(kind.shape, shape, strict=True)
    )


def _names(inputs: Mapping[str, OpenKind]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in inputs.items())

"""Files that people ask for. In: a path. Out: a file to write, which appears when it is whole;
several, which do together."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from autotune.errors import InputError


@contextlib.contextmanager
def atomic_file(path: str | Path, failure: type[InputError]) -> Iterator[BinaryIO]:
    """A file that takes its place, and that of an earlier one, at the end: what fails half way
    leaves nothing and costs nothing. A link keeps leading there; a pipe or a device gets the bytes
    as they come. Raises `failure` where it cannot be written."""
    place = Path(os.path.realpath(path))
    try:
        if place.exists() and not place.is_file():
            with place.open("wb") as out:
                yield out
            return
        with _replacing(place) as out:
            yield out
    except BrokenPipeError:
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free some space" if full else "choose another path"
        raise failure(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


@contextlib.contextmanager
def _replacing(place: Path) -> Iterator[BinaryIO]:
    draft = place.with_name(f".{place.name[:200]}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as out:
            yield out
        draft.replace(place)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def write_together(
    folder: str | Path, files: Mapping[str, bytes | memoryview], failure: type[InputError]
) -> tuple[Path, ...]:
    """Files of a folder, all or none of them; none leaves no folder that was not there. Out: their
    paths. Raises `failure` where one cannot be written."""
    place = Path(folder)
    missing = [p for p in (place, *place.parents) if not p.exists()]
    try:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure(f"cannot make the folder {place}: {error.strerror}") from None
        with contextlib.ExitStack() as drafts:
            for name, data in files.items():
                out = drafts.enter_context(atomic_file(place / name, failure))
                out.write(data)
                out.flush()  # what fails does so before the first takes its place
    except BaseException:
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()
        raise
    return tuple(place / name for name in files)


def write_text(path: str | Path, text: str, failure: type[InputError]) -> None:
    """Write a whole text file. Raises `failure` where it cannot be written."""
    with atomic_file(path, failure) as out:
        out.write(text.encode())

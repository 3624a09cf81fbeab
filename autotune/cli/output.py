"""Files that commands write. In: a path. Out: a file to write to; it appears when it is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from autotune.errors import ConfigError


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[TextIO]:
    """A text file that takes its place, and that of an earlier one, at the end: what fails half
    way leaves nothing and costs nothing. Raises ConfigError where it cannot be written."""
    draft = Path(f"{path}.part")
    try:
        with draft.open("w", encoding="utf-8") as out:
            yield out
        draft.replace(path)
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror}"
        raise ConfigError(f"{reason}; free some space or choose another -o") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()

"""Files of rewrites: those that ship, and users' own, which are proven before they are used."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from autotune.errors import ConfigError
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import prove
from autotune.rewrite.rule import Rewrite

NONE = "none"
"""In place of a file: no rewrites."""
SHIPPED = Path(__file__).parent / "shipped.rewrites"


def read(path: str | os.PathLike[str]) -> tuple[Rewrite, ...]:
    """The rewrites of a file, as they are there. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"cannot read the rewrites {path}: {why}; name a text file") from None
    return parse(text, os.fspath(path))


@functools.cache
def shipped() -> tuple[Rewrite, ...]:
    """The rewrites that ship; tests prove them."""
    return read(SHIPPED)


def wanted(name: str | os.PathLike[str] | None) -> tuple[Rewrite, ...]:
    """Those that ship for None, nothing for `none`, else a file's, proven. Raises ConfigError."""
    if name is None:
        return shipped()
    if name == NONE:
        return ()
    found = read(name)
    for rewrite in found:
        prove(rewrite)
    return found

"""The seal of an exported file: a description at its end, with a digest of all of it.

In: a file's bytes and a description. Out: lines that programs which read such files pass over
(linkers and loaders look at no more of an object than its headers name), and the check of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import ArtifactError

_ABOUT, _DIGEST = b"\nautotune-about:", b"\nautotune-sha256:"
_DIGEST_BYTES = 64
"""Characters of a SHA-256 in hexadecimal."""
_MAX_ABOUT_BYTES = 1 << 16
"""Bytes of a description."""
_OBJECTS, _ARCHIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe"), b"!<arch>\n"
"""What objects begin with (ELF, Mach-O), and libraries of them."""

Description = Mapping[str, str | int]


def seal(data: bytes | memoryview, about: Description) -> bytes:
    """The end of a file that begins with `data`."""
    said = _ABOUT + json.dumps(dict(about)).replace("*/", "*\\/").encode()
    hasher = hashlib.sha256(data)
    hasher.update(said)
    return said + _DIGEST + hasher.hexdigest().encode() + b"\n"


def sealed(data: bytes, about: Description) -> bytes:
    """The file with its end."""
    return data + seal(data, about)


def read_seal(data: bytes, path: str) -> dict[str, Any]:
    """The description in a sealed file. Raises ArtifactError where there is none, or the file was
    changed."""
    digest_at = data.rfind(_DIGEST)
    about_at = data.rfind(_ABOUT, max(0, digest_at - _MAX_ABOUT_BYTES), max(0, digest_at))
    if digest_at < 0 or about_at < 0:
        raise ArtifactError(
            f"{path} is nothing that autotune compiled or exported; give a file of "
            "`autotune compile` or `autotune export`"
        )
    start = 0
    if data.startswith(_ARCHIVE):
        start = min((at for kind in _OBJECTS if (at := data.find(kind)) > 0), default=0)
    end = digest_at + len(_DIGEST)
    told = data[end : end + _DIGEST_BYTES].decode("ascii", "replace")
    if hashlib.sha256(memoryview(data)[start:digest_at]).hexdigest() != told:
        raise ArtifactError(
            f"{path} was changed or damaged: it does not have the digest that it names; export "
            "the model again"
        )
    try:
        about = json.loads(data[about_at + len(_ABOUT) : digest_at])
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise ArtifactError(f"{path} does not say what it is; export the model again")
    return about

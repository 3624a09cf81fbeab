"""The runtime as a wheel: the modules of this package that loading and running a model imports,
and numpy as the one requirement. In: this installation. Out: a wheel's name and bytes.

It is written of what is installed, so that a model and its runtime are of one version without a
second project to release. Its modules have the names they have here: a program that says
`autotune.load(path).run` is the same with either wheel, which are not installed side by side.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from autotune.release import RUNTIME, release

ROOTS = ("autotune", "autotune.runtime.__main__", "autotune.codegen.loader", "autotune.release")
"""What callers import; the loader is imported where a model runs first."""
_PACKAGE = "autotune"
_MADE_IN = (2020, 1, 1, 0, 0, 0)
"""The date of every file: equal installations write equal wheels."""


def runtime_wheel() -> tuple[str, bytes]:
    """The wheel's file name, and what is in it."""
    version = release().replace("unknown", "0")
    info = f"{RUNTIME.replace('-', '_')}-{version}.dist-info"
    files = {f"{_PACKAGE}/py.typed": b""} | runtime_modules()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {RUNTIME}\nVersion: {version}\n"
        "Summary: Runs models that autotune has compiled\nLicense: Apache-2.0\n"
        "Requires-Python: >=3.11\nRequires-Dist: numpy>=1.26\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: autotune\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    return f"{info.removesuffix('.dist-info')}-py3-none-any.whl", _zipped(files)


def runtime_modules() -> dict[str, bytes]:
    """The sources of the modules by their paths."""
    root = Path(__file__).parent.parent
    pending, files = list(ROOTS), {}
    while pending:
        name = pending.pop()
        path = _source(root, name)
        if path is None or (key := f"{_PACKAGE}/{path.relative_to(root).as_posix()}") in files:
            continue
        files[key] = path.read_bytes()
        pending += _imports(ast.parse(files[key]))
        pending.append(name.rpartition(".")[0])
    return dict(sorted(files.items()))


def _source(root: Path, name: str) -> Path | None:
    """The file of one of our modules; None for what is no module, or not ours."""
    first, *parts = name.split(".")
    if first != _PACKAGE:
        return None
    place = root.joinpath(*parts)
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def _imports(module: ast.Module) -> list[str]:
    """What a module imports when it is imported itself, and perhaps attributes of that."""
    names: list[str] = []
    for node in module.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _MADE_IN)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

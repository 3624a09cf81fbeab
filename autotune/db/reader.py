"""A log opened to look things up. In: a path or URL. Out: an engine, of a copy of what is left
where a file is damaged; what is wrong with it is noted.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from autotune.db import engines, files, schema, state
from autotune.db.damage import Damage
from autotune.db.salvage import salvage
from autotune.db.statements import executor
from autotune.db.wal import LeftBehind
from autotune.errors import LogError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """`engine`: None where there is no log yet, or one of an older release, whose schema `version`
    is not 0. `copy`: the folder of a damaged log's copy, to be cleaned up."""

    engine: Engine | None = None
    version: int = 0
    copy: tempfile.TemporaryDirectory[str] | None = None


def open_reader(path_or_url: str, damage: Damage, *, salvage_ok: bool) -> Reader:
    """Raises LogError; without `salvage_ok` for a file too that is damaged."""
    path, name = files.file_of(path_or_url), files.shown(path_or_url)
    left = LeftBehind()
    if path is not None:
        if not files.exists(path):
            return Reader()
        files.check_header(path)
        left = LeftBehind.of(path)
        wrong = files.trouble(path)
        if wrong and not salvage_ok:
            raise files.damaged(name, wrong[0])
        if wrong:
            return _salvaged(path, name, wrong[0], damage)
    engine = engines.engine(path_or_url, write=False)
    try:
        with engine.begin() as connection:
            current = schema.is_current(connection, name)
            if current and path is not None:
                small = path.stat().st_size <= files.SMALL_BYTES
                damage.note(state.missing(executor(connection), left, whole=small))
            version = schema.version_of(connection)
    except (SQLAlchemyError, UnicodeDecodeError) as error:
        engine.dispose()
        raise files.explain(error, name) from None
    except LogError:
        engine.dispose()
        raise
    if current:
        return Reader(engine=engine, version=version)
    engine.dispose()
    return Reader(version=version)


def _salvaged(path: Path, name: str, wrong: str, damage: Damage) -> Reader:
    """What can be read of a damaged file, from a copy."""
    folder = tempfile.TemporaryDirectory(prefix="autotune-log-")
    copy = Path(folder.name) / "log.db"
    try:
        if salvage(path, copy, damage):
            engine = engines.engine(str(copy), write=False)
            return Reader(engine=engine, version=files.SCHEMA_VERSION, copy=folder)
    except BaseException:
        folder.cleanup()
        raise
    folder.cleanup()
    raise files.damaged(name, wrong)

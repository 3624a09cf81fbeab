"""Migrations of older logs to the current schema. In: a connection and the schema's version.

One Alembic revision a file, named by the schema version that it makes. A log's version is kept in
its `schema` table and not in Alembic's own, so that a log can be checked, and a new one made,
without importing Alembic.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from autotune.errors import LogError

FOLDER = Path(__file__).parent


def migrate(connection: Connection, version: int, current: int, folder: Path = FOLDER) -> None:
    """Apply the revisions after `version` up to `current`, inside the caller's transaction."""
    try:
        from alembic.migration import MigrationContext
        from alembic.operations import Operations
        from alembic.script import ScriptDirectory
    except ImportError:
        raise LogError(
            f"the tuning log is of an older release (schema {version}): upgrading it needs "
            "Alembic; pip install alembic"
        ) from None
    script = ScriptDirectory(folder, version_locations=[folder])
    newer = {int(s.revision): s for s in script.walk_revisions() if int(s.revision) > version}
    with Operations.context(MigrationContext.configure(connection)):
        for number in sorted(newer):
            if number <= current:
                newer[number].module.upgrade()

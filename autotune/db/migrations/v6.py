"""A checksum of every row (`seal`), and in `schema` how many records there were at the last
checkpoint and the number of the last: what a log has lost, or what was changed in it, is noticed.

The rows that are there are sealed as they are; a table's missing seal says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from autotune.db import seals

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None

_BATCH = 2000
"""Rows that are sealed by one statement."""


def upgrade() -> None:
    connection = op.get_bind()
    for name in ("records", "last"):
        op.add_column("schema", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    for table, columns in seals.COLUMNS.items():
        op.add_column(table, sa.Column("seal", sa.BigInteger))
        _seal_rows(connection, table, columns)


def _seal_rows(connection: sa.Connection, table: str, columns: Sequence[str]) -> None:
    """Batch by batch in the order of the primary key; a row that no reader takes gets none."""
    key = seals.KEYS.get(table, "id")
    names = [key, *columns, *(["mark"] if table == "records" else [])]
    quoted = ", ".join(f'"{name}"' for name in names)
    batch = f'SELECT {quoted} FROM {table} WHERE "{key}" > :after ORDER BY "{key}" LIMIT {_BATCH}'
    first = batch.replace('WHERE "' + key + '" > :after ', "")
    change = sa.text(f'UPDATE {table} SET seal = :seal WHERE "{key}" = :key')
    rows = connection.execute(sa.text(first)).all()
    while rows:
        sealed = []
        for row in rows:
            values = dict(zip(names, row, strict=True))
            try:
                sealed.append({"key": row[0], "seal": seals.seal_of(table, values)})
            except (TypeError, ValueError):  # it stays as damaged as it is
                continue
        if sealed:
            connection.execute(change, sealed)
        rows = connection.execute(sa.text(batch), {"after": rows[-1][0]}).all()
